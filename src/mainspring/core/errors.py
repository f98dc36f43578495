"""Every error that Mainspring raises deliberately.

MainspringError
├── InvalidInput            the request is invalid: a bad event, file or setting
│   ├── MalformedEvent      an event's JSON does not have the shape of its type
│   └── EventIdTaken        the client used this event id for another event
├── ServiceError            the service refused a request
│   ├── NotFound            no such object, or it belongs to another tenant
│   ├── AlreadyExists       the id or name is taken
│   │   └── PathTaken       another memory has this path
│   ├── StaleVersion        it has changed since it was read, or is not what was expected
│   │   ├── PreconditionFailed
│   │   │   └── HeartbeatRefused  another worker holds the job by now
│   │   └── MemoryChanged   its content is not what was expected
│   ├── Unauthenticated     no key, or an invalid one
│   ├── Forbidden           a valid key without permission for this
│   ├── RateLimited         too many requests; says when to retry
│   └── TooLarge
├── LogError                the log refused and wrote nothing
│   ├── SessionNotFound
│   ├── SessionExists
│   ├── SessionHasForks     deleting it would delete history that its forks need
│   ├── SessionGone         it was moved to another store and continues there
│   ├── ForeignSession      this installation did not write it, and nobody has adopted it
│   ├── ForeignRecord       the same of a record, such as a key or a deployment
│   ├── Conflict            the log has grown since the writer last read it
│   ├── Fenced              another writer has taken over the lease
│   ├── LeaseHeld           another worker holds the session
│   └── BlobNotFound
├── ToolEnvironmentError    the workspace or the sandbox refused and did nothing
│   ├── OutsideWorkspace    the session may not access this path
│   ├── FileChanged         the file has changed since it was read
│   ├── FileMissing
│   ├── FileRefused         too large, a device, or no permission to read or write
│   │   └── IsFolder
│   ├── NetworkRefused      the session may not reach this host, or it does not answer
│   ├── McpFailed           an MCP server cannot be reached, or does not keep to the protocol
│   └── SandboxFailed       no isolation, so nothing was run; the message says how to fix it
├── OutputMissing           a run ended without the output that was asked for
├── ProviderFailed          a model did not answer; `kind` says why, `retryable` whether to wait
└── StoreFailed             the database failed; `retryable` says whether waiting may help
    ├── StoreFull
    ├── StoreReadOnly
    ├── StoreCorrupt
    ├── StoreUnavailable    locked, unreachable or restarting
    └── StoreMismatch       not a Mainspring store, or written by a newer version
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mainspring import error_table
from mainspring.error_table import ErrorEntry


class MainspringError(Exception):
    """The base class of all expected errors. Each message explains itself."""

    fix: tuple[str, ...] = ()
    """How to fix it at the command line."""
    fix_in_python: tuple[str, ...] = ()
    """How to fix it in Python; a traceback shows these as notes."""
    entry: ErrorEntry | None = None
    """Its entry in the error table."""


class InvalidInput(MainspringError): ...


class MalformedEvent(InvalidInput): ...


class EventIdTaken(InvalidInput):
    def __init__(self, client_id: str) -> None:
        super().__init__(f"client event id {client_id} was already used for another event")
        self.client_id = client_id


class ServiceError(MainspringError): ...


class NotFound(ServiceError):
    def __init__(self, kind: str, id_: str) -> None:
        super().__init__(f"there is no {kind.replace('_', ' ')} {id_}")
        self.kind = kind


class AlreadyExists(ServiceError): ...


class PathTaken(AlreadyExists):
    def __init__(self, path: str, *, memory_id: str, taken: str) -> None:
        super().__init__(
            f"path: {path} conflicts with {taken}, the path of {memory_id};"
            " move or delete that memory first"
        )
        self.memory_id = memory_id
        self.taken = taken


class StaleVersion(ServiceError): ...


class PreconditionFailed(StaleVersion): ...


class HeartbeatRefused(PreconditionFailed):
    """Carries the current lease."""

    def __init__(
        self, work_id: str, *, state: str, last_heartbeat: str | None, ttl_seconds: int
    ) -> None:
        super().__init__(
            f"work {work_id}: this is not its last heartbeat; another worker may hold it"
        )
        self.state = state
        self.last_heartbeat = last_heartbeat
        self.ttl_seconds = ttl_seconds


class MemoryChanged(StaleVersion): ...


class Unauthenticated(ServiceError): ...


class Forbidden(ServiceError): ...


class RateLimited(ServiceError):
    def __init__(self, what: str, *, retry_after_seconds: float) -> None:
        super().__init__(what)
        self.retry_after_seconds = retry_after_seconds


class TooLarge(ServiceError): ...


class OutputMissing(MainspringError):
    def __init__(self, session_id: str, reason: str, detail: str | None) -> None:
        why = reason if detail is None else f"{reason}: {detail}"
        super().__init__(f"session {session_id} ended without an output ({why})")


class LogError(MainspringError): ...


class SessionNotFound(LogError):
    def __init__(self, session_id: str) -> None:
        entry = error_table.UNKNOWN_SESSION
        super().__init__(entry.message.format(session=session_id))
        entry.explain(self)
        self.session_id = session_id


class SessionExists(LogError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} already exists")
        self.session_id = session_id


class SessionGone(LogError):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} was moved to another store and continues there")


class ForeignSession(LogError):
    def __init__(self, session_id: str) -> None:
        entry = error_table.FOREIGN_SESSION
        super().__init__(entry.message.format(session=session_id))
        entry.explain(self, session=session_id)
        self.session_id = session_id


class ForeignRecord(LogError):
    def __init__(self, kind: str, id_: str) -> None:
        entry = error_table.FOREIGN_RECORD
        super().__init__(entry.message.format(kind=kind.replace("_", " "), id=id_))
        entry.explain(self)


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
            f"session {session_id} ends at event {actual}, not {expected}: read the new events and"
            " append again"
        )
        self.session_id = session_id
        self.expected = expected
        self.actual = actual


class Fenced(LogError):
    def __init__(self, session_id: str, *, epoch: int, current: int) -> None:
        super().__init__(
            f"lease {epoch} on session {session_id} is no longer valid: lease {current} replaced it"
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
        super().__init__(f"there is no blob {digest}")
        self.digest = digest


class ToolEnvironmentError(MainspringError): ...


class OutsideWorkspace(ToolEnvironmentError): ...


class FileChanged(ToolEnvironmentError): ...


class FileMissing(ToolEnvironmentError): ...


class FileRefused(ToolEnvironmentError): ...


class IsFolder(FileRefused): ...


class NetworkRefused(ToolEnvironmentError): ...


class McpFailed(ToolEnvironmentError):
    def __init__(
        self,
        why: str,
        *,
        code: int | None = None,
        is_in_doubt: bool = False,
        needs_auth: bool = False,
    ) -> None:
        super().__init__(why)
        self.code = code
        """The code of the server's error response."""
        self.is_in_doubt = is_in_doubt
        """The request was sent, and it is unknown whether it took effect."""
        self.needs_auth = needs_auth
        """There are no credentials that the server accepts."""


