"""Who sent something to a session, and where a session comes from. Said by whoever lets it in,
never worked out afterwards.
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
]


class Sender(Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: SenderKind
    """A worker is a client's own machine that runs calls; the system is Mainspring itself."""
    id: str
    """Of the key, the agent, the work item or environment, the deployment; `cli:<user>`."""
    on_behalf_of: tuple[str, ...] = ()
    """For whom it acts, the nearest first: the key that was lent to an agent."""


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    type: OriginType
    id: str | None = None
    """Of the key, the deployment, the trigger."""


def local_user(user: str) -> Sender:
    """A person who uses the command line or the library, as a user of the operating system."""
    return Sender(kind="person", id=f"cli:{user}")


UNKNOWN_ORIGIN = Origin(type="user")
"""Of a session that was made before this was noted."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Sender)


def encode_sender(sender: Sender | None) -> str | None:
    return None if sender is None else _ENCODER.encode(sender).decode()


def decode_sender(text: str | None) -> Sender | None:
    """Raises: MalformedEvent: what is stored is not what was written."""
    try:
        return None if text is None else _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise MalformedEvent(f"not a sender: {error}") from error
