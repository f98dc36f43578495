"""What people say of real sessions, and how suites do over time."""

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, results_of

from mainspring.core.sender import local_user
from mainspring.edges.cli.evals import eval as eval_command
from mainspring.edges.cli.evals.eval_trend import show_trend
from mainspring.improve.evals.reports.trend import REFERENCE_RUNS
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.improve.evals.scoring.labels import read_labels
from mainspring.improve.evals.suites.suite_files import read_suite
from mainspring.runtime.feedback import feedback_on_last_message

FRESH = RunSettings(fresh=True)
CASES = [
    {"id": f"c{at}", "input": "Say yes", "graders": [{"type": "contains", "text": ["yes"]}]}
    for at in range(10)
]


async def test_a_rated_session_becomes_a_labelled_case(agent: AgentWithSuite):
    agent.write_model({"steps": [{"says": "yes"}]})
    suite = agent.write_suite({"cases": CASES[:1]})
    session_id = results_of(await agent.run(suite), "c0")[0].session_id
    assert await eval_command.add(agent.settings, session=session_id, name="unrated") == 0
    async with agent.runner() as runner:
        log = runner.runtime.log
        rating = await feedback_on_last_message(log, session_id, "bad", "it should say why")
        await log.submit(session_id, rating, sender=local_user("ada"))
        writer = await log.hold(session_id, owner="w")
        await writer.fold_inbox()
        await writer.release()
    assert await eval_command.add(agent.settings, session=session_id, name="rated") == 0
    [label] = read_labels(read_suite(agent.folder / "evals/sessions.yaml"))
    assert (label.case_id, label.session_id, label.passed) == ("rated", session_id, False)
    assert (label.answer, label.text, label.by) == ("yes", "it should say why", "cli:ada")


async def test_a_suite_that_gets_worse_raises_an_alarm(
    agent: AgentWithSuite, capsys: pytest.CaptureFixture[str]
):
    agent.write_model({"steps": [{"says": "yes"}]})
    suite = agent.write_suite({"cases": CASES})
    for _ in range(REFERENCE_RUNS + 1):
        await agent.run(suite, settings=FRESH)
    assert await show_trend(agent.settings) == 0
    agent.write_model({"steps": [{"says": "no"}]})
    await agent.run(suite, settings=FRESH)
    assert await show_trend(agent.settings) == 1
    assert "passes less often than it did" in capsys.readouterr().out
