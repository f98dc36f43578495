"""A session's sandbox from the harness's side: starts the keeper when needed, has it run programs,
and finds their results after the keeper is gone."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self, cast

import anyio
from anyio import CancelScope, to_thread
from msgspec import Struct

from mainspring.capabilities.sandbox.backend import (
    Backend,
    SandboxSpec,
    check_private_paths,
    describe_sandbox,
)
from mainspring.capabilities.sandbox.keeper_process.execution import LOST_RESULT
from mainspring.capabilities.sandbox.keeper_process.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.keeper_process.keeper_connection import (
    KeeperConnection,
    connect_to_keeper,
    environment_pairs,
    start_keeper,
)
from mainspring.capabilities.sandbox.keeper_process.stale_keepers import end_keeper_if_stale, stamp
from mainspring.capabilities.sandbox.wire import MAX_FRAME, SOCKET, frame, pack, unpack
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import (
    CapturedOutput,
    ExecRequest,
    ExecResult,
    StopCause,
    ignore_output,
)

_PARTING_SECONDS = 5.0  # to end a keeper, with the wait for a start in progress
_WELCOME_SECONDS = 15.0  # for a keeper to listen
_RESTART_SECONDS = 1.0  # before another keeper is started; one that ends may hold the lock
_ATTEMPTS = 3  # at one program, while keepers end before they start it


def close_listener(listener: socket.socket) -> None:
    listener.close()


class ExecutionProgress(Struct, frozen=True, kw_only=True):
    is_running: bool
    result: ExecResult
    """The output so far; all of it, once the program has ended."""


class KeeperSandbox:
    """A session's sandbox, which runs its programs one after the other.

    `on_listener` gets the listening socket of every sandbox that this client uses, if the spec has
    a network: a restarted sandbox has a new one.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        backend: Backend,
        *,
        linger_seconds: float = 30.0,
        on_listener: Callable[[socket.socket], None] = close_listener,
    ) -> None:
        self._spec = check_spec(spec)
        self._backend = backend
        self._linger_seconds = linger_seconds
        self._on_listener = on_listener
        self._lock = anyio.Lock()
        self._presence: KeeperConnection | None = None
        """While this connection is open, the keeper keeps the sandbox."""
        self._variables = backend.launch(self._spec).variables
        self.box = describe_sandbox(backend, self._spec)
        self._stamp = stamp(self.box.flags_hash)

    async def run(
        self, request: ExecRequest, on_output: Callable[[bytes], None] = ignore_output
    ) -> ExecResult:
        name = _name(request.key)
        message = self._message(name, request)
        for _ in range(_ATTEMPTS):
            async with await self._connect() as connection:
                record = await connection.perform(name, message, on_output)
            # Only a program without a record is tried again: the keeper writes down that it starts
            # before it does, so nothing runs twice.
            if record is None:  # the keeper is gone: had the program started?
                record = await to_thread.run_sync(self._stored, name)
            if record is not None:
                return _parse_result(record)
        raise SandboxFailed(
            "not run: every sandbox that was started ended before the command began"
        )

    async def prepare(self) -> None:
        """Start the sandbox before a program needs it. If that fails, `run` reports the reason."""
        with suppress(SandboxFailed, OSError):
            async with await self._connect():
                pass

    async def find_result(self, key: str) -> ExecResult | None:
        name = _name(key)
        record = None
        if connection := await connect_to_keeper(self._spec.state):
            async with connection:
                record = await connection.ask(frame(b"found", name.encode()))
        if record is None:
            record = await to_thread.run_sync(self._stored, name)
        if record is None and not await to_thread.run_sync(self._records().is_reliable):
            record = LOST_RESULT
        return None if record is None else _parse_result(record)

    async def forget(self, key: str) -> None:
        await to_thread.run_sync(self._records().drop, _name(key))

    async def begin(self, request: ExecRequest) -> None:
        """Like `run`, without waiting for the end; see `progress`.

        Raises:
            SandboxFailed: the program was not begun.
        """
        name = _name(request.key)
        async with await self._connect() as connection:
            message = self._message(name, request) + frame(b"peek", name.encode())
            if (await connection.exchange(message)).record is None:
                raise SandboxFailed("not run: the sandbox ended before the command began")

    async def attach(self, request: ExecRequest, streams: list[int]) -> KeeperConnection:
        """Start a program with this input and output; it ends when the connection is closed.

        Raises:
            SandboxFailed: the program was not started.
        """
        name = _name(request.key)
        connection = await self._connect()
        try:
            await connection.attach(name, self._message(name, request), streams)
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def progress(self, key: str) -> ExecutionProgress | None:
        """The output of a program so far; `None` if it was never started."""
        if connection := await connect_to_keeper(self._spec.state):
            async with connection:
                answer = await connection.exchange(frame(b"peek", _name(key).encode()))
            if answer.is_running and answer.record is not None:
                return ExecutionProgress(is_running=True, result=_parse_result(answer.record))
        ran = await self.find_result(key)
        return None if ran is None else ExecutionProgress(is_running=False, result=ran)

    async def cancel(self, key: str) -> ExecResult | None:
        """Kill a program and return its result."""
        if connection := await connect_to_keeper(self._spec.state):
            async with connection:
                await connection.cancel(_name(key))
        return await self.find_result(key)

    async def listener(self) -> socket.socket | None:
        """The socket where programs connect to the proxy; the caller closes it."""
        async with await self._connect() as connection:
            return await connection.listener()

    async def leave(self) -> None:
        """Disconnect. The keeper finishes its program and waits a while for a client to return."""
        if self._presence is not None:
            await self._presence.aclose()
            self._presence = None

    async def close(self) -> None:
        """End the sandbox and everything in it. Results of programs stay on disk."""
        with CancelScope(shield=True), anyio.move_on_after(_PARTING_SECONDS):
            async with self._lock:  # wait for a start in progress, to end it as well
                pass
            if connection := await connect_to_keeper(self._spec.state):
                async with connection:
                    await connection.ask(frame(b"close"))  # the keeper answers by disconnecting
        await self.leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _message(self, name: str, request: ExecRequest) -> bytes:
        message = frame(
            b"run",
            name.encode(),
            b"%d" % int(request.wall_seconds * 1000),
            b"%d" % request.max_bytes,
            os.fsencode(os.path.join(self._spec.workspace, request.cwd or ".")),
            pack(map(os.fsencode, request.argv)),
            pack(environment_pairs({**self._variables, **request.env})),
            request.stdin,
        )
        if len(message) > MAX_FRAME:
            raise SandboxFailed(f"not run: more than {MAX_FRAME} bytes of input")
        return message

    async def _connect(self) -> KeeperConnection:
        async with self._lock:
            await to_thread.run_sync(end_keeper_if_stale, self._stamp, self._spec.state)
            connection = await connect_to_keeper(self._spec.state)
            is_new = connection is None
            if connection is None:
                connection = await self._start_and_connect()
            if is_new or self._presence is None:
                await self.leave()
                self._presence = await self._wait_for_keeper()
                if self._spec.network and (listener := await self._presence.listener()):
                    self._on_listener(listener)
            return connection

    async def _start_and_connect(self) -> KeeperConnection:
        """Start a keeper and connect. A keeper that is ending may still hold the lock: retry."""
        with anyio.move_on_after(_WELCOME_SECONDS):
            while True:
                await to_thread.run_sync(self._start)
                with anyio.move_on_after(_RESTART_SECONDS):
                    return await self._wait_for_keeper()
        raise self._no_answer()

    def _start(self) -> None:
        # built again for each start: there may be new files to protect in the workspace
        check_private_paths(self._spec)
        launch = self._backend.launch(self._spec)
        start_keeper(self._spec, launch, linger_seconds=self._linger_seconds, stamp=self._stamp)

    async def _wait_for_keeper(self) -> KeeperConnection:
        """Wait until a keeper that another process started is listening."""
        with anyio.move_on_after(_WELCOME_SECONDS):
            while (connection := await connect_to_keeper(self._spec.state)) is None:  # noqa: ASYNC110 -- it is
                await anyio.sleep(0.02)  # another process that we wait for
            return connection
        raise self._no_answer()

    def _no_answer(self) -> SandboxFailed:
        return SandboxFailed(f"not run: the keeper of {self._spec.state} does not answer")

    def _stored(self, name: str) -> bytes | None:
        records = self._records()
        record = records.get(name)
        return LOST_RESULT if record is None and records.was_started(name) else record

    def _records(self) -> ExecutionRecords:
        return ExecutionRecords(str(self._spec.state))


