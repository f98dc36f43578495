"""Errors that the server returns to requests."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.capabilities.mcp.protocol.messages import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN_VERSIONS,
    UNSUPPORTED_VERSION,
    Era,
)
from mainspring.core.errors import MainspringError

RESOURCE_NOT_FOUND = -32002
"""Used before 2026-07-28; since then, such a request has invalid parameters."""
_BUSY = -32000  # JSON-RPC 2.0: -32000 to -32099 are the server's own
_FORBIDDEN = -32001  # likewise


class RequestRefused(MainspringError):
    """A request that is answered with an error of the protocol."""

    def __init__(self, why: str, *, code: int, data: Mapping[str, object] | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.data = data


def invalid(why: str) -> RequestRefused:
    return RequestRefused(why, code=INVALID_PARAMS)


def no_method(method: str) -> RequestRefused:
    return RequestRefused(f"there is no method {method!r:.200}", code=METHOD_NOT_FOUND)


def no_resource(uri: str, era: Era) -> RequestRefused:
    code = RESOURCE_NOT_FOUND if era == "legacy" else INVALID_PARAMS
    return RequestRefused(f"there is no resource {uri!r:.500}", code=code, data={"uri": uri})


def missing_capability(*names: str) -> RequestRefused:
    capabilities: dict[str, object] = {name: dict[str, object]() for name in names}
    return RequestRefused(
        f"this needs a client with the capability {', '.join(names)}",
        code=MISSING_CAPABILITY,
        data={"requiredCapabilities": capabilities},
    )


def unsupported_version(version: str) -> RequestRefused:
    return RequestRefused(
        f"the version {version!r:.100} is not supported",
        code=UNSUPPORTED_VERSION,
        data={"supported": list(MODERN_VERSIONS), "requested": version},
    )


def busy(why: str) -> RequestRefused:
    return RequestRefused(why, code=_BUSY)


def forbidden(why: str) -> RequestRefused:
    return RequestRefused(why, code=_FORBIDDEN)


def malformed(why: str) -> RequestRefused:
    return RequestRefused(why, code=INVALID_REQUEST)


def header_mismatch(why: str) -> RequestRefused:
    return RequestRefused(why, code=HEADER_MISMATCH)


def internal_error() -> RequestRefused:
    """An error without details, which are only in the server's log."""
    return RequestRefused("an internal error; the server's log has it", code=INTERNAL_ERROR)
