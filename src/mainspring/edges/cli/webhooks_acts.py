"""What `mainspring webhooks` does, straight on the store."""

from __future__ import annotations

import msgspec

from mainspring.config import Settings
from mainspring.edges.cli.offline_services import offline_services
from mainspring.edges.cli.operator_access import open_as_operator
from mainspring.edges.cli.printing import Screen, StyledText, local_time
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_deliveries import Delivery
from mainspring.service.webhooks.webhook_endpoints import MAX_ENDPOINTS, Webhook

_STYLES = {"delivered": "green", "dead": "red", "pending": "yellow"}


async def ls(settings: Settings, *, tenant: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        webhooks = offline_services(settings, operator.records).webhooks
        found = (await webhooks.page(tenant, ListQuery(limit=MAX_ENDPOINTS))).data
    screen = Screen(settings)
    if json:
        for item in found:
            screen.json(msgspec.json.encode(item))
        return 0
    if not found:
        Screen(settings, stderr=True).paragraph(("there are no webhook endpoints", "dim"))
        return 0
    screen.table(["ID", "URL", "EVENTS", "STATE"], [_webhook_row(item) for item in found])
    return 0


async def deliveries(
    settings: Settings, *, tenant: str, webhook_id: str, dead: bool, limit: int, json: bool
) -> int:
    async with open_as_operator(settings) as operator:
        parts = offline_services(settings, operator.records)
        webhook = await parts.webhooks.get(tenant, webhook_id)
        listing = ListQuery(limit=limit, parent=webhook.id, label="dead" if dead else None)
        found = (await parts.deliveries.page(tenant, listing)).data
    screen = Screen(settings)
    if json:
        for item in found:
            screen.json(msgspec.json.encode(item))
        return 0
    if not found:
        Screen(settings, stderr=True).paragraph(("there are no deliveries", "dim"))
        return 0
    heads = ["ID", "EVENT", "MADE", "STATE", "TRIES", "LAST ANSWER"]
    screen.table(heads, [_delivery_row(item) for item in found])
    return 0


async def resend(settings: Settings, *, tenant: str, meant: str, json: bool) -> int:
    async with open_as_operator(settings) as operator:
        parts = offline_services(settings, operator.records)
        if meant.startswith("whk_"):
            sent = await parts.deliveries.resend_dead(tenant, meant)
        else:
            await parts.deliveries.resend(tenant, meant)
            sent = 1
        await operator.audit(tenant, "webhooks resend", meant)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"resent": sent}))
    else:
        screen.line(("to be sent again: ", "green"), (str(sent), "bold"))
    return 0


def _webhook_row(each: Webhook) -> list[StyledText]:
    state: StyledText = ("enabled", "green")
    if each.status == "disabled":
        state = (f"disabled: {each.disabled_reason}", "red")
    elif each.failing_since is not None:
        state = (f"failing since {local_time(each.failing_since)}", "yellow")
    return [(each.id, ""), (each.url, "bold"), (str(len(each.event_types)), "dim"), state]


def _delivery_row(each: Delivery) -> list[StyledText]:
    last = each.last_attempt
    answer = "" if last is None else str(last.status or last.error or "")
    return [
        (each.id, ""),
        (each.event_type, "bold"),
        (local_time(each.created_at), "dim"),
        (each.status, _STYLES[each.status]),
        (str(each.attempts), ""),
        (answer, "dim"),
    ]
