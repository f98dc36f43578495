"""What children have reported, per session: everything that the store may and must hold."""

from dataclasses import dataclass, field

from tests.crash import wire
from tests.crash.children import Child
from tests.crash.report import Tally

from mainspring.core.envelope import GENESIS


@dataclass(slots=True)
class Expected:
    """An event that somebody tried to write."""

    body: str
    batch: tuple[str, ...] = ()
    """All ids that were to be written with it."""
    client_id: str | None = None
    epoch: int = 0
    """Of the lease it was written under; 0 where that is not known."""
    tried_at: int = 0
    is_refused: bool = False


@dataclass(slots=True)
class Client:
    """A client's event, possibly sent several times."""

    sent: wire.Submit
    candidates: set[str] = field(default_factory=set[str])
    """One id for each time that it was sent; at most one of them may come of it."""
    answers: set[str] = field(default_factory=set[str])
    """Ids that were acknowledged."""
    position: int = 0


@dataclass(slots=True)
class Grant:
    owner: str
    seconds: float
    acked_at: int
    until: int
    """It cannot have expired before, unless it was released."""
    instead_of: int | None
    """Epoch that it was given in spite of."""


@dataclass(slots=True)
class Story:
    """One session. What is only tried may be there; what is promised must be."""

    id: str
    parent: tuple[str, int] | None = None
    is_promised: bool = False
    is_deleting: bool = False
    is_deleted: bool = False
    events: dict[str, Expected] = field(default_factory=dict[str, Expected])
    clients: dict[str, Client] = field(default_factory=dict[str, Client])
    promised: dict[int, str] = field(default_factory=dict[int, str])
    """seq -> id of events acknowledged or read since the last check."""
    last_epoch: int = 0
    """Highest epoch under which an event was found to be written."""
    blobs: set[str] = field(default_factory=set[str])
    """Acknowledged since the last check."""
    grants: dict[int, Grant] = field(default_factory=dict[int, Grant])
    released: set[int] = field(default_factory=set[int])
    """Epochs whose holder wanted to let go."""
    twice: list[int] = field(default_factory=list[int])
    """Epochs that were given out more than once."""
    places: dict[str, int] = field(default_factory=dict[str, int])
    """Where each of its own events was found."""
    digests: list[bytes] = field(default_factory=list[bytes])
    """Hashes of the log as found: of the event before its own first, then of its own."""

    @property
    def base(self) -> int:
        return 0 if self.parent is None else self.parent[1]

    @property
    def checked(self) -> int:
        """Up to which seq the log was found to be right."""
        return self.base + max(0, len(self.digests) - 1)


