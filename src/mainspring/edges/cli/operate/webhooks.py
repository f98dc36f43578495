"""`mainspring webhooks`: works directly on the store."""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.config import Settings
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.operate.offline_services import offline_services
from mainspring.edges.cli.operate.operator_access import open_as_operator
from mainspring.edges.cli.options import JsonOption, LimitOption, TenantOption
from mainspring.edges.cli.render.printing import StyledText, local_time, print_list, print_result
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_deliveries import Delivery
from mainspring.service.webhooks.webhook_endpoints import MAX_ENDPOINTS, Webhook

_STYLES = {"delivered": "green", "dead": "red", "pending": "yellow"}

app = command_group()


@command(app)
async def ls(
    settings: Settings, *, tenant: TenantOption = "default", json: JsonOption = False
) -> int:
    """List webhook endpoints and their state."""
    async with open_as_operator(settings) as operator:
        webhooks = offline_services(settings, operator.records).webhooks
        page = await webhooks.page(tenant, ListQuery(limit=MAX_ENDPOINTS))
    return print_list(
        settings,
        page.data,
        json=json,
        heads=["ID", "URL", "EVENTS", "STATE"],
        row=_webhook_row,
        empty="there are no webhook endpoints",
    )


@command(app)
async def deliveries(
    settings: Settings,
    *,
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="The endpoint's id: whk_...")],
    tenant: TenantOption = "default",
    dead: Annotated[
        bool, typer.Option("--dead", help="Only deliveries that failed permanently.")
    ] = False,
    limit: LimitOption = 20,
    json: JsonOption = False,
) -> int:
    """List an endpoint's deliveries, sent and pending, newest first."""
    async with open_as_operator(settings) as operator:
        services = offline_services(settings, operator.records)
        endpoint = await services.webhooks.get(tenant, webhook)
        query = ListQuery(limit=limit, parent=endpoint.id, label="dead" if dead else None)
        page = await services.deliveries.page(tenant, query)
    return print_list(
        settings,
        page.data,
        json=json,
        heads=["ID", "EVENT", "CREATED", "STATE", "TRIES", "LAST ANSWER"],
        row=_delivery_row,
        empty="there are no deliveries",
    )


@command(app)
async def resend(
    settings: Settings,
    *,
    id_: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A delivery, whd_...; or an endpoint, whk_..., for all its failed deliveries.",
        ),
    ],
    tenant: TenantOption = "default",
    json: JsonOption = False,
) -> int:
    """Ask a worker to send failed deliveries again."""
    async with open_as_operator(settings) as operator:
        services = offline_services(settings, operator.records)
        if id_.startswith("whk_"):
            number = await services.deliveries.resend_dead(tenant, id_)
        else:
            await services.deliveries.resend(tenant, id_)
            number = 1
        await operator.audit(tenant, "webhooks resend", id_)
    text = (("to be sent again: ", "green"), (str(number), "bold"))
    return print_result(settings, {"resent": number}, *text, json=json)


def _webhook_row(webhook: Webhook) -> list[StyledText]:
    state: StyledText = ("enabled", "green")
    if webhook.status == "disabled":
        state = (f"disabled: {webhook.disabled_reason}", "red")
    elif webhook.failing_since is not None:
        state = (f"failing since {local_time(webhook.failing_since)}", "yellow")
    events = str(len(webhook.event_types))
    return [(webhook.id, ""), (webhook.url, "bold"), (events, "dim"), state]


def _delivery_row(delivery: Delivery) -> list[StyledText]:
    attempt = delivery.last_attempt
    answer = "" if attempt is None else str(attempt.status or attempt.error or "")
    return [
        (delivery.id, ""),
        (delivery.event_type, "bold"),
        (local_time(delivery.created_at), "dim"),
        (delivery.status, _STYLES[delivery.status]),
        (str(delivery.attempts), ""),
        (answer, "dim"),
    ]
