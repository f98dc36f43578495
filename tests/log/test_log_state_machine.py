"""Random stories, told to the log and to a model of a few dictionaries: they must always agree."""

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.log.sample_sessions import asks, says
from tests.senders import TESTER

from mainspring.core.envelope import Event, message_text
from mainspring.core.errors import (
    BlobNotFound,
    Fenced,
    InvalidInput,
    LeaseHeld,
    SessionHasForks,
    SessionNotFound,
)
from mainspring.core.ids import new_id
from mainspring.log.postgres import open_postgres
from mainspring.log.search import search
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store
from mainspring.log.verify import verify
from mainspring.log.writer import Writer

T = TypeVar("T")

WORDS = ("tide", "moor", "fern", "quay")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
picks = st.integers(0, 1000)
owners = st.sampled_from(["ada", "bob"])


@dataclass(frozen=True)
class AppendedEvent:
    """An event as the model knows it."""

    id: str
    owner: str
    text: str


@dataclass
class Session:
    id: str
    events: list[AppendedEvent]
    parent: str | None = None
    """Whose own the last inherited event is."""
    holder: str | None = None
    writer: Writer | None = None
    stale: list[Writer] = field(default_factory=list[Writer])
    clients: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    pending: list[AppendedEvent] = field(default_factory=list[AppendedEvent])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])


Reopen = Callable[[int], AbstractAsyncContextManager[Store]]
"""From the number of crashes so far to a store that has what was on disk at the last."""


