"""The store against the history: every guarantee of the log, session by session."""

from dataclasses import dataclass
from itertools import pairwise

from tests.crash.history import Client, Expected, History, Story, base_digest
from tests.crash.report import Kind, Violation

from mainspring.core.envelope import GENESIS, Event
from mainspring.core.errors import BlobNotFound, SessionNotFound
from mainspring.log.blobs import digest_of
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem, SessionRow
from mainspring.log.verify import verify

_CLOCK_SLACK = 5_000_000
"""Nanoseconds: databases keep lease times in milliseconds or so."""
_MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class Look:
    """One session as the store shows it, all at one moment."""

    session: SessionRow
    pending: list[InboxItem]
    events: list[Event]
    """From the last one that was checked on."""


class Check:
    def __init__(self, log: SessionLog, history: History) -> None:
        self.violations: list[Violation] = []
        self._log = log
        self._history = history

    async def touched(self) -> None:
        """Check what children have touched since the last time."""
        touched, self._history.touched = self._history.touched, set()
        for session_id in [known for known in self._history.stories if known in touched]:
            await self._session(self._history.stories[session_id])

    async def everything(self, tag: str) -> None:
        """Check all sessions from their beginnings; none whose id has the tag may be unknown."""
        self._history.touched = set(self._history.stories)
        await self.touched()
        for session in await self._log.sessions(limit=_MANY):
            story = self._history.stories.get(session.id)
            if story is None:
                if tag in session.id:
                    self._found("phantom", session.id, "nobody has created this session")
                continue
            for problem in (await verify(self._log, session.id)).problems:
                self._found("broken_chain", session.id, f"event {problem.seq}: {problem.what}")

    def _found(self, kind: Kind, session_id: str, what: str) -> None:
        self.violations.append(Violation(kind=kind, session_id=session_id, what=what))

    async def _session(self, story: Story) -> None:
        look = await self._look(story)
        if look is None:
            if story.is_promised and not story.is_deleting:
                self._found("lost", story.id, "the session is gone")
            story.is_deleted = story.is_deleting
            return
        if story.is_deleted:
            self._found("phantom", story.id, "the session was deleted and is there again")
        story.is_promised = True
        self._events(story, look)
        self._inbox(story, look.pending)
        self._leases(story, look.session)
        await self._blobs(story)

    async def _look(self, story: Story) -> Look | None:
        """Read until nothing moved meanwhile: a database server may still finish a dead child's
        last statement."""
        after = max(story.base, story.checked - 1)
        try:
            while True:
                session = await self._log.session(story.id)
                pending = await self._log.store.pending(story.id)
                events = await self._log.read(story.id, after=after)
                if (await self._log.session(story.id)).head == session.head:
                    return Look(session, pending, events)
        except SessionNotFound:
            return None

    def _events(self, story: Story, look: Look) -> None:
        new = self._after_checked(story, look.events)
        for event in new:
            self._chained(story, event)
            self._expected(story, event)
        if look.session.head != (story.checked, story.digests[-1]):
            self._found("broken_chain", story.id, "its head is not its last event")
        tried = [story.events[event.id] for event in new if event.id in story.events]
        for batch in {expected.batch for expected in tried if expected.batch}:
            self._whole(story, batch)
        for seq, event_id in story.promised.items():
            if story.places.get(event_id) != seq:
                self._found("lost", story.id, f"event {event_id} is not at {seq}")
        story.promised.clear()

    def _after_checked(self, story: Story, events: list[Event]) -> list[Event]:
        """The events not seen before; what they stand on must be what it was."""
        if not story.digests:
            base = base_digest(self._history.stories, story)
            if base is None:
                self._found("lost", story.id, f"its parent has no event {story.base}")
            story.digests.append(base or GENESIS)
        if story.checked == story.base:
            return events
        if [event.digest() for event in events[:1]] != story.digests[-1:]:
            self._found("lost", story.id, f"event {story.checked} is not what it was")
        return events[1:]

    def _chained(self, story: Story, event: Event) -> None:
        if event.seq != story.checked + 1:
            self._found("broken_chain", story.id, f"{event.seq} follows {story.checked}")
        if event.prev != story.digests[-1]:
            self._found("broken_chain", story.id, f"{event.seq} does not stand on its predecessor")
        story.digests.append(event.digest())

    def _expected(self, story: Story, event: Event) -> None:
        if event.id in self._history.found:
            other = self._history.found[event.id]
            self._found("duplicate", story.id, f"event {event.id} is in {other} already")
        self._history.found[event.id] = story.id
        story.places[event.id] = event.seq
        expected = story.events.get(event.id)
        if expected is None or expected.is_refused:
            why = "was refused" if expected else "was never tried"
            return self._found("phantom", story.id, f"event {event.id} at {event.seq} {why}")
        if expected.body.encode() != event.body:
            self._found("lost", story.id, f"event {event.id} says something else")
        if expected.epoch:
            self._epoch(story, expected, event.seq)

    def _epoch(self, story: Story, expected: Expected, seq: int) -> None:
        if expected.epoch < story.last_epoch:
            what = f"event {seq} of epoch {expected.epoch} comes after epoch {story.last_epoch}"
            self._found("fenced_append", story.id, what)
        story.last_epoch = max(story.last_epoch, expected.epoch)
        for epoch, grant in story.grants.items():
            if epoch > expected.epoch and grant.acked_at < expected.tried_at:
                what = f"event {seq} of epoch {expected.epoch} was begun under epoch {epoch}"
                self._found("fenced_append", story.id, what)

    def _whole(self, story: Story, batch: tuple[str, ...]) -> None:
        places = [story.places.get(item, 0) for item in batch]
        if places != list(range(places[0], places[0] + len(places))):
            self._found("torn_batch", story.id, f"the events of one append are at {places}")

    def _inbox(self, story: Story, pending: list[InboxItem]) -> None:
        for item in pending:
            client = story.clients.get(item.client_id)
            if client is None:
                self._found("phantom", story.id, f"nobody has sent {item.client_id}")
            elif item.body != client.sent.body:
                self._found("lost", story.id, f"inbox item {item.client_id} says something else")
            else:
                client.position = item.position
        waiting = {item.event_id for item in pending}
        for client in story.clients.values():
            self._client(story, client, waiting)
        self._order(story, pending)

    def _client(self, story: Story, client: Client, waiting: set[str]) -> None:
        name = client.sent.client_id
        folded = [candidate for candidate in client.candidates if candidate in story.places]
        kept = folded + [candidate for candidate in client.candidates if candidate in waiting]
        if len(kept) > 1 or len(client.answers) > 1:
            self._found("duplicate", story.id, f"{name} has become {kept or client.answers}")
        elif client.answers and set(kept) != client.answers:
            self._found("inbox", story.id, f"{name} was taken as {client.answers}, found {kept}")

    def _order(self, story: Story, pending: list[InboxItem]) -> None:
        """What came first is folded first, and nothing is folded before what came earlier."""
        ranks: list[tuple[int, int]] = []
        for client in story.clients.values():
            places = [story.places[c] for c in client.candidates if c in story.places]
            if places and client.position:
                ranks.append((client.position, places[0]))
        ranks.sort()
        ranks += [(item.position, _MANY + item.position) for item in pending]
        for (first, place), (second, next_place) in pairwise(ranks):
            if first >= second or place >= next_place:
                what = f"item {first} is at {place} and item {second} at {next_place}"
                self._found("inbox", story.id, what)

    def _leases(self, story: Story, session: SessionRow) -> None:
        for epoch in story.twice:
            self._found("double_lease", story.id, f"epoch {epoch} was given out twice")
        if session.epoch < max(story.grants, default=0):
            self._found("double_lease", story.id, f"its epoch went back to {session.epoch}")
        for epoch, grant in story.grants.items():
            after = story.grants.get(epoch + 1)
            if after is None or epoch in story.released or after.instead_of == epoch:
                continue
            if after.acked_at + _CLOCK_SLACK < grant.until:
                early = (grant.until - after.acked_at) / 1e9
                what = (
                    f"epoch {epoch + 1} was given to {after.owner} {early:.3f} s before the lease"
                    f" of {grant.owner} for {grant.seconds:.3f} s had run out"
                )
                self._found("double_lease", story.id, what)

    async def _blobs(self, story: Story) -> None:
        if not story.blobs:
            return
        kept = await self._log.store.blobs(story.id)
        for digest in story.blobs:
            try:
                is_whole = digest_of(await self._log.blob(digest)) == digest
            except BlobNotFound:
                is_whole = False
            if not is_whole or digest not in kept:
                self._found("blob", story.id, f"blob {digest} is gone or changed")
        story.blobs.clear()
