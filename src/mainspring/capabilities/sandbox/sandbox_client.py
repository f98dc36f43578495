"""A session's sandbox, as the harness has it: starts the keeper when one is needed, asks it for
programs, and finds what became of them when it is gone."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, cast

import anyio
from anyio import CancelScope, to_thread

from mainspring.capabilities.sandbox.backend import Backend, SandboxSpec, check_private_paths
from mainspring.capabilities.sandbox.execution import LOST_RESULT
from mainspring.capabilities.sandbox.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.keeper_connection import (
    KeeperConnection,
    connect_to_keeper,
    environment_pairs,
    start_keeper,
)
from mainspring.capabilities.sandbox.stale_keepers import end_keeper_if_stale, stamp
from mainspring.capabilities.sandbox.wire import MAX_FRAME, frame, pack, unpack
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import (
    CapturedOutput,
    ExecRequest,
    ExecResult,
    SandboxInfo,
    StopCause,
    ignore_output,
)

_PARTING_SECONDS = 5.0
_WELCOME_SECONDS = 15.0
_RESTART_SECONDS = 1.0
_ATTEMPTS = 3


def close_listener(listener: socket.socket) -> None:
    listener.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionProgress:
    is_running: bool
    exec_result: ExecResult
    """What it has said so far; all of it, once it runs no more."""


class KeeperSandbox:
    """Programs of a session run in it one after the other.

    `on_listener` is given the listening socket of each sandbox that this one comes to use, if the
    site has a network: a sandbox that had to be started again has another.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        backend: Backend,
        *,
        linger_seconds: float = 30.0,
        on_listener: Callable[[socket.socket], None] = close_listener,
    ) -> None:
        self._site = _validate(spec)
        check_private_paths(self._site)
        self._backend = backend
        self._linger_seconds = linger_seconds
        self._on_listener = on_listener
        self._moving_in = anyio.Lock()
        self._presence: KeeperConnection | None = None
        """What tells the keeper that there is still somebody to keep the sandbox for."""
        launch = backend.launch(self._site)
        self._variables = launch.variables
        self._stamp = stamp(launch.fingerprint)
        digest = hashlib.sha256(launch.fingerprint.encode()).hexdigest()
        self._box = SandboxInfo(
            backend=backend.name, isolation_level=backend.level, flags_hash=digest[:16]
        )

    @property
    def box(self) -> SandboxInfo:
        return self._box

    async def run(
        self, wanted: ExecRequest, hear: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        name = _name(wanted.key)
        message = self._message(name, wanted)
        for _ in range(_ATTEMPTS):
            async with await self._visit() as talk:
                record = await talk.perform(name, message, hear)
            if record is None:  # the keeper is gone: did it start the program before?
                record = await to_thread.run_sync(self._kept, name)
            if record is not None:
                return _parse_result(record)
        raise SandboxFailed(
            "not run: every sandbox that was started ended before the command began"
        )

    async def prepare(self) -> None:
        """Start the sandbox before something is run in it. If that fails, `run` tells why."""
        with suppress(SandboxFailed, OSError):
            async with await self._visit():
                pass

    async def find_result(self, key: str) -> ExecResult | None:
        name = _name(key)
        record = None
        if talk := await connect_to_keeper(self._site.state):
            async with talk:
                record = await talk.ask(frame(b"found", name.encode()))
        if record is None:
            record = await to_thread.run_sync(self._kept, name)
        if record is None and not await to_thread.run_sync(self._shelf().is_reliable):
            record = LOST_RESULT
        return None if record is None else _parse_result(record)

    async def forget(self, key: str) -> None:
        await to_thread.run_sync(self._shelf().drop, _name(key))

    async def begin(self, wanted: ExecRequest) -> None:
        """As `run`, without waiting for the end; `progress` tells of it.

        Raises:
            SandboxFailed: it was not begun.
        """
        name = _name(wanted.key)
        async with await self._visit() as talk:
            message = self._message(name, wanted) + frame(b"peek", name.encode())
            if (await talk.exchange(message)).record is None:
                raise SandboxFailed("not run: the sandbox ended before the command began")

    async def attach(self, wanted: ExecRequest, streams: list[int]) -> KeeperConnection:
        """Start a program with this input and output; it ends when the connection is closed.

        Raises:
            SandboxFailed: it was not started.
        """
        name = _name(wanted.key)
        talk = await self._visit()
        try:
            await talk.attach(name, self._message(name, wanted), streams)
        except BaseException:
            await talk.aclose()
            raise
        return talk

    async def progress(self, key: str) -> ExecutionProgress | None:
        """How far a program is; `None` if it was never started."""
        if talk := await connect_to_keeper(self._site.state):
            async with talk:
                answer = await talk.exchange(frame(b"peek", _name(key).encode()))
            if answer.is_running and answer.record is not None:
                return ExecutionProgress(is_running=True, exec_result=_parse_result(answer.record))
        ran = await self.find_result(key)
        return None if ran is None else ExecutionProgress(is_running=False, exec_result=ran)

    async def cancel(self, key: str) -> ExecResult | None:
        """Kill a program that was begun; what came of it."""
        if talk := await connect_to_keeper(self._site.state):
            async with talk:
                await talk.cancel(_name(key))
        return await self.find_result(key)

    async def listener(self) -> socket.socket | None:
        """Where programs' connections to a proxy arrive; the caller's to close."""
        async with await self._visit() as talk:
            return await talk.listener()

    async def leave(self) -> None:
        """The keeper ends what it is at, and waits for a while for somebody to come back."""
        if self._presence is not None:
            await self._presence.aclose()
            self._presence = None

    async def close(self) -> None:
        """End the sandbox, and all that runs in it. What came of programs stays on disk."""
        with CancelScope(shield=True), anyio.move_on_after(_PARTING_SECONDS):
            async with self._moving_in:  # one that is being started is not left behind
                pass
            if talk := await connect_to_keeper(self._site.state):
                async with talk:
                    await talk.ask(frame(b"close"))  # answered by hanging up
        await self.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _message(self, name: str, wanted: ExecRequest) -> bytes:
        message = frame(
            b"run",
            name.encode(),
            b"%d" % int(wanted.wall_seconds * 1000),
            b"%d" % wanted.max_bytes,
            os.fsencode(os.path.join(self._site.workspace, wanted.cwd or ".")),
            pack(map(os.fsencode, wanted.argv)),
            pack(environment_pairs({**self._variables, **wanted.env})),
            wanted.stdin,
        )
        if len(message) > MAX_FRAME:
            raise SandboxFailed(f"not run: more than {MAX_FRAME} bytes of input")
        return message

    async def _visit(self) -> KeeperConnection:
        async with self._moving_in:
            await to_thread.run_sync(end_keeper_if_stale, self._stamp, self._site.state)
            talk = await connect_to_keeper(self._site.state)
            is_new = talk is None
            if talk is None:
                talk = await self._started()
            if is_new or self._presence is None:
                await self._move_in()
            return talk

    async def _started(self) -> KeeperConnection:
        """Talk to a new keeper. One that is ending may still hold the lock: then we try again."""
        with anyio.move_on_after(_WELCOME_SECONDS):
            while True:
                await to_thread.run_sync(self._start)
                with anyio.move_on_after(_RESTART_SECONDS):
                    return await self._welcomed()
        raise self._silent()

    def _start(self) -> None:
        # anew each time: what there is to protect in the workspace may have come to be since
        check_private_paths(self._site)
        launch = self._backend.launch(self._site)
        start_keeper(self._site, launch, linger_seconds=self._linger_seconds, stamp=self._stamp)

    async def _move_in(self) -> None:
        await self.leave()
        self._presence = await self._welcomed()
        if self._site.network and (listener := await self._presence.listener()):
            self._on_listener(listener)

    async def _welcomed(self) -> KeeperConnection:
        """A keeper that somebody else has started may not be listening yet."""
        with anyio.move_on_after(_WELCOME_SECONDS):
            while (talk := await connect_to_keeper(self._site.state)) is None:  # noqa: ASYNC110 -- it is
                await anyio.sleep(0.02)  # another process that we wait for
            return talk
        raise self._silent()

    def _silent(self) -> SandboxFailed:
        return SandboxFailed(f"not run: the keeper of {self._site.state} does not answer")

    def _kept(self, name: str) -> bytes | None:
        shelf = self._shelf()
        record = shelf.get(name)
        return LOST_RESULT if record is None and shelf.was_started(name) else record

    def _shelf(self) -> ExecutionRecords:
        return ExecutionRecords(str(self._site.state))


def _validate(spec: SandboxSpec) -> SandboxSpec:
    """
    Raises:
        SandboxFailed: programs could reach the keeper's own files.
    """
    workspace, state = spec.workspace.resolve(), spec.state.absolute()
    hidden = tuple(workspace / path for path in spec.hidden)
    is_inside = state.resolve().is_relative_to(workspace)
    if is_inside and not any(state.is_relative_to(path) for path in hidden):
        raise SandboxFailed(f"not run: {state} is in the workspace, where programs could change it")
    return replace(spec, workspace=workspace, state=state, hidden=hidden)


def _name(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def _parse_result(record: bytes) -> ExecResult:
    status, stopped, milliseconds, *streams = unpack(record)
    return ExecResult(
        status=int(status),
        stdout=_parse_captured(*streams[:3]),
        stderr=_parse_captured(*streams[3:]),
        stop_cause=cast(StopCause, stopped.decode("ascii")) if stopped else None,
        milliseconds=int(milliseconds),
    )


def _parse_captured(head: bytes, tail: bytes, size: bytes) -> CapturedOutput:
    return CapturedOutput(head=head, tail=tail, size=int(size))