class LogMachine(RuleBasedStateMachine):
    def __init__(self, reopen: Reopen) -> None:
        super().__init__()
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        self._reopen = reopen
        self._crashes = 0
        self._name = new_id("story").encode()
        self.sessions: dict[str, Session] = {}
        self.gone: list[str] = []
        self.last: Session | None = None
        self._open()

    def _open(self) -> None:
        opening = self._portal.wrap_async_context_manager(self._reopen(self._crashes))
        self.log = SessionLog(self._stack.enter_context(opening))

    def teardown(self) -> None:
        try:
            for session in self.sessions.values():
                self.agree(session)
            for session_id in self.gone:
                with pytest.raises(SessionNotFound):
                    self.do(lambda session_id=session_id: self.log.read(session_id))
        finally:
            self._stack.close()

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        async def done() -> T:
            return await work()

        return self._portal.call(done)

    def pick(self, pick: int) -> Session:
        self.last = list(self.sessions.values())[pick % len(self.sessions)]
        return self.last

    @rule()
    def create(self) -> None:
        row = self.do(self.log.create)
        [first] = self.do(lambda: self.log.read(row.id))
        self.last = self.sessions[row.id] = Session(row.id, [AppendedEvent(first.id, row.id, "")])

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, at=picks)
    def fork(self, pick: int, at: int) -> None:
        parent = self.pick(pick)
        at = at % len(parent.events) + 1
        row = self.do(lambda: self.log.fork(parent.id, at=at))
        [first] = self.do(lambda: self.log.read(row.id, after=at))
        inherited = parent.events[:at]
        events = [*inherited, AppendedEvent(first.id, row.id, "")]
        self.last = self.sessions[row.id] = Session(row.id, events, inherited[-1].owner)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks)
    def delete(self, pick: int) -> None:
        session = self.pick(pick)
        if any(other.parent == session.id for other in self.sessions.values()):
            with pytest.raises(SessionHasForks):
                self.do(lambda: self.log.delete(session.id))
            return
        self.do(lambda: self.log.delete(session.id))
        self.last = None
        del self.sessions[session.id]
        self.gone.append(session.id)
        kept = {digest for other in self.sessions.values() for digest in other.blobs}
        for digest in session.blobs.keys() - kept:
            with pytest.raises(BlobNotFound):
                self.do(lambda digest=digest: self.log.blob(digest))

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, owner=owners)
    def hold(self, pick: int, owner: str) -> None:
        session = self.pick(pick)
        seen = None
        if session.holder is not None:
            with pytest.raises(LeaseHeld) as held:
                self.do(lambda: self.log.hold(session.id, owner=owner, seconds=1000))
            assert held.value.owner == session.holder
            if session.holder != owner:
                return
            seen = (held.value.owner, held.value.epoch)
        writer = self.do(
            lambda: self.log.hold(session.id, owner=owner, seconds=1000, instead_of=seen)
        )
        session.stale += [session.writer] if session.writer else []
        session.writer, session.holder = writer, owner

    @precondition(lambda self: self.sessions)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        session = self.pick(pick)
        if session.writer is not None:
            self.do(session.writer.release)
            session.stale.append(session.writer)
            session.writer = session.holder = None

    @precondition(lambda self: self.sessions)
    @rule(pick=picks)
    def write_with_a_stale_lease(self, pick: int) -> None:
        for writer in self.pick(pick).stale[-2:]:
            with pytest.raises(Fenced):
                self.do(lambda writer=writer: writer.append(says("late")))
            with pytest.raises(Fenced):
                self.do(writer.renew)

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, batch=st.lists(texts, min_size=1, max_size=4))
    def append(self, pick: int, batch: list[str]) -> None:
        session = self.pick(pick)
        writer = session.writer
        if writer is not None:
            events = self.do(lambda: writer.append(*map(says, batch)))
            session.events += [
                AppendedEvent(event.id, session.id, text)
                for event, text in zip(events, batch, strict=True)
            ]

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, client=st.sampled_from("abcde"), text=texts)
    def submit(self, pick: int, client: str, text: str) -> None:
        session = self.pick(pick)
        event_id, sent = session.clients.get(client, ("", text))
        if sent != text:
            with pytest.raises(InvalidInput):
                self.do(
                    lambda: self.log.submit(session.id, asks(text), client_id=client, sender=TESTER)
                )
            return
        item = self.do(
            lambda: self.log.submit(session.id, asks(text), client_id=client, sender=TESTER)
        )
        if client in session.clients:
            assert item.event_id == event_id
        else:
            session.clients[client] = (item.event_id, text)
            session.pending.append(AppendedEvent(item.event_id, session.id, text))

    @precondition(lambda self: self.sessions)
    @rule(pick=picks)
    def fold(self, pick: int) -> None:
        session = self.pick(pick)
        if session.writer is not None:
            events = self.do(session.writer.fold_inbox)
            assert [event.id for event in events] == [said.id for said in session.pending]
            session.events += session.pending
            session.pending = []

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, content=st.sampled_from([b"one", b"two" * 5000]))
    def put_blob(self, pick: int, content: bytes) -> None:
        session = self.pick(pick)
        content += self._name  # other stories in the same database have blobs too
        kept = self.do(lambda: self.log.put_blob(session.id, content, media_type="text/plain"))
        session.blobs[kept.hash] = content

    @precondition(lambda self: self.sessions)
    @rule(pick=picks, word=st.sampled_from(WORDS))
    def search(self, pick: int, word: str) -> None:
        session = self.pick(pick)
        hits = self.do(lambda: search(self.log, word, session_id=session.id, limit=10_000))
        assert {(hit.session_id, hit.seq) for hit in hits} == {
            (said.owner, seq)
            for seq, said in enumerate(session.events, 1)
            if word in said.text.split()
        }

    @rule()
    def crash(self) -> None:
        """The process is gone: what it held in memory too, but not its leases."""
        self._crashes += 1
        self._open()
        for session in self.sessions.values():
            session.writer, session.stale = None, []

    @invariant()
    def last_agrees(self) -> None:
        if self.last is not None and self.last.id in self.sessions:
            self.agree(self.last)

    def agree(self, session: Session) -> None:
        events = self.do(lambda: self.log.read(session.id))
        assert list(map(as_appended, events)) == session.events
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        report = self.do(lambda: verify(self.log, session.id))
        assert report.ok, report
        row = self.do(lambda: self.log.session(session.id))
        assert (row.head.seq, row.parent_id) == (len(session.events), session.parent)
        assert row.owner == session.holder
        pending = self.do(lambda: self.log.store.pending(session.id))
        assert [item.event_id for item in pending] == [said.id for said in session.pending]
        for digest, content in session.blobs.items():
            assert self.do(lambda digest=digest: self.log.blob(digest)) == content
        assert self.do(lambda: self.log.store.blobs(session.id)) == sorted(session.blobs)


def as_appended(event: Event) -> AppendedEvent:
    return AppendedEvent(event.id, event.session_id, message_text(event.payload))


def play(reopen: Callable[[], Reopen], *, stories: int, steps: int) -> None:
    run_state_machine_as_test(
        cast(
            "type[LogMachine]", lambda: LogMachine(reopen())
        ),  # any function that makes one will do
        settings=settings(
            max_examples=stories,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.parametrize("stories", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_sqlite_agrees_with_the_model(tmp_path: Path, stories: int):
    def story() -> Reopen:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))

        def reopen(crashes: int) -> AbstractAsyncContextManager[Store]:
            """A copy of the files as they are, while the old process has them open."""
            path = folder / f"{crashes}.db"
            for suffix in ("", "-wal") if crashes else ():
                shutil.copy(folder / f"{crashes - 1}.db{suffix}", f"{path}{suffix}")
            return open_sqlite(path)

        return reopen

    play(story, stories=stories, steps=40)


def test_postgres_agrees_with_the_model(postgres_url: str):
    play(lambda: lambda _: open_postgres(postgres_url, max_connections=2), stories=5, steps=25)
