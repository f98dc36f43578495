"""Who sent an event, and where a session comes from. Recorded at the boundary where it enters,
never inferred later.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import MalformedEvent

SenderKind: TypeAlias = Literal["person", "agent", "worker", "system"]
OriginType: TypeAlias = Literal[
    "user",
    "api",
    "schedule",
    "trigger",
    "workflow",
    "gateway",
    "import",
    "eval",
    "grader",
    "dream",
    "campaign",
    "command",
]
"""`command`: a command that runs an agent of Mainspring's own, such as `environment setup`."""


class Sender(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: SenderKind
    """A worker is a client's own machine that runs calls; the system is Mainspring itself."""
    id: str
    """The id of the key, agent, work item, environment or deployment; `cli:<user>` for a user."""
    on_behalf_of: tuple[str, ...] = ()
    """On whose behalf it acts, the nearest first, such as the key that an agent uses."""


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: OriginType
    id: str | None = None
    """The id of the key, deployment or trigger."""


def local_user(user: str) -> Sender:
    """A person who uses the command line or the library, as a user of the operating system."""
    return Sender(kind="person", id=f"cli:{user}")


UNKNOWN_ORIGIN = Origin(type="user")
"""The origin of a session from before origins were recorded."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Sender)


def encode_sender(sender: Sender | None) -> str | None:
    return None if sender is None else _ENCODER.encode(sender).decode()


def decode_sender(text: str | None) -> Sender | None:
    """Raises: MalformedEvent: the stored JSON is not a valid sender."""
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedEvent(f"not a sender: {error}") from error
