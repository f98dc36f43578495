"""The version in use is watched by its real sessions, run again beside the last good one when they
get worse, and rolled back only if it is to blame and no person has written it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import yaml
from tests.improve.evolution.support_agent import (
    agent_parts,
    change,
    opened,
    settings_of,
    write_support_agent,
)

from mainspring.core.events import FeedbackGiven, RatedSubject
from mainspring.improve.evolution.campaigns.campaign_log import read_ledger
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.watch import VersionWatch, WatchReport
from mainspring.log.session_lease import hold_session
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.agent_selection import agent_selection
from mainspring.wiring.runtime_assembly import open_runtime

BROKEN = {
    "when": "",
    "instructions": "Shipping: say 3 days.",
    "steps": [{"says": "I may not say anything."}],
}
"""What the model answers, since an update of it, to an agent with the promoted rule."""


@pytest.fixture
async def campaigns(tmp_path: Path) -> AsyncGenerator[FolderCampaigns]:
    folder = write_support_agent(tmp_path / "support", per_topic=12)
    change(folder / "evolve.yaml", policy="apply")
    async with opened(folder) as campaigns:
        await rate(campaigns, "good", 20)  # sessions of version 1
        yield campaigns


async def rate(campaigns: FolderCampaigns, rating: str, count: int) -> None:
    """Real sessions of the version in the folder, rated by a person."""
    settings = settings_of(campaigns.folder)
    await campaigns.start(campaign_id=f"camp_{count}")  # records the version in use
    loaded = agent_selection(settings).open(RunOptions(agent=campaigns.folder))
    async with open_runtime(settings, options=RunOptions(agent=campaigns.folder)) as runtime:
        for _ in range(count):
            session = await runtime.start(loaded.agent)
            async with hold_session(campaigns.log, session.id) as writer:
                subject = RatedSubject(type="session", id=session.id)
                await writer.append(FeedbackGiven(subject=subject, rating=rating))  # pyright: ignore[reportArgumentType]


async def watch(campaigns: FolderCampaigns) -> WatchReport:
    return await VersionWatch(campaigns).check()


async def test_a_version_that_got_worse_is_rolled_back_and_opens_a_campaign(
    campaigns: FolderCampaigns,
):
    before = (campaigns.folder / "AGENTS.md").read_bytes()
    campaign = await campaigns.run(await campaigns.start())
    assert campaign.status == "promoted"
    assert (await watch(campaigns)).status == "healthy"
    model = yaml.safe_dump([BROKEN, *agent_parts()])
    (campaigns.folder / "model.yaml").write_text(model)
    await rate(campaigns, "bad", 8)
    report = await watch(campaigns)
    assert report.status == "rolled back", report
    assert (campaigns.folder / "AGENTS.md").read_bytes() == before
    ledger = await read_ledger(campaigns.log, campaigns.agent)
    assert ledger.active is not None
    assert ledger.active.number == 1
    assert "0% of 8 sessions pass, 100% before" in ledger.rollbacks[0].reason
    assert "points on" in ledger.rollbacks[0].reason  # the evidence of the re-run


@pytest.mark.slow
async def test_an_alarm_that_a_re_run_does_not_confirm_changes_nothing(campaigns: FolderCampaigns):
    await campaigns.run(await campaigns.start())
    promoted = (campaigns.folder / "AGENTS.md").read_bytes()
    await rate(campaigns, "bad", 8)  # people complain about something that no version changes
    report = await watch(campaigns)
    assert report.status == "kept"
    assert (campaigns.folder / "AGENTS.md").read_bytes() == promoted
    assert (await watch(campaigns)).status == "healthy"  # the same sessions raise no second alarm


async def test_what_a_person_has_written_is_reported_and_not_rolled_back(
    campaigns: FolderCampaigns,
):
    (campaigns.folder / "AGENTS.md").write_text("Be brief.\n")
    await rate(campaigns, "bad", 8)
    report = await watch(campaigns)
    assert report.status == "alarm"
    assert "written by hand" in report.reason
    assert (campaigns.folder / "AGENTS.md").read_text() == "Be brief.\n"