def check_spec(spec: SandboxSpec) -> SandboxSpec:
    """The spec with absolute paths.

    Raises:
        SandboxFailed: programs could reach the keeper's own files, or private ones.
    """
    workspace, state = spec.workspace.resolve(), spec.state.absolute()
    hidden = tuple(workspace / path for path in spec.hidden)
    is_inside = state.resolve().is_relative_to(workspace)
    if is_inside and not any(state.is_relative_to(path) for path in hidden):
        raise SandboxFailed(f"not run: {state} is in the workspace, where programs could change it")
    absolute = replace(spec, workspace=workspace, state=state, hidden=hidden)
    check_private_paths(absolute)
    return absolute


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


_MAX_SERVICES = 4  # of one sandbox; each is a process tree that outlives a call
SERVICES = "services"


class SandboxServices:
    """The services of one session. Their state is on disk, so that a restarted harness finds them;
    without one, they run until their time limits."""

    def __init__(self, spec: SandboxSpec, backend: Backend) -> None:
        self._spec = replace(spec, network=False)
        self._backend = backend
        self._folder = spec.state / SERVICES

    async def start(self, name: str, request: ExecRequest) -> None:
        """Start a service. Starting it again under the same key has no effect.

        Raises:
            SandboxFailed: the service was not started.
        """
        await to_thread.run_sync(self._take_name, name, request.key)
        sandbox = self._sandbox(name)
        await sandbox.begin(request)
        await sandbox.leave()

    async def output(self, name: str) -> ExecutionProgress | None:
        """The output of a service so far; `None` if there is no such service."""
        key = self._key_of(name)
        return await self._sandbox(name).progress(key) if key is not None else None

    async def stop(self, name: str) -> ExecResult | None:
        """Kill a service and free its name; returns its result."""
        key = self._key_of(name)
        if key is None:
            return None
        sandbox = self._sandbox(name)
        ran = await sandbox.cancel(key)
        await sandbox.close()
        await to_thread.run_sync(shutil.rmtree, self._place(name))
        return ran

    async def close(self) -> None:
        for place in sorted(self._folder.glob("*/key")):
            await self.stop(bytes.fromhex(place.parent.name).decode())

    def _take_name(self, name: str, key: str) -> None:
        current_key = self._key_of(name)
        if current_key == key:
            return
        if current_key is not None:
            raise SandboxFailed(f"a service named {name!r} already exists: stop it first")
        if len(list(self._folder.glob("*/key"))) >= _MAX_SERVICES:
            raise SandboxFailed(
                f"at most {_MAX_SERVICES} services can run at a time: stop one first"
            )
        place = self._place(name)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        (place / "key.new").write_text(key, encoding="utf-8")
        (place / "key.new").replace(place / "key")  # written completely or not at all

    def _key_of(self, name: str) -> str | None:
        try:
            return (self._place(name) / "key").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def _place(self, name: str) -> Path:
        return self._folder / name.encode().hex()

    def _sandbox(self, name: str) -> KeeperSandbox:
        return KeeperSandbox(replace(self._spec, state=self._place(name)), self._backend)


def is_in_use(state: Path) -> bool:
    """Whether an earlier process may have left a keeper or services running in this folder."""
    return (state / SOCKET).exists() or (state / SERVICES).exists()
