"""The files that a run uses: its workflow, the workflows that this one calls, their commands and
scripts. They are pinned in the log when the run starts, so later edits change nothing for it."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.runtime.workflows.format.definition import Workflow
from mainspring.runtime.workflows.format.workflow_reader import read_workflow


class RunFiles(Struct, frozen=True, kw_only=True):
    main: str
    """The name of the workflow that runs."""
    workflows: dict[str, str]
    """Text by name."""
    commands: dict[str, str] = {}
    """Text by name."""
    scripts: dict[str, str] = {}
    """Code by name."""
    servers: dict[str, tuple[str, ...]] = {}
    """The names of MCP servers by the path of the file that a node names with `mcp`."""
    files: dict[str, str] = {}
    """Where each text comes from, for display: `command NAME`, `script NAME`, `workflow NAME`."""

    def workflow(self, name: str) -> Workflow:
        """Raises: InvalidInput: there is none of this name, or it is not valid."""
        text = self.workflows.get(name)
        if text is None:
            raise InvalidInput(f"there is no workflow {name}")
        return _read(text, name)

    def command(self, name: str) -> str:
        """Raises: InvalidInput."""
        if (text := self.commands.get(name)) is None:
            raise InvalidInput(f"there is no command {name}")
        return text

    @property
    def hash(self) -> str:
        servers = (self.servers,) if self.servers else ()  # without any, as before they existed
        content = msgspec.json.encode(
            (self.main, self.workflows, self.commands, self.scripts, *servers), order="sorted"
        )
        return hashlib.sha256(content).hexdigest()


@lru_cache(maxsize=64)
def _read(text: str, name: str) -> Workflow:
    read = read_workflow(text, name)
    if read.workflow is None:
        raise InvalidInput(f"workflow {name}: {read.error}")
    return read.workflow


def encode_files(files: RunFiles) -> bytes:
    return msgspec.json.encode(files)


def decode_files(content: bytes) -> RunFiles:
    return msgspec.json.decode(content, type=RunFiles)
