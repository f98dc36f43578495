"""An HTTP call to a model: endpoint, body, limits, and the parts of its response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.model import Stalled

_MIB = 1024 * 1024  # bytes


class HttpLimits(Struct, frozen=True, kw_only=True):
    connect_seconds: float = 10
    stall_seconds: float = 45
    """Silence after which a stream yields `Stalled`."""
    abort_seconds: float = 90
    """Silence after which a stream is aborted."""
    whole_seconds: float = 600
    """The time limit for a response that is not streamed."""
    max_event_bytes: int = 64 * _MIB
    max_answer_bytes: int = 256 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A provider's URL, and the headers of every call to it."""

    provider: str
    url: str
    secret: str = field(default="", repr=False)
    """Redacted from error messages."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


def bearer_headers(key: str) -> Mapping[str, str]:
    """A local server may need no key."""
    return {"authorization": f"Bearer {key}"} if key else {}


class HttpCall(Struct, frozen=True, kw_only=True):
    endpoint: Endpoint
    body: bytes
    request_id: str
    stream: bool


class ResponseStarted(Struct, frozen=True):
    """The provider has accepted the request."""

    provider_request_id: str | None


class WholeResponse(Struct, frozen=True):
    """A response that is not a stream."""

    body: bytes


ResponsePart: TypeAlias = ResponseStarted | Stalled | WholeResponse | list[bytes]
"""A list is the data of one or more server-sent events."""
