"""A request before the door: what there is to go by, and what the doorkeeper makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mainspring.core.errors import MainspringError
from mainspring.service.access.principal import Principal

_FORWARDED = "x-forwarded-for"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knock:
    headers: Mapping[str, str]
    """By their names in lower case; what was sent several times is joined by commas."""
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    """The ids that stand in the path: `session_id` and the like."""
    address: str = ""
    """Of the client."""
    is_inside: bool = False
    """It was let in before and has stayed, as who reads a stream does: no other request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    who: Principal
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """For the answer, whatever it will be."""
    refusal: MainspringError | None = None
    """Why it may not come in after all, though we know who it is."""


def joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """One value a name, as HTTP has it. Two keys in two headers of one name are then no key. What
    is not UTF-8 is replaced, so that it can be written down."""
    found: dict[str, str] = {}
    for name, sent in headers:
        low = name.lower()
        value = sent.encode(errors="surrogateescape").decode(errors="replace")
        found[low] = f"{found[low]},{value}" if low in found else value
    return found


def client_address(peer: str, headers: Mapping[str, str], proxies: frozenset[str]) -> str:
    """Whom a proxy speaks for, if it is one of ours; others may write there what they like."""
    if peer not in proxies:
        return peer
    for hop in reversed(headers.get(_FORWARDED, "").split(",")):
        if (address := hop.strip()) and address not in proxies:
            return address
    return peer
