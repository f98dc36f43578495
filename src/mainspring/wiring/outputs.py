"""How the service gets at the files that a session hands over in its workspace."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from anyio import to_thread

from mainspring.capabilities.workspace.outputs import (
    Output,
    OutputFile,
    list_outputs,
    read_output,
)
from mainspring.service.sessions.outputs import Source

OUTPUTS_NOTE = (
    "Put files for the user into the folder outputs of your workspace, which is also called"
    " /mnt/session/outputs: the user can download them when you are done."
)


def output_source(workspace: Path) -> Source:
    async def listed() -> list[OutputFile]:
        if not await to_thread.run_sync(workspace.is_dir):
            return []
        return await to_thread.run_sync(list_outputs, workspace)

    async def read(path: str, max_bytes: int) -> Output | str:
        reading = partial(read_output, workspace, path, max_bytes=max_bytes)
        output = await to_thread.run_sync(reading)
        return output if isinstance(output, Output) else output.reason

    return Source(list=listed, read=read)
