"""A sandbox that holds nothing in: real processes in a folder, for tests of what stands on one."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.abc import Process

from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import (
    CapturedOutput,
    ExecRequest,
    ExecResult,
    SandboxInfo,
    ignore_output,
)


@dataclass
class OpenSandbox:
    """Keeps what ran by its key, as a sandbox does that outlives the harness."""

    folder: Path
    ran: dict[str, ExecResult] = field(default_factory=dict[str, ExecResult])
    asked: list[ExecRequest] = field(default_factory=list[ExecRequest])
    forgotten: list[str] = field(default_factory=list[str])
    is_broken: bool = False

    @property
    def box(self) -> SandboxInfo:
        return SandboxInfo(backend="open", flags_hash="", isolation_level="none")

    @property
    def root(self) -> Path:
        made = self.folder / "ws"
        made.mkdir(exist_ok=True)
        return made

    @property
    def tmp(self) -> Path:
        made = self.folder / "tmp"
        made.mkdir(exist_ok=True)
        return made

    async def run(
        self, request: ExecRequest, on_output: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        if self.is_broken:
            raise SandboxFailed("no sandbox works here")
        if request.key not in self.ran:
            self.asked.append(request)
            self.ran[request.key] = await self._run(request, on_output)
        return self.ran[request.key]

    async def find_result(self, key: str) -> ExecResult | None:
        if self.is_broken:
            raise SandboxFailed("no sandbox works here")
        return self.ran.get(key)

    async def forget(self, key: str) -> None:
        self.forgotten.append(key)
        self.ran.pop(key, None)

    def lose(self, key: str) -> None:
        """The sandbox died while it ran."""
        self.ran[key] = ExecResult(
            status=-1, stdout=CapturedOutput(), stderr=CapturedOutput(), stop_cause="lost"
        )

    async def _run(self, request: ExecRequest, on_output: Callable[[bytes], None]) -> ExecResult:
        stream = _Stream(on_output, request.max_bytes)
        errors = _Stream(on_output, request.max_bytes)
        async with await anyio.open_process(
            list(request.argv),
            cwd=request.cwd or self.root,
            env={"PATH": os.defpath, "TMPDIR": str(self.tmp), **request.env},
            stdin=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            stopped = None
            with anyio.move_on_after(request.wall_seconds) as limit:
                try:
                    await _converse(process, request.stdin, stream, errors)
                finally:
                    _kill_group(process.pid)
            if limit.cancelled_caught:
                stopped = "time"
            status = await process.wait()
        return ExecResult(
            status=status if status >= 0 else 128 - status,
            stdout=stream.captured(),
            stderr=errors.captured(),
            stop_cause=stopped,
        )


async def _converse(process: Process, stdin: bytes, out: "_Stream", err: "_Stream") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    async with anyio.create_task_group() as group:
        group.start_soon(out.drain, process.stdout)
        group.start_soon(err.drain, process.stderr)
        if stdin:
            await process.stdin.send(stdin)
        await process.stdin.aclose()
        await process.wait()
        _kill_group(process.pid)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


class _Stream:
    def __init__(self, on_output: Callable[[bytes], None], max_bytes: int) -> None:
        self.on_output, self.max_bytes, self.content = on_output, max_bytes, b""

    async def drain(self, source: anyio.abc.ByteReceiveStream) -> None:
        async for piece in source:
            self.content += piece
            self.on_output(piece)

    def captured(self) -> CapturedOutput:
        size, half = len(self.content), self.max_bytes // 2
        if size <= self.max_bytes:
            return CapturedOutput(head=self.content, size=size)
        return CapturedOutput(head=self.content[:half], tail=self.content[-half:], size=size)
