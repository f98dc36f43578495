"""The harness's side of a keeper: start the keeper process, connect to it, and exchange requests
and results with it.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Self

import anyio
from anyio import CancelScope
from anyio.abc import UNIXSocketStream
from msgspec import Struct

from mainspring.capabilities.sandbox.backend import Launch, SandboxSpec, module_command
from mainspring.capabilities.sandbox.keeper_process.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.wire import HELD, READY, SOCKET, Frames, frame, pack, pack_map
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ignore_output
from mainspring.files.openat import OpenDescriptor

_STOP_SECONDS = 10.0
"""How long it may take to kill a program."""
_DISCONNECTS = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class KeeperReply(Struct, frozen=True):
    record: bytes | None
    """`None`: the keeper has none, or is gone."""
    is_running: bool = False


class KeeperConnection:
    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._frames = Frames()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        with CancelScope(shield=True):
            await self._stream.aclose()

    async def ask(
        self, message: bytes, on_output: Callable[[bytes], None] = ignore_output
    ) -> bytes | None:
        """The record of a program; `None`: the keeper has none, or is gone.

        Raises:
            SandboxFailed: the program was not run.
        """
        return (await self.exchange(message, on_output)).record

    async def exchange(
        self, message: bytes, on_output: Callable[[bytes], None] = ignore_output
    ) -> KeeperReply:
        """Like `ask`, but the program may still be running when the keeper replies."""
        with CancelScope(shield=True):  # a partial message would corrupt the next one
            try:
                await self._stream.send(message)
            except _DISCONNECTS:
                return KeeperReply(None)
        return await self._answer(on_output)

    async def perform(
        self, name: str, message: bytes, on_output: Callable[[bytes], None]
    ) -> bytes | None:
        """Run a program; if the caller is cancelled, so is the program."""
        try:
            return await self.ask(message, on_output)
        except anyio.get_cancelled_exc_class():
            with CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
                await self.cancel(name)
            raise

    async def attach(self, name: str, message: bytes, streams: list[int]) -> None:
        """Run a program with this input and output. It ends when this connection is closed.

        Raises:
            SandboxFailed: the program was not started.
        """
        with CancelScope(shield=True):
            try:
                await self._stream.send_fds(frame(b"streams"), streams)
            except _DISCONNECTS as error:
                raise SandboxFailed("the sandbox died before it was used") from error
        if not (await self.exchange(message + frame(b"peek", name.encode()))).is_running:
            raise SandboxFailed("the program ended immediately")

    async def cancel(self, name: str) -> None:
        """Kill a program, and wait until it is dead."""
        try:
            await self.ask(frame(b"cancel", name.encode()) + frame(b"found", name.encode()))
        except SandboxFailed:
            return  # the program had not begun

    async def listener(self) -> socket.socket | None:
        try:
            await self._stream.send(frame(b"listener"))
            _, descriptors = await self._stream.receive_fds(1, 1)
        except _DISCONNECTS as error:
            raise SandboxFailed("the sandbox died before it was used") from error
        return socket.socket(fileno=descriptors[0]) if descriptors else None

    async def _answer(self, on_output: Callable[[bytes], None]) -> KeeperReply:
        while True:
            for kind, *fields in await self._next():
                match kind:
                    case b"output":
                        on_output(fields[0])
                    case b"failed":
                        raise SandboxFailed(fields[0].decode("utf-8", "replace"))
                    case b"ran" | b"running":
                        return KeeperReply(fields[0], is_running=kind == b"running")
                    case _:
                        return KeeperReply(None)

    async def _next(self) -> list[list[bytes]]:
        try:
            return self._frames.feed(await self._stream.receive())
        except _DISCONNECTS:
            return [[b"gone"]]


async def connect_to_keeper(state: Path) -> KeeperConnection | None:
    """A connection to the keeper of `state`, or `None` if none is running."""
    try:
        if sys.platform != "linux":
            return KeeperConnection(await anyio.connect_unix(state / SOCKET))
        with OpenDescriptor(
            os.open(state, os.O_PATH | os.O_DIRECTORY)
        ) as folder:  # a socket path may have at most 107 bytes
            return KeeperConnection(await anyio.connect_unix(f"/proc/self/fd/{folder}/{SOCKET}"))
    except (FileNotFoundError, ConnectionRefusedError):
        return None


_START_SECONDS = 20.0  # 5 s above the launch's own limit, so that its cause is reported


def start_keeper(
    spec: SandboxSpec, launch: Launch, *, linger_seconds: float, stamp: str = ""
) -> None:
    """Start a keeper, and return when it or an existing keeper can run programs.

    Raises:
        SandboxFailed: the sandbox could not be made.
    """
    ExecutionRecords(str(spec.state)).make()
    reply = _spawn(spec.state, _keeper_config(spec, launch, linger_seconds, stamp))
    if reply not in (READY, HELD):
        why = reply.decode("utf-8", "replace") or _keeper_log(spec.state)
        raise SandboxFailed(
            f"the sandbox did not start, so nothing was run: {why}."
            " `mainspring doctor` shows what this machine lacks."
        )


def _spawn(state: Path, orders: bytes) -> bytes:
    command = [sys.executable, *module_command("keeper_process.keeper")]
    orders_reader, orders_writer = os.pipe()
    reply_reader, reply_writer = os.pipe()
    with open(orders_writer, "wb") as orders_stream, OpenDescriptor(reply_reader):
        with (
            OpenDescriptor(orders_reader),
            OpenDescriptor(reply_writer),
            OpenDescriptor(
                os.open(state / "keeper.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
            ) as log,
        ):
            process = os.posix_spawn(
                sys.executable,
                command,
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, orders_reader, 0),
                    (os.POSIX_SPAWN_DUP2, reply_writer, 1),
                    (os.POSIX_SPAWN_DUP2, log, 2),
                ],
                setsid=True,
            )
        _write_and_close(orders_stream, orders)
        os.waitpid(process, 0)
        return _read_reply(reply_reader)


def _write_and_close(stream: BinaryIO, content: bytes) -> None:
    try:
        with stream:
            stream.write(content)
    except BrokenPipeError:
        return  # the keeper has died; its log says why


def _read_reply(reply_reader: int) -> bytes:
    poll = select.poll()
    poll.register(reply_reader, select.POLLIN)
    pieces: list[bytes] = []
    while poll.poll(_START_SECONDS * 1000):
        piece = os.read(reply_reader, 4096)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _keeper_log(state: Path) -> str:
    lines = (state / "keeper.log").read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "the keeper did not answer"


def _keeper_config(spec: SandboxSpec, launch: Launch, linger_seconds: float, stamp: str) -> bytes:
    limits = spec.sandbox_limits
    return pack_map(
        {
            "state": os.fsencode(spec.state),
            "workspace": os.fsencode(spec.workspace),
            "hidden": pack(map(os.fsencode, spec.hidden)),
            "uid": b"" if launch.uid is None else b"%d" % launch.uid,
            "argv": pack(map(os.fsencode, launch.argv)),
            "env": pack(environment_pairs(launch.env)),
            "files": pack(launch.files),
            "sources": pack(map(os.fsencode, launch.sources)),
            "forbidden": pack(b"%d %d" % item for item in launch.forbidden),
            "distrusted": pack(map(os.fsencode, (spec.workspace, *spec.distrusted))),
            "rlimits": " ".join(f"{name}={most}" for name, most in launch.rlimits.items()).encode(),
            "has_own_pids": b"%d" % launch.has_own_pids,
            "output_bytes": b"%d" % limits.output_bytes,
            "memory_bytes": b"%d" % limits.memory_bytes,
            "processes": b"%d" % limits.processes,
            "disk_bytes": b"%d" % limits.disk_bytes,
            "linger_ms": b"%d" % int(linger_seconds * 1000),
            "stamp": stamp.encode(),
            "guard": b"" if spec.guard is None else os.fsencode(spec.guard),
            "end_guard": pack(map(os.fsencode, spec.end_guard)),
        }
    )


def environment_pairs(variables: Mapping[str, str]) -> Iterable[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in variables.items()]
