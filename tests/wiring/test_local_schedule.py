"""The schedule in the agent.yaml of a folder that is served: a deployment that follows the file."""

from dataclasses import replace
from pathlib import Path

import anyio
from tests.environ import clean_environ

from mainspring.config import Settings, read_settings
from mainspring.runtime.agent_folder.validation import PLANNED
from mainspring.service.schedules.local_schedule import TENANT, ScheduleStatus
from mainspring.service.service import sync_schedule
from mainspring.service.storage.repository import ListQuery
from mainspring.wiring.agent_selection import validate
from mainspring.wiring.service_assembly import open_service
from mainspring.wiring.settings_files import trust

FILE = """
name: porter
model: scripted:demo
max_cost_usd: 2
schedule: {{cron: '{cron}', message: Go.}}
"""


async def follow_schedule(settings: Settings) -> tuple[ScheduleStatus | None, int]:
    """As one start of the service would; and how many deployments there are."""
    with anyio.fail_after(60):
        async with open_service(settings) as service:
            following = await sync_schedule(service)
            listed = await service.schedules.deployments.page(TENANT, ListQuery())
            return following, len(listed.data)


def create_folder(root: Path) -> tuple[Path, Path, Settings]:
    home, folder = root / "home", root / "agent"
    home.mkdir()
    folder.mkdir()
    environ = {**clean_environ(), "HOME": str(home), "MAINSPRING_VAULT_KEY": "A" * 43 + "="}
    return home, folder, replace(read_settings(environ=environ, folder=folder), home=str(home))


async def test_a_deployment_follows_the_schedule_of_a_trusted_folder(tmp_path: Path):
    home, folder, settings = create_folder(tmp_path)
    assert await follow_schedule(settings) == (None, 0)
    file = folder / "agent.yaml"
    file.write_text(FILE.format(cron="0 7 * * *"))
    refused, count = await follow_schedule(settings)
    assert refused is not None
    assert (count, "mainspring policy trust" in (refused.problem or "")) == (0, True)
    trust(folder, home=home)
    first, _ = await follow_schedule(settings)
    again, count = await follow_schedule(settings)
    assert first is not None
    assert again is not None
    assert first.deployment is not None
    assert again.deployment is not None
    assert (count, again.deployment.id) == (1, first.deployment.id)
    assert first.next_at is not None
    assert (first.next_at.hour, first.deployment.name) == (7, "porter")
    file.write_text(FILE.format(cron="0 9 * * *"))
    untrusted, count = await follow_schedule(settings)
    assert untrusted is not None
    assert (untrusted.deployment, count) == (None, 0)
    trust(folder, home=home)
    moved, count = await follow_schedule(settings)
    assert moved is not None
    assert moved.next_at is not None
    assert (moved.next_at.hour, count) == (9, 1)
    file.write_text("name: porter\n")
    assert await follow_schedule(settings) == (None, 0)


async def test_a_folder_with_restrictions_a_session_would_lack_is_not_scheduled(tmp_path: Path):
    home, folder, settings = create_folder(tmp_path)
    file = folder / "agent.yaml"
    file.write_text(FILE.format(cron="0 9 * * *"))
    trust(folder, home=home)
    _, count = await follow_schedule(settings)
    assert count == 1
    strict = "permissions: {mode: plan, deny: ['Bash(touch *)'], ask: [Bash]}\n"
    file.write_text(FILE.format(cron="0 9 * * *") + strict + "environment: {network: {}}\n")
    (folder / "hooks.json").write_text('{"hooks": {"Stop": []}}')
    trust(folder, home=home)
    lost, count = await follow_schedule(settings)
    assert lost is not None
    assert (lost.deployment, count) == (None, 0)
    named = ("permissions.ask", "permissions.deny", "permissions.mode", "environment", "hooks")
    told = [part.ignored for part in validate(settings).parts if part.name == PLANNED]
    for text in (lost.problem or "", told[0][0].why):
        assert all(f"{name} (" in text for name in named), text
