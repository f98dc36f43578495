"""Campaigns on a real agent's folder: real sessions, a scripted improver, the real log."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from tests.improve.evolution.support_agent import (
    TOPICS,
    change,
    opened,
    support_cases,
    write_support_agent,
)

from mainspring.core.errors import InvalidInput
from mainspring.improve.evolution.campaigns.campaign_log import (
    read_candidate,
    read_ledger,
)
from mainspring.improve.evolution.campaigns.campaign_views import approval_hash
from mainspring.improve.evolution.model_proposer import ReserveMoney


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_support_agent(tmp_path / "support", per_topic=6)


async def test_a_campaign_promotes_what_sealed_cases_prove_and_rolls_back_byte_for_byte(
    folder: Path,
):
    before = (folder / "AGENTS.md").read_bytes()
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
        assert campaign.status == "promoted", campaign.ended
        assert (folder / "AGENTS.md").read_bytes() == before  # a person promotes
        promoted = campaign.promotions[-1]
        assert promoted.gate.wins >= 4
        assert promoted.gate.losses == 0
        with pytest.raises(InvalidInput, match="not the one that was approved"):
            await campaigns.promote(campaign.id, diff_hash="0" * 64)
        await campaigns.promote(campaign.id, diff_hash=approval_hash(promoted))
        text = (folder / "AGENTS.md").read_text()
        assert [rule for _, rule in TOPICS.values() if rule not in text] == []
        ledger = await read_ledger(campaigns.log, campaigns.agent)
        assert [item.number for item in ledger.versions] == [1, 2]
        assert ledger.active is not None
        assert (await read_candidate(campaigns.log, ledger.active.hash)).texts["AGENTS.md"] == text
        assert ledger.active.agent_version.startswith("2-")
        await campaigns.roll_back(None, "a test")
        assert (folder / "AGENTS.md").read_bytes() == before


async def test_a_quoted_case_is_refused_without_a_trial(folder: Path):
    quote = "Do you know about the shipping of my lamp, please?"
    quoting: list[dict[str, object]] = [
        {"steps": [{"says": f'<append path="AGENTS.md">\n{quote} 3 days.\n</append>'}]}
    ]
    (folder / "improver.yaml").write_text(yaml.safe_dump(quoting))
    change(folder / "evolve.yaml", most_refusals=3)
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
    assert campaign.status == "refused"
    assert campaign.promotions == []
    assert {"it quotes a case" in step.reason for step in campaign.steps} == {True}
    assert [step.cases for step in campaign.steps if step.cases] == []


@pytest.mark.parametrize(
    ("grader", "reason"),
    [
        pytest.param({"type": "not_contains", "text": "xyz"}, "does nothing scores", id="always 1"),
        pytest.param({"type": "contains", "text": "xyz"}, "right answers score 0%", id="always 0"),
        pytest.param({"type": "regex", "pattern": "day|year"}, "other cases", id="any answer"),
    ],
)
async def test_a_broken_metric_is_refused_by_name_before_anything_is_spent(
    folder: Path, grader: dict[str, object], reason: str
):
    cases = [{**case, "graders": [grader]} for case in support_cases(4)]
    (folder / "evals/support.yaml").write_text(yaml.safe_dump({"cases": cases}))
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
    assert campaign.status == "failed"
    assert campaign.ended is not None
    assert "the metric support is refused" in campaign.ended.reason
    assert reason in campaign.ended.reason
    assert campaign.ended.calls == {}
    assert campaign.proposals == 0


async def test_a_metric_that_is_always_too_late_is_refused_by_name(folder: Path):
    suite = {"cases": support_cases(4), "timeout_seconds": 0.001}
    (folder / "evals/support.yaml").write_text(yaml.safe_dump(suite))
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
    assert campaign.ended is not None
    assert "the metric support is refused: the right answers score 0%" in campaign.ended.reason
    assert campaign.ended.calls == {}


async def test_nothing_to_fix_ends_a_campaign_with_that_sentence(folder: Path):
    rules = "\n".join(rule for _, rule in TOPICS.values())
    (folder / "AGENTS.md").write_text(rules)
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
    assert campaign.status == "nothing"
    assert campaign.ended is not None
    assert "nothing to fix" in campaign.ended.reason
    assert campaign.proposals == 0


async def test_limits_are_never_exceeded_by_one_call(folder: Path):
    change(folder / "evolve.yaml", calls={"metric": 23, "proposer": 2})
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
    assert campaign.ended is not None
    calls = campaign.ended.calls
    assert calls.get("metric", 0) + calls.get("sealed", 0) <= 23
    assert calls.get("proposer", 0) <= 2


async def test_a_proposal_whose_price_may_exceed_the_limit_is_not_asked_for(folder: Path):
    change(folder / "evolve.yaml", budget_usd="1")
    asked: list[str] = []
    async with opened(folder) as campaigns:

        async def ask(
            key: str, system: str, question: str, reserve: ReserveMoney
        ) -> tuple[str, Decimal]:
            reserve(Decimal("0.6"))
            asked.append(key)
            answer, _ = await campaigns.ask(key, system, question, lambda _: None)
            return answer, Decimal("0.5")

        priced = replace(campaigns, ask=ask)
        campaign = await priced.run(await priced.start())
    assert len(asked) == 1
    assert campaign.ended is not None
    assert Decimal(campaign.ended.cost_usd) <= 1


async def test_a_campaign_without_money_for_one_proposal_says_so(folder: Path):
    change(folder / "evolve.yaml", budget_usd="0.1")
    async with opened(folder) as campaigns:

        async def ask(
            key: str, system: str, question: str, reserve: ReserveMoney
        ) -> tuple[str, Decimal]:
            reserve(Decimal("0.6"))
            raise AssertionError("sent without money")

        priced = replace(campaigns, ask=ask)
        campaign = await priced.run(await priced.start())
    assert campaign.ended is not None
    assert "the limit of 0.1 US dollars is reached" in campaign.ended.reason
    assert campaign.ended.calls.get("proposer", 0) == 0


async def test_pinned_files_and_protected_rules_are_not_changed(folder: Path):
    change(folder / "evolve.yaml", pinned=["AGENTS.md"], most_refusals=2)
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
    assert campaign.promotions == []
    reasons = {step.reason for step in campaign.steps if "quotes" not in step.reason}
    assert reasons == {"AGENTS.md is pinned"}


async def test_paused_campaigns_do_not_start(folder: Path):
    async with opened(folder) as campaigns:
        await campaigns.versions.pause("budget review", is_paused=True)
        with pytest.raises(InvalidInput, match="paused: budget review"):
            await campaigns.start()
        await campaigns.versions.pause("", is_paused=False)
        await campaigns.start()


async def test_a_folder_that_changed_after_the_campaign_is_not_overwritten(folder: Path):
    async with opened(folder) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
        (folder / "AGENTS.md").write_text("A person was here.\n")
        with pytest.raises(InvalidInput, match=r"AGENTS\.md has changed meanwhile"):
            await campaigns.promote(campaign.id)
    assert (folder / "AGENTS.md").read_text() == "A person was here.\n"
