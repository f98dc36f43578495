"""The schedule in the agent.yaml of a folder that is served: a deployment that follows the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
from tests.environ import clean_environ

from mainspring.config import Settings, read_settings
from mainspring.service.keeping.drawer import Listing
from mainspring.wiring.house import open_house
from mainspring.wiring.local_schedule import TENANT, Following, follow_schedule
from mainspring.wiring.trust import trust

FILE = """
name: porter
model: scripted:demo
max_cost_usd: 2
schedule: {{cron: '{cron}', message: Go.}}
"""


async def followed(settings: Settings) -> tuple[Following | None, int]:
    """As one start of the service would; and how many deployments there are."""
    with anyio.fail_after(60):
        async with open_house(settings) as house:
            following = await follow_schedule(house, settings)
            listed = await house.calendar.deployments.page(TENANT, Listing())
            return following, len(listed.data)


async def test_a_deployment_follows_the_file_of_a_trusted_folder(tmp_path: Path):
    home, folder = tmp_path / "home", tmp_path / "agent"
    home.mkdir()
    folder.mkdir()
    environ = {**clean_environ(), "HOME": str(home), "MAINSPRING_VAULT_KEY": "A" * 43 + "="}
    settings = replace(read_settings(environ=environ, folder=folder), home=str(home))
    assert await followed(settings) == (None, 0)
    file = folder / "agent.yaml"
    file.write_text(FILE.format(cron="0 7 * * *"))
    refused, count = await followed(settings)
    assert refused is not None
    assert (count, "mainspring policy trust" in (refused.problem or "")) == (0, True)
    trust(folder, home=home)
    first, _ = await followed(settings)
    again, count = await followed(settings)
    assert first is not None
    assert again is not None
    assert first.deployment is not None
    assert again.deployment is not None
    assert (count, again.deployment.id) == (1, first.deployment.id)
    assert first.next_at is not None
    assert (first.next_at.hour, first.deployment.name) == (7, "porter")
    file.write_text(FILE.format(cron="0 9 * * *"))
    untrusted, count = await followed(settings)
    assert untrusted is not None
    assert (untrusted.deployment, count) == (None, 0)
    trust(folder, home=home)
    moved, count = await followed(settings)
    assert moved is not None
    assert moved.next_at is not None
    assert (moved.next_at.hour, count) == (9, 1)
    file.write_text("name: porter\n")
    assert await followed(settings) == (None, 0)
