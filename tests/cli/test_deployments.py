"""`mainspring deployments` and `mainspring webhooks`, on a store that a service has written."""

import json
from collections.abc import AsyncGenerator, Awaitable
from pathlib import Path

import pytest
from tests.keys import VAULT_KEY
from tests.service.schedule_setup import TENANT, Works, works

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.config import Settings, read_settings
from mainspring.core import clock
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.cli.operate import deployments, webhooks
from mainspring.service.schedules.deployment_types import CreateDeployment, ScheduleParams
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.storage.repository import Notification
from mainspring.service.webhooks.webhook_endpoints import CreateWebhook


@pytest.fixture
async def schedule_works(tmp_path: Path) -> AsyncGenerator[Works]:
    async with works(tmp_path, poster=HttpPoster()) as assembled:
        assembled.clock.now = clock.now()  # the commands look at the real one
        yield assembled


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    environ = {"MAINSPRING_VAULT_KEY": VAULT_KEY}
    return read_settings(store=str(tmp_path / "mainspring.db"), environ=environ, folder=tmp_path)


async def capture_output(act: Awaitable[int], capfd: pytest.CaptureFixture[str]) -> str:
    capfd.readouterr()
    assert await act == 0
    return capfd.readouterr().out


async def create_deployment(made: Works) -> str:
    asked = CreateDeployment(
        agent="agent_1",
        environment_id=made.environment_id,
        name="nightly",
        initial_events=(SendMessage(content=(TextBlock("go"),)),),
        schedule=ScheduleParams(expression="0 3 * * *", timezone="Europe/Paris"),
    )
    return (await made.deployments.create(TENANT, asked)).id


async def test_deployments_are_listed_shown_paused_and_run(
    schedule_works: Works, settings: Settings, capfd: pytest.CaptureFixture[str]
):
    id_ = await create_deployment(schedule_works)
    out = await capture_output(
        deployments.ls(settings, tenant=TENANT, everything=False, json=False), capfd
    )
    assert all(part in out for part in (id_, "nightly", "agent_1 v3", "0 3 * * * Europe/Paris"))
    out = await capture_output(
        deployments.pause(settings, tenant=TENANT, deployment=id_, json=True), capfd
    )
    assert json.loads(out)["paused_reason"] == {"type": "manual"}
    out = await capture_output(
        deployments.show(settings, tenant=TENANT, deployment=id_, json=False), capfd
    )
    assert "paused" in out
    assert len(out.splitlines()) == 3, "it does not say when it would run"
    await capture_output(
        deployments.unpause(settings, tenant=TENANT, deployment=id_, json=False), capfd
    )
    out = await capture_output(
        deployments.run(settings, tenant=TENANT, deployment=id_, json=True), capfd
    )
    run_id = json.loads(out)["run_id"]
    schedule_works.clock.now = clock.now()
    await schedule_works.firing.sweep()
    await schedule_works.fire_due()
    for as_json in (False, True):
        out = await capture_output(
            deployments.runs(
                settings, tenant=TENANT, deployment=id_, failed=False, limit=5, json=as_json
            ),
            capfd,
        )
        assert run_id in out
        assert "sesn_acme_0" in out


async def test_webhooks_are_listed_and_failed_deliveries_are_resent(
    schedule_works: Works, settings: Settings, capfd: pytest.CaptureFixture[str]
):
    webhook = await schedule_works.webhooks.create(
        TENANT, CreateWebhook(url="https://example.com/", event_types=("agent.created",))
    )
    await schedule_works.outbox.notify(
        Notification(tenant=TENANT, type="agent.created", id="agent_1")
    )
    out = await capture_output(webhooks.ls(settings, tenant=TENANT, json=False), capfd)
    assert webhook.id in out
    assert webhook.secret not in out
    out = await capture_output(
        webhooks.deliveries(
            settings, tenant=TENANT, webhook=webhook.id, dead=False, limit=5, json=True
        ),
        capfd,
    )
    delivery = json.loads(out)
    assert delivery["status"] == "pending"
    out = await capture_output(
        webhooks.resend(settings, tenant=TENANT, id_=delivery["id"], json=True), capfd
    )
    assert json.loads(out) == {"resent": 1}
    out = await capture_output(
        webhooks.resend(settings, tenant=TENANT, id_=webhook.id, json=False), capfd
    )
    assert "0" in out


async def test_unknown_deployments_and_webhooks_are_reported(
    schedule_works: Works, settings: Settings, tmp_path: Path
):
    with pytest.raises(NotFound, match="depl_none"):
        await deployments.show(settings, tenant=TENANT, deployment="depl_none", json=False)
    with pytest.raises(NotFound):
        await webhooks.resend(settings, tenant=TENANT, id_="whd_none", json=False)
    nowhere = read_settings(store=str(tmp_path / "none.db"), environ={}, folder=tmp_path)
    with pytest.raises(InvalidInput, match="exist"):
        await deployments.ls(nowhere, tenant=TENANT, everything=False, json=False)
