"""Notifies clients of changes: `subscriptions/listen` of modern ones, and the notifications that
legacy ones get."""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio
from msgspec import Raw, Struct

from mainspring.capabilities.mcp.protocol.messages import META, RequestId, encode_notification
from mainspring.capabilities.mcp.server.connection import MAX_SUBSCRIPTIONS, McpConnection
from mainspring.capabilities.mcp.server.exchange import Outlet
from mainspring.capabilities.mcp.server.features import (
    PROMPTS_CHANGED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    FeatureChange,
    Features,
)
from mainspring.capabilities.mcp.server.params import read_params
from mainspring.capabilities.mcp.server.refusals import invalid


class _Filter(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []

    def wants(self, change: FeatureChange) -> bool:
        match change:
            case FeatureChange(uri=str(uri)):
                return uri in self.resource_subscriptions
            case _:
                return {
                    TOOLS_CHANGED: self.tools_list_changed,
                    PROMPTS_CHANGED: self.prompts_list_changed,
                    RESOURCES_CHANGED: self.resources_list_changed,
                }.get(change, False)


class _ListenParams(Struct, frozen=True):
    notifications: _Filter


async def listen(
    id_: RequestId, params: Raw, features: Features, outlet: Outlet
) -> dict[str, object]:
    """The subscription of a modern client. It lasts until the client ends it."""
    filter_ = read_params(params, _ListenParams).notifications
    if len(filter_.resource_subscriptions) > MAX_SUBSCRIPTIONS:
        raise invalid(f"resourceSubscriptions: {MAX_SUBSCRIPTIONS:,} at most")
    meta = {f"{META}subscriptionId": id_}

    def message(method: str, **more: object) -> bytes:
        return encode_notification(method, {"_meta": meta, **more})

    def rendered(change: FeatureChange) -> bytes | None:
        more = {} if change.uri is None else {"uri": change.uri}
        return message(change.method, **more) if filter_.wants(change) else None

    await outlet.send(message("notifications/subscriptions/acknowledged", notifications=filter_))
    await send_changes(features, outlet, rendered)
    return {}


async def notify_legacy(connection: McpConnection, outlet: Outlet) -> None:
    """Send notifications to a legacy client. Runs until it is cancelled."""

    def rendered(change: FeatureChange) -> bytes | None:
        if change.uri is None:
            return encode_notification(change.method, {})
        is_subscribed = change.uri in connection.subscriptions
        return encode_notification(change.method, {"uri": change.uri}) if is_subscribed else None

    await send_changes(connection.features, outlet, rendered)


async def send_changes(
    features: Features, outlet: Outlet, rendered: Callable[[FeatureChange], bytes | None]
) -> None:
    """Send each change once, however often it happened while the client was slow to read."""
    pending: dict[FeatureChange, None] = {}
    wake, changes = anyio.create_memory_object_stream[None](math.inf)

    def on_change(change: FeatureChange) -> None:
        if change not in pending:
            pending[change] = None
            wake.send_nowait(None)

    with features.changes.listening(on_change), wake, changes:
        async for _ in changes:
            change = next(iter(pending))
            del pending[change]
            if (message := rendered(change)) is not None:
                await outlet.send(message)
