"""A process of its own for each session's sandbox: runs programs one after the other, each once,
holds them to their limits, and keeps what came of them, whether or not the harness still lives.

Like the agent it imports only what is quick to import. `start.py` starts it.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import select
import time

from mainspring.capabilities.sandbox.client_connection import ClientConnection
from mainspring.capabilities.sandbox.execution import LOST_RESULT, Execution, ProgramRequest
from mainspring.capabilities.sandbox.execution_records import ExecutionRecords
from mainspring.capabilities.sandbox.launched_sandbox import (
    LaunchedSandbox,
    launch_sandbox,
    memory_file,
)
from mainspring.capabilities.sandbox.resource_monitor import Quota, ResourceMonitor
from mainspring.capabilities.sandbox.wire import HELD, READY, SOCKET, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_LOCK = "lock"
_LAUNCH_SECONDS = 15.0
_WATCH_SECONDS = 0.01
_ATTACHED_WATCH_SECONDS = 0.25
"""A server does nothing for most of its time; looking after it is not to cost more than that."""
_STOP_SECONDS = 3.0


class KeeperConfig:
    """What the keeper is told once, when it is started. `start.py` writes it."""

    def __init__(self, packed: bytes) -> None:
        fields = unpack(packed)
        told = dict(zip(fields[::2], fields[1::2], strict=True))
        self.state = os.fsdecode(told[b"state"])
        self.workspace = os.fsdecode(told[b"workspace"])
        self.hidden = {os.fsdecode(path) for path in unpack(told[b"hidden"])}
        self.uid = int(told[b"uid"]) if told[b"uid"] else None
        self.argv = [os.fsdecode(word) for word in unpack(told[b"argv"])]
        pairs = [os.fsdecode(pair).split("=", 1) for pair in unpack(told[b"env"])]
        self.env = {name: value for name, value in pairs}
        self.files = unpack(told[b"files"])
        self.sources = [os.fsdecode(path) for path in unpack(told[b"sources"])]
        self.forbidden = {tuple(map(int, item.split())) for item in unpack(told[b"forbidden"])}
        self.distrusted = [os.fsdecode(path) for path in unpack(told[b"distrusted"])]
        self.rlimits = told[b"rlimits"]
        self.has_own_pids = told[b"has_own_pids"] == b"1"
        self.output_bytes = int(told[b"output_bytes"])
        self.linger_seconds = int(told[b"linger_ms"]) / 1000
        self.stamp = told[b"stamp"]
        self.quota = Quota(
            int(told[b"memory_bytes"]), int(told[b"processes"]), int(told[b"disk_bytes"])
        )


class Keeper:
    """Lives as long as the cell that it was given; a client that needs another starts another."""

    def __init__(self, config: KeeperConfig, launched: LaunchedSandbox) -> None:
        self._config = config
        self._launched = launched
        self._shelf = ExecutionRecords(config.state)
        self._shelf.tidy()
        self._poll = select.poll()
        self._visitors: dict[int, ClientConnection] = {}
        self._queue: list[ProgramRequest] = []
        self._running: Execution | None = None
        self._owner: ClientConnection | None = None
        """Who has the streams of what runs: it ends with them."""
        self._sentry: ResourceMonitor | None = None
        self._next_watch = 0.0
        # whoever has started it takes a moment to knock, however short it is to linger
        self._alone_since: float | None = time.monotonic() + _LAUNCH_SECONDS
        self._is_closed = False
        self._door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._door.bind(SOCKET)
        self._door.listen(64)
        self._door.setblocking(False)
        self._poll.register(self._door.fileno(), select.POLLIN)
        self._poll.register(launched.control.fileno(), select.POLLIN)

    def run(self) -> None:
        """Until it is closed, or has been alone for long enough."""
        while not self._is_closed:
            for descriptor, events in self._poll.poll(self._patience_ms()):
                self._attend(descriptor, events)
            self._look_after_program()
            self._begin_next()
            if self._is_forsaken():
                break
        self._end_cell()
        for visitor in list(self._visitors.values()):
            visitor.flush_and_close()

    def _patience_ms(self) -> int:
        now = time.monotonic()
        moments: list[float] = []
        if self._running:
            moments = [self._running.deadline]
            moments += [] if self._running.stopped else [self._next_watch]
        elif self._alone_since is not None:
            moments = [self._alone_since + self._config.linger_seconds]
        return max(0, int((min(moments) - now) * 1000) + 1) if moments else -1

    def _is_forsaken(self) -> bool:
        if self._running or self._alone_since is None:
            return False
        return time.monotonic() >= self._alone_since + self._config.linger_seconds

    def _attend(self, descriptor: int, events: int) -> None:
        if descriptor == self._door.fileno():
            self._welcome()
        elif visitor := self._visitors.get(descriptor):
            self._serve(visitor, events)
        elif descriptor == self._launched.control.fileno():
            self._hear_agent()
        elif self._running and descriptor in self._running.streams:
            self._hear_program(self._running, descriptor)

    def _welcome(self) -> None:
        # what `socket.accept` is made of, and the stubs do not know
        accept: Callable[[], tuple[int, object]] = getattr(self._door, "_accept")  # noqa: B009
        accepted, _ = accept()
        visitor = ClientConnection(accepted)
        if not visitor.is_same_user:
            visitor.close()
            return
        self._visitors[accepted] = visitor
        self._poll.register(accepted, select.POLLIN)
        self._alone_since = None

    def _serve(self, client_connection: ClientConnection, events: int) -> None:
        if events & select.POLLOUT:
            client_connection.flush()
        if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            for message in client_connection.read():
                self._answer(client_connection, message)
        self._settle(client_connection)

    def _settle(self, client_connection: ClientConnection) -> None:
        """Watch for what it waits for; take leave if it is gone."""
        if not client_connection.is_gone:
            wanted = select.POLLIN | (select.POLLOUT if client_connection.has_more else 0)
            self._poll.modify(client_connection.descriptor, wanted)
        elif self._visitors.pop(client_connection.descriptor, None):
            self._poll.unregister(client_connection.descriptor)
            client_connection.close()
            if self._running and self._owner is client_connection:
                self._stop(self._running, "cancelled")
            if not self._visitors:
                self._alone_since = time.monotonic()

    def _answer(self, client_connection: ClientConnection, message: list[bytes]) -> None:
        kind, *fields = message
        if kind == b"run":
            program_request = ProgramRequest(fields)
            program_request.streams = client_connection.take_streams()
            self._take(client_connection, program_request)
        elif kind == b"found":
            self._tell_or_join(client_connection, fields[0].decode("ascii"))
        elif kind == b"peek":
            self._show(client_connection, fields[0].decode("ascii"))
        elif kind == b"cancel":
            self._cancel(fields[0].decode("ascii"))
        elif kind == b"listener":
            client_connection.send_descriptor(self._launched.listener)
        elif kind == b"close":
            self._is_closed = True
            if self._running:
                self._running.stopped = self._running.stopped or "cancelled"

    def _tell_or_join(self, client_connection: ClientConnection, name: str) -> None:
        client_connection.waits_for = name
        if self._is_under_way(name):
            return
        record = self._shelf.get(name)
        if record is None and self._shelf.was_started(name):
            record = LOST_RESULT
        client_connection.send(b"none") if record is None else client_connection.send(
            b"ran", record
        )

    def _show(self, client_connection: ClientConnection, name: str) -> None:
        """How far it is; without waiting for it."""
        if self._running and self._running.name == name:
            client_connection.send(b"running", self._running.record(-1))
        elif self._is_under_way(name):
            client_connection.send(b"running", LOST_RESULT)
        else:
            self._tell_or_join(client_connection, name)

    def _take(self, client_connection: ClientConnection, program_request: ProgramRequest) -> None:
        name = program_request.name
        client_connection.waits_for = name
        client_connection.wants_output = True
        if self._is_under_way(name):
            return program_request.close_streams()
        if self._shelf.was_started(name):
            client_connection.send(b"ran", self._shelf.get(name) or LOST_RESULT)
        elif program_request.is_sound:
            if program_request.streams:
                self._owner = client_connection
            self._queue.append(program_request)
            return
        else:
            client_connection.send(b"failed", b"a NUL byte in a command, or no command at all")
        program_request.close_streams()

    def _is_under_way(self, name: str) -> bool:
        is_running = self._running is not None and self._running.name == name
        return is_running or any(wanted.name == name for wanted in self._queue)

    def _cancel(self, name: str) -> None:
        if self._running and self._running.name == name:
            self._stop(self._running, "cancelled")
        elif any(wanted.name == name for wanted in self._queue):
            self._queue = [wanted for wanted in self._queue if wanted.name != name]
            self._tell(name, b"failed", b"cancelled before it began")

    def _tell(self, name: str, *fields: bytes) -> None:
        for visitor in list(self._visitors.values()):
            if visitor.waits_for == name:
                visitor.send(*fields)
                self._settle(visitor)

    def _let_hear(self, name: str, piece: bytes) -> None:
        for visitor in list(self._visitors.values()):
            if piece and visitor.waits_for == name and visitor.wants_output:
                visitor.send_output(piece)
                self._settle(visitor)

    def _begin_next(self) -> None:
        while self._queue and not self._running and not self._is_closed:
            self._begin(self._queue.pop(0))

    def _begin(self, program_request: ProgramRequest) -> None:
        try:
            since_ns = self._shelf.mark_started(program_request.name)
        except OSError as error:
            self._tell(
                program_request.name, b"failed", f"{error.filename}: {error.strerror}".encode()
            )
            return
        execution = Execution(program_request, self._config.rlimits)
        program_request.streams = program_request.streams or [
            memory_file(program_request.stdin),
            os.dup(execution.outer[0]),
        ]
        stdin, out = program_request.streams
        try:
            self._launched.start(execution.request, (stdin, out, execution.outer[1]))
        except OSError:
            self._is_closed = True
        program_request.close_streams()
        execution.close_child_ends()
        for stream in execution.streams:
            self._poll.register(stream, select.POLLIN)
        self._running = execution
        self._next_watch = time.monotonic() + _WATCH_SECONDS
        self._sentry = ResourceMonitor(
            self._launched.pid,
            self._config.quota,
            self._config.workspace,
            hidden=self._config.hidden,
            since_ns=since_ns,
        )

    def _hear_program(self, execution: Execution, stream: int) -> None:
        piece = execution.read_output(stream)
        if stream not in execution.streams:
            self._poll.unregister(stream)
        self._let_hear(execution.name, piece)
        if execution.size > self._config.output_bytes:
            self._stop(execution, "output")

    def _look_after_program(self) -> None:
        execution, now = self._running, time.monotonic()
        if execution is None:
            return
        if execution.give_up_at is not None and now >= execution.give_up_at:
            self._is_closed = True
        elif now >= execution.deadline:
            self._stop(execution, "time")
        elif now >= self._next_watch and self._sentry and execution.stopped is None:
            breach = self._sentry.breach()
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
        rest, record = execution.finish(), execution.record(status)
        self._running = self._sentry = None
        try:
            self._shelf.put(execution.name, record)
        except OSError as error:  # a full disk: whoever waits is told, whoever comes later not
            os.write(2, f"{execution.name} was not kept: {error}\n".encode())
        self._let_hear(execution.name, rest)
        self._tell(execution.name, b"ran", record)
        if not self._visitors:
            self._alone_since = time.monotonic()

    def _hear_agent(self) -> None:
        lines = self._launched.read_messages()
        if lines is None:
            self._is_closed = True
        for line in lines or ():
            word, _, status = line.partition(b" ")
            if word == b"ended":
                self._finish(int(status))
            elif word == b"unguarded":
                self._forgo()

    def _forgo(self) -> None:
        """The agent has not started it, because the sandbox is not what it was: another is made for
        whoever asks again, and clients do."""
        execution = self._running
        if execution is not None:
            execution.finish()
            self._shelf.drop(execution.name)
        self._running = self._sentry = None
        self._is_closed = True

    def _end_cell(self) -> None:
        """If a program is running in it, nobody knows how far it came."""
        self._launched.end()
        if self._running:
            self._running.stopped = self._running.stopped or "lost"
            self._finish(-1 if self._running.stopped == "lost" else 137)


def main() -> None:
    _close_inherited_descriptors()
    orders = KeeperConfig(_read_all(0))
    os.chdir(orders.state)
    lock = os.open(_LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(1, HELD)
        return
    if os.fork():  # whoever started us waits for this one, and need not for the other
        os._exit(0)
    cell = launch_sandbox(orders)
    if isinstance(cell, str):
        os.write(1, cell.encode())
        return
    if os.path.lexists(SOCKET):
        os.unlink(SOCKET)  # of a keeper that is dead: the lock is ours
    ExecutionRecords(orders.state).note_stamp(orders.stamp)
    keeper = Keeper(orders, cell)
    os.write(1, READY)
    _detach_streams()
    keeper.run()


def _close_inherited_descriptors() -> None:
    """The harness may have had files open that it did not mean to give away."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:  # what the listing was read from
                continue


def _read_all(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(descriptor, 65536):
        pieces.append(piece)
    return b"".join(pieces)


def _detach_streams() -> None:
    """Who started us is told by the end of the stream that there is no more to come."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nothing, stream)
    os.close(nothing)
