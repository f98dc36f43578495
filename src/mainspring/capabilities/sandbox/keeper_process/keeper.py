"""The keeper: one process for each session's sandbox. It runs programs one at a time and each only
once, enforces their limits, and keeps their results, whether or not the harness is still alive.

Like the agent it imports only fast modules. `keeper_connection.py` starts it.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import select
import time

from mainspring.capabilities.sandbox.keeper_process.client_connection import ClientConnection
from mainspring.capabilities.sandbox.keeper_process.execution import (
    LOST_RESULT,
    Execution,
    ProgramRequest,
)
from mainspring.capabilities.sandbox.keeper_process.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.keeper_process.keeper_guard import KeeperGuard
from mainspring.capabilities.sandbox.keeper_process.launched_sandbox import (
    LaunchedSandbox,
    launch_sandbox,
    memory_file,
)
from mainspring.capabilities.sandbox.resource_monitor import Quota, ResourceMonitor
from mainspring.capabilities.sandbox.wire import HELD, READY, SOCKET, unpack, unpack_map

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LOCK = "lock"
_LAUNCH_SECONDS = 15.0  # for the client that started the keeper to connect
# Between checks of a running program's limits; double lets 20 ms of excess pass.
_WATCH_SECONDS = 0.01
_ATTACHED_WATCH_SECONDS = 0.25
"""An attached server is idle most of the time, so it is checked less often."""
_STOP_SECONDS = 3.0  # for a killed program to end; then the whole sandbox is closed
_END_SECONDS = 20.0
"""A busy machine needs more than usual; until then, the guard of protected paths goes on."""


class KeeperConfig:
    """Read once, at startup. `keeper_connection.py` writes it."""

    def __init__(self, packed: bytes) -> None:
        values = unpack_map(packed)
        self.state = os.fsdecode(values["state"])
        self.workspace = os.fsdecode(values["workspace"])
        self.hidden = {os.fsdecode(path) for path in unpack(values["hidden"])}
        self.uid = int(values["uid"]) if values["uid"] else None
        self.argv = [os.fsdecode(word) for word in unpack(values["argv"])]
        pairs = [os.fsdecode(pair).split("=", 1) for pair in unpack(values["env"])]
        self.env = {name: value for name, value in pairs}
        self.files = unpack(values["files"])
        self.sources = [os.fsdecode(path) for path in unpack(values["sources"])]
        self.forbidden = {tuple(map(int, item.split())) for item in unpack(values["forbidden"])}
        self.distrusted = [os.fsdecode(path) for path in unpack(values["distrusted"])]
        self.rlimits = values["rlimits"]
        self.has_own_pids = values["has_own_pids"] == b"1"
        self.output_bytes = int(values["output_bytes"])
        self.linger_seconds = int(values["linger_ms"]) / 1000
        self.stamp = values["stamp"]
        self.guard = os.fsdecode(values["guard"])
        self.end_guard = [os.fsdecode(word) for word in unpack(values["end_guard"])]
        limits = (int(values[f"{name}"]) for name in ("memory_bytes", "processes", "disk_bytes"))
        self.quota = Quota(*limits)


class Keeper:
    """Lives as long as its sandbox. A client that needs another sandbox starts another keeper."""

    def __init__(self, config: KeeperConfig, launched: LaunchedSandbox) -> None:
        self._config = config
        self._launched = launched
        self._records = ExecutionRecords(config.state)
        self._records.tidy()
        self._poll = select.poll()
        self._clients: dict[int, ClientConnection] = {}
        self._queue: list[ProgramRequest] = []
        self._running: Execution | None = None
        self._owner: ClientConnection | None = None
        """The client that holds the streams of the running program; the program ends when it
        disconnects."""
        self._guard = KeeperGuard(config.guard, config.end_guard)
        self._monitor: ResourceMonitor | None = None
        self._next_watch = 0.0
        # the client that started the keeper needs time to connect, however short the linger time is
        self._alone_since: float | None = time.monotonic() + _LAUNCH_SECONDS
        self._is_closed = False
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._listener.bind(SOCKET)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._poll.register(self._listener.fileno(), select.POLLIN)
        self._poll.register(launched.control.fileno(), select.POLLIN)

    def run(self) -> None:
        """Run until the keeper is closed, or has had no client for the linger time."""
        while not self._is_closed:
            for descriptor, events in self._poll.poll(self._timeout_ms()):
                self._dispatch(descriptor, events)
            self._watch_program()
            while self._queue and not self._running and not self._is_closed:
                self._begin(self._queue.pop(0))
            if self._is_abandoned():
                break
        self._end_sandbox()
        self._guard.release()
        if not self._clients:
            self._guard.end_if_abandoned()
        for client in list(self._clients.values()):
            client.flush_and_close()

    def _timeout_ms(self) -> int:
        now = time.monotonic()
        moments: list[float] = []
        if self._running:
            moments = [self._running.deadline]
            moments += [] if self._running.stopped else [self._next_watch]
        elif self._alone_since is not None:
            moments = [self._alone_since + self._config.linger_seconds]
        return max(0, int((min(moments) - now) * 1000) + 1) if moments else -1

    def _is_abandoned(self) -> bool:
        if self._running or self._alone_since is None:
            return False
        return time.monotonic() >= self._alone_since + self._config.linger_seconds

    def _dispatch(self, descriptor: int, events: int) -> None:
        if descriptor == self._listener.fileno():
            self._accept()
        elif client := self._clients.get(descriptor):
            if events & select.POLLOUT:
                client.flush()
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                for message in client.read():
                    self._answer(client, message)
            self._settle(client)
        elif descriptor == self._launched.control.fileno():
            self._read_agent()
        elif self._running and descriptor in self._running.streams:
            self._read_program(self._running, descriptor)

    def _accept(self) -> None:
        # the function that `socket.accept` calls, missing in the type stubs
        accept: Callable[[], tuple[int, object]] = getattr(self._listener, "_accept")  # noqa: B009
        accepted, _ = accept()
        client = ClientConnection(accepted)
        if not client.is_same_user:
            client.close()
            return
        self._clients[accepted] = client
        self._poll.register(accepted, select.POLLIN)
        self._alone_since = None

    def _settle(self, connection: ClientConnection) -> None:
        """Poll the connection for reading or writing as needed; remove it if the client is gone."""
        if not connection.is_gone:
            events = select.POLLIN | (select.POLLOUT if connection.has_more else 0)
            self._poll.modify(connection.descriptor, events)
        elif self._clients.pop(connection.descriptor, None):
            self._poll.unregister(connection.descriptor)
            connection.close()
            if self._running and self._owner is connection:
                self._stop(self._running, "cancelled")
            self._note_alone()

    def _note_alone(self) -> None:
        if not self._clients:
            self._alone_since = time.monotonic()
            if not self._running and not self._queue:
                self._guard.end_if_abandoned()

    def _answer(self, connection: ClientConnection, message: list[bytes]) -> None:
        kind, *fields = message
        if kind == b"run":
            request = ProgramRequest(fields)
            request.streams = connection.take_streams()
            self._take(connection, request)
        elif kind == b"found":
            self._send_or_wait(connection, fields[0].decode("ascii"))
        elif kind == b"peek":
            self._send_progress(connection, fields[0].decode("ascii"))
        elif kind == b"cancel":
            self._cancel(fields[0].decode("ascii"))
        elif kind == b"listener":
            connection.send_descriptor(self._launched.listener)
        elif kind == b"close":
            self._is_closed = True
            if self._running:
                self._running.stopped = self._running.stopped or "cancelled"

    def _send_or_wait(self, connection: ClientConnection, name: str) -> None:
        connection.waits_for = name
        if self._is_under_way(name):
            return
        record = self._records.get(name)
        if record is None and self._records.was_started(name):
            record = LOST_RESULT
        connection.send(b"none") if record is None else connection.send(b"ran", record)

    def _send_progress(self, connection: ClientConnection, name: str) -> None:
        """Send the program's progress, without waiting for its end."""
        if self._running and self._running.name == name:
            connection.send(b"running", self._running.record(-1))
        elif self._is_under_way(name):
            connection.send(b"running", LOST_RESULT)
        else:
            self._send_or_wait(connection, name)

    def _take(self, connection: ClientConnection, request: ProgramRequest) -> None:
        name = request.name
        connection.waits_for = name
        connection.wants_output = True
        if self._is_under_way(name):
            return request.close_streams()
        if self._records.was_started(name):
            connection.send(b"ran", self._records.get(name) or LOST_RESULT)
        elif request.is_sound:
            if request.streams:
                self._owner = connection
            self._guard.hold()
            self._queue.append(request)
            return
        else:
            connection.send(b"failed", b"a NUL byte in a command, or no command at all")
        request.close_streams()

    def _is_under_way(self, name: str) -> bool:
        is_running = self._running is not None and self._running.name == name
        return is_running or any(request.name == name for request in self._queue)

    def _cancel(self, name: str) -> None:
        if self._running and self._running.name == name:
            self._stop(self._running, "cancelled")
        elif any(request.name == name for request in self._queue):
            self._queue = [request for request in self._queue if request.name != name]
            self._send(name, b"failed", b"cancelled before it began")

    def _send(self, name: str, *fields: bytes) -> None:
        for client in list(self._clients.values()):
            if client.waits_for == name:
                client.send(*fields)
                self._settle(client)

    def _send_output(self, name: str, piece: bytes) -> None:
        for client in list(self._clients.values()):
            if piece and client.waits_for == name and client.wants_output:
                client.send_output(piece)
                self._settle(client)

    def _begin(self, request: ProgramRequest) -> None:
        try:
            since_ns = self._records.mark_started(request.name)
        except OSError as error:
            self._send(request.name, b"failed", f"{error.filename}: {error.strerror}".encode())
            return
        execution = Execution(request, self._config.rlimits)
        request.streams = request.streams or [
            memory_file(request.stdin),
            os.dup(execution.outer[0]),
        ]
        stdin, out = request.streams
        try:
            self._launched.start(execution.request, (stdin, out, execution.outer[1]))
        except OSError:
            self._is_closed = True
        request.close_streams()
        execution.close_child_ends()
        for stream in execution.streams:
            self._poll.register(stream, select.POLLIN)
        self._running = execution
        self._next_watch = time.monotonic() + _WATCH_SECONDS
        self._monitor = ResourceMonitor(
            self._launched.pid,
            self._config.quota,
            self._config.workspace,
            hidden=self._config.hidden,
            since_ns=since_ns,
        )

    def _read_program(self, execution: Execution, stream: int) -> None:
        piece = execution.read_output(stream)
        if stream not in execution.streams:
            self._poll.unregister(stream)
        self._send_output(execution.name, piece)
        if execution.size > self._config.output_bytes:
            self._stop(execution, "output")

    def _watch_program(self) -> None:
        execution, now = self._running, time.monotonic()
        if execution is None:
            return
        if execution.give_up_at is not None and now >= execution.give_up_at:
            self._is_closed = True
        elif now >= execution.deadline:
            self._stop(execution, "time")
        elif now >= self._next_watch and self._monitor and execution.stopped is None:
            breach = self._monitor.breach()
            if breach:
                self._stop(execution, breach)
            pause = _ATTACHED_WATCH_SECONDS if execution.is_attached else _WATCH_SECONDS
            self._next_watch = time.monotonic() + pause

    def _stop(self, execution: Execution, why: str) -> None:
        if execution.stopped is None:
            execution.stopped = why
            execution.give_up_at = execution.deadline = time.monotonic() + _STOP_SECONDS
            self._launched.stop_program()

    def _finish(self, status: int) -> None:
        execution = self._running
        if execution is None:
            return
        for stream in execution.streams:
            self._poll.unregister(stream)
        output, record = execution.finish(), execution.record(status)
        self._running = self._monitor = None
        if not self._queue:
            self._guard.release()
        try:
            self._records.put(execution.name, record)
        except OSError as error:  # a full disk: current waiters still get it
            os.write(2, f"{execution.name} was not stored: {error}\n".encode())
        self._send_output(execution.name, output)
        self._send(execution.name, b"ran", record)
        self._note_alone()

    def _read_agent(self) -> bool:
        """Whether the agent still lives."""
        lines = self._launched.read_messages()
        if lines is None:
            self._is_closed = True
        for line in lines or ():
            word, _, status = line.partition(b" ")
            if word == b"ended":
                self._finish(int(status))
            elif word == b"unguarded":
                self._abandon()
        return lines is not None

    def _abandon(self) -> None:
        """The agent did not start the program, because the sandbox's mounts have changed. Clients
        retry and get another sandbox."""
        execution = self._running
        if execution is not None:
            execution.finish()
            self._records.drop(execution.name)
        self._running = self._monitor = None
        self._is_closed = True

    def _end_sandbox(self) -> None:
        """End the sandbox, once the agent has killed the program that is still running: the death
        of the launcher ends it too, but later than we would know. If the agent does not answer,
        the program's outcome is unknown."""
        deadline = time.monotonic() + _END_SECONDS
        if self._running:
            self._launched.stop_program()
        control = select.poll()
        control.register(self._launched.control.fileno(), select.POLLIN)
        while self._running and (left := deadline - time.monotonic()) > 0:
            if control.poll(int(left * 1000) + 1) and not self._read_agent():
                break
        self._launched.end()
        if self._running:
            self._running.stopped = self._running.stopped or "lost"
            self._finish(-1 if self._running.stopped == "lost" else 137)


def main() -> None:
    _close_inherited_descriptors()
    config = KeeperConfig(_read_all(0))
    os.chdir(config.state)
    lock = os.open(_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(1, HELD)
        return
    if os.fork():  # our starter waits for the parent only, not for the child
        os._exit(0)
    sandbox = launch_sandbox(config)
    if isinstance(sandbox, str):
        os.write(1, sandbox.encode())
        return
    if os.path.lexists(SOCKET):
        os.unlink(SOCKET)  # of a dead keeper: we hold the lock
    ExecutionRecords(config.state).note_stamp(config.stamp)
    keeper = Keeper(config, sandbox)
    os.write(1, READY)
    _detach_streams()
    keeper.run()


def _close_inherited_descriptors() -> None:
    """Close descriptors that the harness leaked to this process."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue


def _read_all(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(descriptor, 65536):
        pieces.append(piece)
    return b"".join(pieces)


def _detach_streams() -> None:
    """Close our standard output: its end tells the harness that startup is complete."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    os.close(null)
