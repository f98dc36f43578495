"""Notifications of changes to resources. Delivering them is the job of `webhooks`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    tenant: str
    type: str
    """The event type of webhooks: `vault.archived`."""
    id: str
    """The id of the resource."""
    vault_id: str | None = None
    """The vault, if it is about a credential."""


Notify: TypeAlias = Callable[[Notification], Awaitable[None]]


async def ignore_notification(_notification: Notification) -> None:
    pass
