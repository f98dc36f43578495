from collections.abc import AsyncGenerator
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, cast

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Served, Tags
from tests.service.receiver import Receiver, holds, receiving
from tests.service.schedule_setup import LOOPBACK, Works, works

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.core import clock
from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.operate.webhooks import WebhookRoutes
from mainspring.service.storage.repository import Notification
from mainspring.service.webhooks.webhook_events import EVENT_TYPES

HOOKS = "/v1/mainspring/webhooks"


@dataclass(frozen=True, slots=True)
class Scene(Served):
    works: Works
    receiver: Receiver

    async def create(self, client: anthropic.AsyncAnthropic) -> dict[str, Any]:
        body = {"url": self.receiver.url, "event_types": list(EVENT_TYPES)}
        return await post(client, HOOKS, body)


async def post(
    client: anthropic.AsyncAnthropic, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    return cast("dict[str, Any]", await client.post(path, body=body, cast_to=object))


async def get(client: anthropic.AsyncAnthropic, path: str) -> dict[str, Any]:
    return cast("dict[str, Any]", await client.get(path, cast_to=object))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Scene]:
    poster = HttpPoster(allowed=[ip_network(LOOPBACK)], allow_http=True)
    async with works(tmp_path, poster=poster) as made, receiving() as receiver:
        made.clock.now = clock.now()  # the official client looks at the real clock
        routes = routes_of(WebhookRoutes(made.webhooks, made.outbox, made.deliveries))
        async with http_server(Api(routes, access_control=Tags()).application()) as url:
            yield Scene(url, made.records, made, receiver)


async def test_the_official_client_unwraps_every_event(api: Scene, acme: AsyncAnthropic):
    pytest.importorskip("standardwebhooks", reason="the extra anthropic[webhooks]")
    webhook = await api.create(acme)
    for index, type_ in enumerate(EVENT_TYPES):
        vault_id = "vlt_1" if type_.startswith("vault_credential.") else None
        notice = Notification(tenant="acme", type=type_, id=f"id_{index}", vault_id=vault_id)
        await api.works.outbox.notify(notice)
    await api.works.deliver_due()
    seen: set[str] = set()
    for headers, body in api.receiver.got:
        event = acme.beta.webhooks.unwrap(body, headers=headers, key=webhook["secret"])
        assert type(event.data).__name__.startswith("BetaWebhook")
        assert event.id == headers["webhook-id"]
        seen.add(event.data.type)
    assert seen == set(EVENT_TYPES)
    headers, body = api.receiver.got[0]
    with pytest.raises(Exception, match="signature"):
        acme.beta.webhooks.unwrap(body + " ", headers=headers, key=webhook["secret"])


async def test_every_event_type_is_known_to_the_official_client(api: Scene, acme: AsyncAnthropic):
    webhook = await api.create(acme)
    for type_ in EVENT_TYPES:
        await api.works.outbox.notify(Notification(tenant="acme", type=type_, id="x"))
    await api.works.deliver_due()
    assert len(api.receiver.got) == len(EVENT_TYPES)
    for headers, body in api.receiver.got:
        assert holds(webhook["secret"], headers, body)
        event = acme.beta.webhooks.parse_unverified(body)
        assert event.type == "event"
        assert type(event.data).__name__.startswith("BetaWebhook")


async def test_an_endpoint_is_created_changed_and_deleted(api: Scene, acme: AsyncAnthropic):
    made = await api.create(acme)
    one = f"{HOOKS}/{made['id']}"
    assert made["secret"].startswith("whsec_")
    assert {**await get(acme, one), "secret": made["secret"]} == made
    assert "secret" not in (await get(acme, HOOKS))["data"][0]
    changed = await post(acme, one, {"event_types": ["agent.created"], "description": "d"})
    assert (changed["event_types"], changed["description"]) == (["agent.created"], "d")
    rotated = await post(acme, f"{one}/rotate_secret", {"old_valid_seconds": 60})
    assert rotated["secret"] != made["secret"]
    off = await post(acme, one, {"status": "disabled"})
    assert (off["status"], off["disabled_reason"]) == ("disabled", "manual")
    gone = await acme.delete(one, cast_to=object)
    assert gone == {"id": made["id"], "type": "webhook_endpoint_deleted"}
    with pytest.raises(anthropic.NotFoundError):
        await get(acme, one)


async def test_deliveries_are_listed_and_resent(api: Scene, acme: AsyncAnthropic):
    made = await api.create(acme)
    one = f"{HOOKS}/{made['id']}"
    pinged = await post(acme, f"{one}/ping")
    assert (pinged["status"], pinged["event_type"]) == ("delivered", "mainspring.ping")
    assert pinged["last_attempt"]["status"] == 200
    api.receiver.status = 410
    failed = await post(acme, f"{one}/ping")
    assert (failed["status"], failed["last_attempt"]["status"]) == ("pending", 410)
    waiting = await get(acme, f"{one}/deliveries?status=pending")
    assert [item["id"] for item in waiting["data"]] == [failed["id"]]
    assert len((await get(acme, f"{one}/deliveries"))["data"]) == 2
    api.receiver.status = 200
    again = await post(acme, f"/v1/mainspring/webhook_deliveries/{pinged['id']}/resend")
    assert again["status"] == "pending"
    await api.works.deliver_due()
    after = await get(acme, f"/v1/mainspring/webhook_deliveries/{pinged['id']}")
    assert after["status"] == "delivered"
    assert await post(acme, f"{one}/resend_dead") == {"resent": 0}


async def test_invalid_endpoints_are_refused(acme: AsyncAnthropic):
    good = {"url": "https://example.com/", "event_types": ["agent.created"]}
    bad: list[tuple[str, object]] = [
        ("url", "ftp://x/"),
        ("url", "https://u:p@example.com/"),
        ("event_types", []),
        ("event_types", ["no.such"]),
    ]
    for name, value in bad:
        with pytest.raises(anthropic.BadRequestError, match=name):
            await post(acme, HOOKS, {**good, name: value})
