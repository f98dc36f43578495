"""Errors of the API: a status, a type and a message; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.core import errors

_STATUS_BY_ERROR: tuple[tuple[type[errors.MainspringError], int], ...] = (
    (errors.NotFound, 404),
    (errors.SessionNotFound, 404),
    (errors.BlobNotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.PreconditionFailed, 412),
    (errors.StaleVersion, 409),
    (errors.SessionHasForks, 409),
    (errors.SessionExists, 409),
    (errors.SessionGone, 409),
    (errors.ForeignSession, 409),
    (errors.ForeignRecord, 409),
    (errors.Conflict, 409),
    (errors.LeaseHeld, 409),
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.RateLimited, 429),
    (errors.TooLarge, 413),
    (errors.InvalidInput, 400),
    (errors.ToolEnvironmentError, 400),
    (errors.StoreUnavailable, 503),
    (errors.StoreFull, 503),
)
_TYPE_BY_STATUS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    412: "precondition_failed_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}
_TYPE_BY_ERROR: tuple[tuple[type[errors.MainspringError], str], ...] = (
    (errors.MemoryChanged, "memory_precondition_failed_error"),
    (errors.PathTaken, "memory_path_conflict_error"),
)
"""Errors with their own type, different from the type of their status."""


def http_status(error: errors.MainspringError) -> int:
    return next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), 500)


def error_type_of_status(status: int) -> str:
    return _TYPE_BY_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_type_of(error: errors.MainspringError) -> str:
    own = next((name for kind, name in _TYPE_BY_ERROR if isinstance(error, kind)), None)
    return own or error_type_of_status(http_status(error))


def error_details(error: errors.MainspringError) -> Mapping[str, object]:
    """Details that are sent beside the message."""
    if isinstance(error, errors.HeartbeatRefused):
        lease = {
            "state": error.state,
            "last_heartbeat": error.last_heartbeat,
            "ttl_seconds": error.ttl_seconds,
            "lease_extended": False,
        }
        code = "heartbeat_precondition_failed"
        return {"details": {"error_code": code, "current_state": lease}}
    if isinstance(error, errors.PathTaken):
        return {"conflicting_memory_id": error.memory_id, "conflicting_path": error.taken}
    return {}


def error_body(
    status: int,
    message: str,
    request_id: str,
    *,
    type_: str | None = None,
    details: Mapping[str, object] | None = None,
) -> bytes:
    """Messages may quote secrets of the request, so they are redacted and truncated."""
    body = {
        "type": type_ or error_type_of_status(status),
        "message": _redacted(message),
        **(details or {}),
    }
    return json.dumps({"type": "error", "error": body, "request_id": request_id}).encode()


_REDACT = Scrubber({})
_MAX_MESSAGE_CHARS = 1000  # of an error; it may quote a request


def _redacted(message: str) -> str:
    return _REDACT(message.encode(errors="replace")).decode()[:_MAX_MESSAGE_CHARS]
