"""Notices of what became of things, for whoever subscribed to them; delivering is not ours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    tenant: str
    type: str
    """As webhooks call it: `vault.archived`."""
    id: str
    """Of the thing."""
    vault_id: str | None = None
    """Of a credential."""


Notify: TypeAlias = Callable[[Notification], Awaitable[None]]


async def ignore_notification(_notification: Notification) -> None:
    pass