class History:
    """Of one database, over the lives of many children."""

    def __init__(self, tally: Tally) -> None:
        self.stories: dict[str, Story] = {}
        self.touched: set[str] = set()
        self.found: dict[str, str] = {}
        """Every event's id -> the session whose own it is."""
        self.unanswered: dict[str, wire.Submit] = {}
        """Client ids whose last try nobody answered."""
        self._tally = tally

    def story(self, session_id: str) -> Story:
        self.touched.add(session_id)
        return self.stories.setdefault(session_id, Story(session_id))

    def hear(self, *children: Child) -> None:
        """Take in all that some children, who lived at the same time, have said."""
        opened = [
            {line.operation: line for line in child.lines if isinstance(line, wire.Tried)}
            for child in children
        ]
        for tries in opened:
            for tried in tries.values():
                self._tried(tried)
        for child, tries in zip(children, opened, strict=True):
            for line in child.lines:
                self._answered(line, tries)
            if child.was_killed:
                kinds = [str(tried.doing.__struct_config__.tag) for tried in tries.values()]
                self._tally.in_flight.update(kinds or ["nothing"])

    def _answered(self, line: wire.Line, tries: dict[int, wire.Tried]) -> None:
        match line:
            case wire.Acked():
                self._tally.acknowledged += 1
                self._acked(tries.pop(line.operation), line)
            case wire.Refused():
                self._tally.refused[line.error] += 1
                self._refused(tries.pop(line.operation).doing)
            case wire.Failed():
                self._tally.failed[line.error] += 1
            case wire.Dying(statement=statement):
                self._tally.statements[statement] += 1
            case wire.Tried() | wire.Saw() | wire.Stopping() | wire.Broke():
                pass

    def _tried(self, line: wire.Tried) -> None:
        story = self.story(line.doing.session_id)
        match line.doing:
            case wire.Create(first=first):
                story.events[first.id] = Expected(first.body)
            case wire.Fork(first=first, parent_id=parent_id, at=at):
                story.parent = (parent_id, at)
                story.events[first.id] = Expected(first.body)
            case wire.Append() as doing:
                _appending(story, doing, line.at)
            case wire.Submit() as sent:
                story.events[sent.event_id] = Expected(sent.body, client_id=sent.client_id)
                client = story.clients.setdefault(sent.client_id, Client(sent))
                client.candidates.add(sent.event_id)
                self.unanswered[sent.client_id] = sent
            case wire.Release(epoch=epoch):
                story.released.add(epoch)
            case wire.Delete():
                story.is_deleting = True
            case _:
                pass

    def _refused(self, doing: wire.Doing) -> None:
        story = self.story(doing.session_id)
        match doing:
            case wire.Create(first=first) | wire.Fork(first=first):
                story.events[first.id].is_refused = True
            case wire.Append(events=events):
                for sent in events:
                    story.events[sent.id].is_refused = True
            case wire.Submit(client_id=client_id, event_id=event_id):
                story.events[event_id].is_refused = True
                self.unanswered.pop(client_id, None)
            case wire.Delete():
                story.is_deleting = False
            case _:
                pass

    def _acked(self, tried: wire.Tried, acked: wire.Acked) -> None:
        story = self.story(tried.doing.session_id)
        match tried.doing:
            case wire.Create() | wire.Fork():
                story.is_promised = True
            case wire.Append() | wire.Fold() as doing:
                _wrote(story, doing, tried.at, acked)
            case wire.Hold() | wire.Renew() | wire.Release() as doing:
                _leased(story, doing, tried.at, acked)
            case wire.Follow():
                self.promise(story, *acked.seen)
            case wire.Submit(client_id=client_id):
                self._submitted(story.clients[client_id], acked)
            case wire.PutBlob(hash=digest):
                story.blobs.add(digest)
            case wire.Delete():
                story.is_deleted = True

    def promise(self, story: Story, *events: wire.SeenEvent) -> None:
        """Somebody has these events of a session's log, inherited or its own: they must stay."""
        for event in events:
            owner = story
            while owner.parent is not None and event.seq <= owner.base:
                owner = self.story(owner.parent[0])
            owner.promised[event.seq] = event.id

    def _submitted(self, client: Client, acked: wire.Acked) -> None:
        self.unanswered.pop(client.sent.client_id, None)
        client.answers.add(acked.event_id)
        client.position = acked.position


def _appending(story: Story, doing: wire.Append, at: int) -> None:
    batch = tuple(sent.id for sent in doing.events)
    for sent in doing.events:
        story.events[sent.id] = Expected(sent.body, batch=batch, epoch=doing.epoch, tried_at=at)


def _wrote(story: Story, doing: wire.Append | wire.Fold, at: int, acked: wire.Acked) -> None:
    if isinstance(doing, wire.Append):
        assert [seen.id for seen in acked.seen] == [sent.id for sent in doing.events]
    for seen in acked.seen:
        story.promised[seen.seq] = seen.id
        story.events[seen.id].epoch = doing.epoch
        story.events[seen.id].tried_at = at
    if acked.seen:  # an empty inbox writes nothing, and so renews nothing
        _renewed(story.grants[doing.epoch], at)


def _leased(
    story: Story, doing: wire.Hold | wire.Renew | wire.Release, at: int, acked: wire.Acked
) -> None:
    match doing:
        case wire.Hold(owner=owner, seconds=seconds, instead_of=instead_of):
            if acked.epoch in story.grants:
                story.twice.append(acked.epoch)
            grant = Grant(
                owner=owner, seconds=seconds, acked_at=acked.at, until=at, instead_of=instead_of
            )
            story.grants[acked.epoch] = grant
            _renewed(grant, at)
        case wire.Renew(epoch=epoch):
            _renewed(story.grants[epoch], at)
        case wire.Release():
            pass  # counts from when it was tried


def _renewed(grant: Grant, at: int) -> None:
    grant.until = max(grant.until, at + int(grant.seconds * 1e9))


def base_digest(stories: dict[str, Story], story: Story) -> bytes | None:
    """Hash that a session's own first event must stand on; `None` if its parent is not known."""
    if story.parent is None:
        return GENESIS
    owner, at = stories[story.parent[0]], story.parent[1]
    while owner.parent is not None and at <= owner.base:
        owner = stories[owner.parent[0]]
    index = at - owner.base
    return owner.digests[index] if index < len(owner.digests) else None
