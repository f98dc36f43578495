"""What `mainspring webhooks` does, straight on the store."""

from __future__ import annotations

import msgspec

from mainspring.config import Settings
from mainspring.edges.cli.offstage import offstage
from mainspring.edges.cli.operating import operating
from mainspring.edges.cli.render import Part, Screen, minute
from mainspring.service.keeping.drawer import Listing
from mainspring.service.mail.deliveries import Delivery
from mainspring.service.mail.webhooks import MAX_ENDPOINTS, Webhook

_STYLES = {"delivered": "green", "dead": "red", "pending": "yellow"}


async def ls(settings: Settings, *, tenant: str, json: bool) -> int:
    async with operating(settings) as operator:
        webhooks = offstage(settings, operator.records).webhooks
        found = (await webhooks.page(tenant, Listing(limit=MAX_ENDPOINTS))).data
    screen = Screen(settings)
    if json:
        for each in found:
            screen.json(msgspec.json.encode(each))
        return 0
    if not found:
        Screen(settings, stderr=True).whole(("there are no webhook endpoints", "dim"))
        return 0
    screen.table(["ID", "URL", "EVENTS", "STATE"], [_row(each) for each in found])
    return 0


async def deliveries(
    settings: Settings, *, tenant: str, webhook_id: str, dead: bool, limit: int, json: bool
) -> int:
    async with operating(settings) as operator:
        parts = offstage(settings, operator.records)
        webhook = await parts.webhooks.get(tenant, webhook_id)
        listing = Listing(limit=limit, parent=webhook.id, label="dead" if dead else None)
        found = (await parts.deliveries.page(tenant, listing)).data
    screen = Screen(settings)
    if json:
        for each in found:
            screen.json(msgspec.json.encode(each))
        return 0
    if not found:
        Screen(settings, stderr=True).whole(("there are no deliveries", "dim"))
        return 0
    heads = ["ID", "EVENT", "MADE", "STATE", "TRIES", "LAST ANSWER"]
    screen.table(heads, [_delivery_row(each) for each in found])
    return 0


async def resend(settings: Settings, *, tenant: str, meant: str, json: bool) -> int:
    async with operating(settings) as operator:
        parts = offstage(settings, operator.records)
        if meant.startswith("whk_"):
            sent = await parts.deliveries.resend_dead(tenant, meant)
        else:
            await parts.deliveries.resend(tenant, meant)
            sent = 1
        await operator.note(tenant, "webhooks resend", meant)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"resent": sent}))
    else:
        screen.line(("to be sent again: ", "green"), (str(sent), "bold"))
    return 0


def _row(each: Webhook) -> list[Part]:
    state: Part = ("enabled", "green")
    if each.status == "disabled":
        state = (f"disabled: {each.disabled_reason}", "red")
    elif each.failing_since is not None:
        state = (f"failing since {minute(each.failing_since)}", "yellow")
    return [(each.id, ""), (each.url, "bold"), (str(len(each.event_types)), "dim"), state]


def _delivery_row(each: Delivery) -> list[Part]:
    last = each.last_attempt
    answer = "" if last is None else str(last.status or last.error or "")
    return [
        (each.id, ""),
        (each.event_type, "bold"),
        (minute(each.created_at), "dim"),
        (each.status, _STYLES[each.status]),
        (str(each.attempts), ""),
        (answer, "dim"),
    ]
