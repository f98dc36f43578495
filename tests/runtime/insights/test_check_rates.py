"""The accept rate of answer checks, in the report of `mainspring insights`."""

from pathlib import Path

import anyio
from tests.harness.killable_sandbox_worker import settings_of

from mainspring.capabilities.providers.scripted import Scripted, says
from mainspring.hooks import AnswerCheck
from mainspring.runtime.agent import Agent
from mainspring.runtime.insights.insight_report import build_report
from mainspring.wiring.runtime_assembly import open_runtime


def polite(answer: str) -> str | None:
    return None if "please" in answer else "say please"


async def test_the_report_counts_the_answers_that_each_check_accepted(tmp_path: Path):
    agent = Agent(model="scripted:w", checks=[AnswerCheck(max_chars=20), polite])
    model = Scripted(
        says("Far too long an answer for that, please."), says("Sit."), says("Sit, please.")
    )
    with anyio.fail_after(60):
        async with open_runtime(settings_of(tmp_path)) as runtime:
            runtime.models.put(agent.model, model)
            session = await runtime.start(agent, "What should I do?")
            result = await session.run()
            assert result is not None
            assert not result.failed_checks
            report = await build_report(runtime.log)
    rates = {rate.name: (rate.accepted, rate.answers) for rate in report.checks}
    assert sorted(rates.values()) == [(2, 3), (2, 3)]
    assert "polite" in rates
