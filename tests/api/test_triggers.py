import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Served, Tags
from tests.service.schedule_setup import Works, works

from mainspring.edges.api.app import Api, http_server
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.operate.triggers import TriggerRoutes
from mainspring.service.schedules.trigger_intake import MAX_PAYLOAD_BYTES
from mainspring.service.webhooks.webhook_signing import signed_headers

TRIGGERS = "/v1/mainspring/triggers"
BODY = json.dumps({"issue": {"number": 7}}).encode()


@dataclass(frozen=True, slots=True)
class Scene(Served):
    works: Works

    async def create(self, client: anthropic.AsyncAnthropic) -> dict[str, Any]:
        body = {
            "name": "issues",
            "scheme": {"type": "standard_webhooks"},
            "agent": "agent_1",
            "environment_id": self.works.environment_id,
            "message": "Issue {{body.issue.number}}",
        }
        return cast("dict[str, Any]", await client.post(TRIGGERS, body=body, cast_to=object))

    async def fire(
        self, trigger_id: str, headers: dict[str, str], body: bytes = BODY
    ) -> tuple[int, dict[str, Any]]:
        url = f"{self.url}{TRIGGERS}/{trigger_id}/fire"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=headers) as response,
        ):
            return response.status, await response.json()


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Scene]:
    async with works(tmp_path) as made:
        routes = routes_of(TriggerRoutes(made.triggers, made.intake))
        async with http_server(Api(routes, access_control=Tags()).application()) as url:
            yield Scene(url, made.records, made)


def sign_request(api: Scene, secret: str, body: bytes = BODY) -> dict[str, str]:
    return signed_headers("msg_1", body, secrets=[secret], now=api.works.clock.now)


async def test_a_trigger_is_created_fired_changed_and_deleted(api: Scene, acme: AsyncAnthropic):
    made = await api.create(acme)
    status, fired = await api.fire(made["id"], sign_request(api, made["secret"]))
    assert (status, fired["status"]) == (200, "started")
    one = f"{TRIGGERS}/{made['id']}"
    shown = cast("dict[str, Any]", await acme.get(one, cast_to=object))
    assert {**shown, "secret": made["secret"]} == made
    changed = await acme.post(one, body={"is_enabled": False}, cast_to=object)
    assert cast("dict[str, Any]", changed)["is_enabled"] is False
    assert (await api.fire(made["id"], sign_request(api, made["secret"])))[0] == 401
    await acme.delete(one, cast_to=object)
    with pytest.raises(anthropic.NotFoundError):
        await acme.get(one, cast_to=object)


async def test_an_unknown_trigger_and_a_bad_signature_get_the_same_response(
    api: Scene, acme: AsyncAnthropic
):
    made = await api.create(acme)
    good = sign_request(api, made["secret"])
    answers = [
        await api.fire("trg_unknown", good),
        await api.fire("..%2Ftrg", good),
        await api.fire(made["id"], {}),
        await api.fire(made["id"], {**good, "webhook-signature": "v1,AAAA"}),
        await api.fire(made["id"], {**good, "x-api-key": "acme:admin"}, BODY + b" "),
    ]
    for _, body in answers:
        body.pop("request_id")
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 401
    assert api.works.sessions.starts == 0


async def test_a_payload_that_is_too_large_is_refused(api: Scene, acme: AsyncAnthropic):
    made = await api.create(acme)
    large = b" " * (MAX_PAYLOAD_BYTES + 1)
    for trigger_id in (made["id"], "trg_unknown"):
        status, _ = await api.fire(trigger_id, sign_request(api, made["secret"], large), large)
        assert status == 413


async def test_invalid_triggers_are_refused(api: Scene, acme: AsyncAnthropic):
    made = await api.create(acme)
    one = f"{TRIGGERS}/{made['id']}"
    for change, where in (
        ({"message": "{{env.HOME}}"}, "message"),
        ({"correlation": "{{"}, "correlation"),
        ({"secret": "short"}, "secret"),
        ({"secret": "not base64 at all, sorry"}, "secret"),
    ):
        with pytest.raises(anthropic.BadRequestError, match=where):
            await acme.post(one, body=change, cast_to=object)
    with pytest.raises(anthropic.NotFoundError):
        await acme.post(one, body={"environment_id": "env_none"}, cast_to=object)
