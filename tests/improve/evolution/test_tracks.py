"""Each track on a real agent folder with real sessions: before, diff, after, rollback. The prompt
track is in test_campaigns.py, programs are in test_programs.py."""

from pathlib import Path

import pytest
from tests.improve.evolution.support_agent import TOPICS, change, opened, write_support_agent

from mainspring.improve.evolution.campaigns.campaign_views import promotion_diff

RULES = " ".join(rule for _, rule in TOPICS.values())
TRACKS = {
    "playbook": ("PLAYBOOK.md", f"- [a1] helpful=0 harmful=0 :: {RULES}\n"),
    "skill": (
        "skills/answers/SKILL.md",
        f'---\nname: answers\ndescription: "{RULES}"\n---\nSay what the description says.\n',
    ),
    "harness": (".claude/rules/answers.md", f"{RULES}\n"),
}
"""The file that is added, and its text."""


@pytest.mark.slow
@pytest.mark.parametrize("track", TRACKS)
async def test_a_track_improves_a_real_agent_and_is_rolled_back(tmp_path: Path, track: str):
    path, text = TRACKS[track]
    folder = write_support_agent(tmp_path / "support", per_topic=8)
    change(folder / "evolve.yaml", harness=[path] if track == "harness" else [])
    (tmp_path / "change" / path).parent.mkdir(parents=True)
    (tmp_path / "change" / path).write_text(text)
    async with opened(folder) as campaigns:
        before = campaigns.read()
        proposal = campaigns.read_change(tmp_path / "change")
        campaign = await campaigns.run(await campaigns.start(proposal=proposal))
        assert campaign.status == "promoted", campaign.ended
        assert f"+++ {path}" in await promotion_diff(campaigns.log, campaign)
        await campaigns.promote(campaign.id)
        assert (folder / path).read_text() == text
        await campaigns.roll_back(None, "a test")
        assert not (folder / path).exists()
        assert campaigns.read() == before
