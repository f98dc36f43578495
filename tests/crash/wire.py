"""What parent and children tell each other: orders one way, reports the other. Lines of JSON."""

from typing import TypeAlias

import msgspec
from msgspec import Struct


class Submit(Struct, frozen=True, kw_only=True, tag_field="doing", tag="submit"):
    session_id: str
    client_id: str
    event_id: str
    text: str
    body: str


class Work(Struct, frozen=True, kw_only=True, tag_field="order", tag="work"):
    """Do random things, seeded, with several tasks at once."""

    url: str
    opener: str
    seed: int
    tag: str
    """Part of every id that this child makes, so that no two children make the same."""
    sessions: tuple[str, ...] = ()
    retries: tuple[Submit, ...] = ()
    """Sent by earlier children, to be sent again: the answer may have been lost."""
    tasks: int = 1
    operations: int = 40
    kill_at: int = 0
    """Die before the so-manyth SQL statement; 0 is never."""


class Watch(Struct, frozen=True, kw_only=True, tag_field="order", tag="watch"):
    """Follow a session from a cursor and report each event, until killed."""

    url: str
    opener: str
    session_id: str
    after: int


class Sleep(Struct, frozen=True, kw_only=True, tag_field="order", tag="sleep"):
    """Make a session, lease it shortly, append, stop (SIGSTOP) and, continued, append again."""

    url: str
    opener: str
    tag: str
    seconds: float


class Take(Struct, frozen=True, kw_only=True, tag_field="order", tag="take"):
    """Wait until the session's lease can be taken, take it, append."""

    url: str
    opener: str
    tag: str
    session_id: str


Order: TypeAlias = Work | Watch | Sleep | Take


class Sent(Struct, frozen=True):
    id: str
    body: str


class SeenEvent(Struct, frozen=True):
    seq: int
    id: str


class Create(Struct, frozen=True, kw_only=True, tag_field="doing", tag="create"):
    session_id: str
    first: Sent


class Fork(Struct, frozen=True, kw_only=True, tag_field="doing", tag="fork"):
    session_id: str
    first: Sent
    parent_id: str
    at: int


class Append(Struct, frozen=True, kw_only=True, tag_field="doing", tag="append"):
    session_id: str
    epoch: int
    events: tuple[Sent, ...]


class Fold(Struct, frozen=True, kw_only=True, tag_field="doing", tag="fold"):
    session_id: str
    epoch: int


class PutBlob(Struct, frozen=True, kw_only=True, tag_field="doing", tag="put_blob"):
    session_id: str
    hash: str


class Hold(Struct, frozen=True, kw_only=True, tag_field="doing", tag="hold"):
    session_id: str
    owner: str
    seconds: float
    instead_of: int | None = None
    """Epoch of the lease that it takes before it has run out."""


class Renew(Struct, frozen=True, kw_only=True, tag_field="doing", tag="renew"):
    session_id: str
    epoch: int


class Release(Struct, frozen=True, kw_only=True, tag_field="doing", tag="release"):
    session_id: str
    epoch: int


class Follow(Struct, frozen=True, kw_only=True, tag_field="doing", tag="follow"):
    session_id: str
    after: int


class Delete(Struct, frozen=True, kw_only=True, tag_field="doing", tag="delete"):
    session_id: str


Doing: TypeAlias = (
    Create | Fork | Append | Submit | Fold | PutBlob | Hold | Renew | Release | Follow | Delete
)


class Tried(Struct, frozen=True, kw_only=True, tag_field="line", tag="try"):
    operation: int
    at: int
    """Monotonic nanoseconds: one clock for all processes of a machine."""
    doing: Doing


class Acked(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="ack"):
    operation: int
    at: int
    seen: tuple[SeenEvent, ...] = ()
    """Events that it returned."""
    epoch: int = 0
    """Of a lease that it returned."""
    event_id: str = ""
    position: int = 0
    """Of an inbox item that it returned."""


class Refused(Struct, frozen=True, kw_only=True, tag_field="line", tag="refused"):
    """The log said no: nothing of it may ever be found."""

    operation: int
    error: str


class Failed(Struct, frozen=True, kw_only=True, tag_field="line", tag="failed"):
    """The database failed: wholly there or not at all, as after a crash."""

    operation: int
    error: str


class Saw(Struct, frozen=True, kw_only=True, tag_field="line", tag="saw"):
    """A follower's next event."""

    seq: int
    id: str


class Stopping(Struct, frozen=True, kw_only=True, tag_field="line", tag="stopping"):
    session_id: str


class Dying(Struct, frozen=True, kw_only=True, tag_field="line", tag="dying"):
    """Killed before this SQL statement."""

    statement: str


class Broke(Struct, frozen=True, kw_only=True, tag_field="line", tag="broke"):
    """An exception that nobody expects."""

    trace: str


Line: TypeAlias = Tried | Acked | Refused | Failed | Saw | Stopping | Dying | Broke

LINES: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
ORDERS: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_ENCODER = msgspec.json.Encoder()


def encoded(message: Line | Order) -> bytes:
    return _ENCODER.encode(message) + b"\n"
