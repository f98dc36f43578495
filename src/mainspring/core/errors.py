"""Every error that Mainspring raises on purpose.

MainspringError
├── InvalidInput            what was asked for cannot be: bad event, bad file, bad setting
│   ├── MalformedEvent      an event's JSON does not have the shape of its type
│   └── EventIdTaken        a client's id for an event is that of another one
├── ServiceError            the service refused a request
│   ├── NotFound            there is no such thing, or it is another tenant's
│   ├── AlreadyThere        an id or a name that is taken
│   │   └── PathTaken       a memory's, by that of another
│   ├── Stale               it has changed since it was read, or is not what was expected
│   │   ├── PreconditionFailed
│   │   │   └── HeartbeatRefused  the work is another's by now
│   │   └── MemoryChanged   its content is not the one that was expected
│   ├── Unauthenticated     no key, or one that does not hold
│   ├── Forbidden           a key that holds, but not for this
│   ├── RateLimited         too much at once; says when to come back
│   └── TooLarge
├── LogError                the log refused, and wrote nothing
│   ├── SessionNotFound
│   ├── SessionExists
│   ├── SessionHasForks     deleting it would take the history of others
│   ├── SessionGone         it was moved to another store and goes on there
│   ├── Conflict            the log has grown since the writer last looked
│   ├── Fenced              the writer's lease was taken over
│   ├── LeaseHeld           another worker has the session
│   └── BlobNotFound
├── HandsError              the workspace or the sandbox refused, and did nothing
│   ├── OutsideWorkspace    a path that the session may not touch
│   ├── FileChanged         it is not what it was when it was read
│   ├── FileMissing
│   ├── FileRefused         too large, a device, no permission: nothing to be read or written
│   │   └── IsFolder
│   ├── NetworkRefused      a host that the session may not reach, or that does not answer
│   └── SandboxFailed       no isolation, so nothing was run; it says what to do about it
├── ProviderFailed          a model did not answer; `kind` says why, `retryable` if it may yet
└── StoreFailed             the database did; `retryable` says whether waiting can help
    ├── StoreFull
    ├── StoreReadOnly
    ├── StoreCorrupt
    ├── StoreUnavailable    locked, unreachable or restarting
    └── StoreMismatch       not ours, or written by a newer Mainspring
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring.core import error_table
from mainspring.core.error_table import ErrorEntry


class MainspringError(Exception):
    """The root: everything below it is expected and carries its own explanation."""

    fix: tuple[str, ...] = ()
    """What to do about it at the command line."""
    fix_in_python: tuple[str, ...] = ()
    """What to do about it in Python; a traceback shows it as notes."""
    entry: ErrorEntry | None = None
    """Where it stands in the table."""


class InvalidInput(MainspringError):
    pass


class MalformedEvent(InvalidInput):
    pass


class EventIdTaken(InvalidInput):
    def __init__(self, client_id: str) -> None:
        super().__init__(f"client event id {client_id} was used for another event")
        self.client_id = client_id


class ServiceError(MainspringError):
    pass


class NotFound(ServiceError):
    def __init__(self, kind: str, id_: str) -> None:
        super().__init__(f"there is no {kind.replace('_', ' ')} {id_}")
        self.kind = kind


class AlreadyExists(ServiceError):
    pass


class PathTaken(AlreadyExists):
    def __init__(self, path: str, *, memory_id: str, taken: str) -> None:
        super().__init__(
            f"path: {path} cannot be beside {taken}, the path of {memory_id};"
            " move or delete that one first"
        )
        self.memory_id = memory_id
        self.taken = taken


class StaleVersion(ServiceError):
    pass


class PreconditionFailed(StaleVersion):
    pass


class HeartbeatRefused(PreconditionFailed):
    """With the lease as it is."""

    def __init__(
        self, work_id: str, *, state: str, last_heartbeat: str | None, ttl_seconds: int
    ) -> None:
        super().__init__(f"work {work_id}: that is not its last heartbeat; another may hold it")
        self.state = state
        self.last_heartbeat = last_heartbeat
        self.ttl_seconds = ttl_seconds


class MemoryChanged(StaleVersion):
    pass


class Unauthenticated(ServiceError):
    pass


class Forbidden(ServiceError):
    pass


class RateLimited(ServiceError):
    def __init__(self, what: str, *, retry_after_seconds: float) -> None:
        super().__init__(what)
        self.retry_after_seconds = retry_after_seconds


class TooLarge(ServiceError):
    pass


class LogError(MainspringError):
    pass


class SessionNotFound(LogError):
    def __init__(self, session_id: str) -> None:
        entry = error_table.UNKNOWN_SESSION
        super().__init__(entry.message.format(session=session_id))
        entry.explain(self)
        self.session_id = session_id


class SessionExists(LogError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} exists already")
        self.session_id = session_id


class SessionGone(LogError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} was moved, and goes on where it was moved to")


class SessionHasForks(LogError):
    def __init__(self, session_id: str, forks: tuple[str, ...]) -> None:
        entry = error_table.SESSION_HAS_FORKS
        super().__init__(entry.message.format(session=session_id, forks=", ".join(forks)))
        entry.explain(self)
        self.session_id = session_id
        self.forks = forks


class Conflict(LogError):
    def __init__(self, session_id: str, *, expected: int, actual: int) -> None:
        super().__init__(
            f"session {session_id} ends at {actual}, not at {expected}: read on, then append again"
        )
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class Fenced(LogError):
    def __init__(self, session_id: str, *, epoch: int, current: int) -> None:
        super().__init__(
            f"lease {epoch} on session {session_id} is void: lease {current} has replaced it"
        )
        self.session_id = session_id
        self.epoch = epoch
        self.current = current


class LeaseHeld(LogError):
    def __init__(self, session_id: str, *, owner: str, epoch: int, seconds: float) -> None:
        entry = error_table.SESSION_HELD
        super().__init__(entry.message.format(session=session_id, owner=owner, seconds=seconds))
        entry.explain(self)
        self.session_id = session_id
        self.owner = owner
        self.epoch = epoch
        self.seconds = seconds


class BlobNotFound(LogError):
    def __init__(self, digest: str) -> None:
        super().__init__(f"no blob {digest}")
        self.digest = digest


class ToolEnvironmentError(MainspringError):
    pass


class OutsideWorkspace(ToolEnvironmentError):
    pass


class FileChanged(ToolEnvironmentError):
    pass


class FileMissing(ToolEnvironmentError):
    pass


class FileRefused(ToolEnvironmentError):
    pass


class IsFolder(FileRefused):
    pass


class NetworkRefused(ToolEnvironmentError):
    pass


class SandboxFailed(ToolEnvironmentError):
    pass


ProviderFailure: TypeAlias = Literal[
    "overloaded",  # 529, 503
    "rate_limited",  # 429
    "timeout",
    "stalled",  # the stream went silent
    "connection",
    "server",  # other 5xx
    "malformed",  # the answer is not what the API promises
    "unauthorized",  # 401: no key, or a wrong one
    "forbidden",  # 403: revoked, or not for this model
    "not_found",  # 404: no such model
    "billing",  # 402, or the account is out of credit
    "prompt_too_long",
    "media_too_large",
    "invalid_request",  # any other 4xx: asking again will not help
    "exhausted",  # a script or a recording has no more replies
]


class ProviderFailed(MainspringError):
    def __init__(
        self,
        provider: str,
        kind: ProviderFailure,
        what: str,
        *,
        retry_after_seconds: float | None = None,
    ) -> None:
        entry = _PROVIDER_ENTRIES.get(kind, error_table.PROVIDER_BUSY)
        super().__init__(entry.message.format(provider=provider, what=what))
        entry.explain(self)
        self.provider = provider
        self.kind: ProviderFailure = kind
        self.retry_after_seconds = retry_after_seconds

    @property
    def retryable(self) -> bool:
        """Whether the same provider may answer the same request later."""
        return self.kind in _TRANSIENT


_PROVIDER_ENTRIES: dict[ProviderFailure, ErrorEntry] = {
    "connection": error_table.PROVIDER_UNREACHABLE,
    "timeout": error_table.PROVIDER_UNREACHABLE,
    "unauthorized": error_table.KEY_REFUSED,
    "forbidden": error_table.KEY_REFUSED,
    "not_found": error_table.MODEL_REFUSED,
    "billing": error_table.NO_CREDIT,
    "prompt_too_long": error_table.PROMPT_TOO_LONG,
    "media_too_large": error_table.REQUEST_REFUSED,
    "invalid_request": error_table.REQUEST_REFUSED,
    "exhausted": error_table.SCRIPT_ENDED,
}
_TRANSIENT = frozenset[ProviderFailure](
    ("overloaded", "rate_limited", "timeout", "stalled", "connection", "server", "malformed")
)


class StoreFailed(MainspringError):
    """The database failed. What was being written is either wholly there or not at all."""

    retryable = False


class StoreFull(StoreFailed):
    retryable = True


class StoreReadOnly(StoreFailed):
    pass


class StoreCorrupt(StoreFailed):
    pass


class StoreUnavailable(StoreFailed):
    retryable = True


class StoreMismatch(StoreFailed):
    pass