class SandboxFailed(ToolEnvironmentError): ...


ProviderFailure: TypeAlias = Literal[
    "overloaded",  # 529, 503
    "rate_limited",  # 429
    "timeout",
    "stalled",  # the stream went silent
    "connection",  # dropped, or no route to the host
    "refused",  # no server listens at the address
    "unresolved",  # the name of the host has no address
    "certificate",  # the server's certificate is not accepted
    "server",  # other 5xx
    "malformed",  # the response does not follow the API
    "unauthorized",  # 401: no key, or a wrong one
    "forbidden",  # 403: revoked, or not valid for this model
    "not_found",  # 404: no such model
    "billing",  # 402, or the account is out of credit
    "prompt_too_long",
    "media_too_large",
    "invalid_request",  # any other 4xx: a retry does not help
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

    @property
    def is_outage(self) -> bool:
        """Whether waiting for minutes may help."""
        return self.kind in _OUTAGE


_PROVIDER_ENTRIES: dict[ProviderFailure, ErrorEntry] = {
    "connection": error_table.PROVIDER_UNREACHABLE,
    "refused": error_table.PROVIDER_UNREACHABLE,
    "unresolved": error_table.PROVIDER_UNREACHABLE,
    "certificate": error_table.PROVIDER_UNREACHABLE,
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
_OUTAGE = frozenset[ProviderFailure](
    ("overloaded", "rate_limited", "timeout", "connection", "refused", "unresolved", "server")
)
_TRANSIENT = _OUTAGE | frozenset[ProviderFailure](("stalled", "malformed"))


class StoreFailed(MainspringError):
    """The database failed. The write happened either completely or not at all."""

    retryable = False


class StoreFull(StoreFailed):
    retryable = True


class StoreReadOnly(StoreFailed): ...


class StoreCorrupt(StoreFailed): ...


class StoreUnavailable(StoreFailed):
    retryable = True


class StoreMismatch(StoreFailed): ...
