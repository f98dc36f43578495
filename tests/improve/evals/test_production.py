"""A share of real sessions is graded: which ones, once, within a budget, beside the lab."""

import signal
import subprocess
import sys
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from tests.environ import clean_environ
from tests.improve.evals.suite_setup import MODEL, AgentWithSuite
from tests.improve.evals.test_run_crashes import event_count

from mainspring.core import clock, ids
from mainspring.core.envelope import AnyPayload
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    BudgetReserved,
    EvalCaseEnded,
    ModelRequestEnded,
    ModelRequestStarted,
)
from mainspring.core.sender import Origin
from mainspring.harness.thread_context import ignore_delta
from mainspring.improve.evals.production import (
    GradingReport,
    ProductionGrader,
    is_sampled,
    production_graders,
)
from mainspring.improve.evals.production_score import production_score
from mainspring.improve.evals.runs.run_log import existing_runs
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.suite import SuiteFile
from mainspring.log.session_lease import hold_session
from mainspring.runtime.agent_folder.production_settings import ManifestGrade
from mainspring.runtime.session.session_summary import origin_of

POLITE = {"type": "judge", "criteria": [{"name": "polite", "text": "It is polite."}]}
SUITE: dict[str, object] = {
    "graders": [{"type": "contains", "text": "hello"}, POLITE],
    "cases": [
        {"id": "greets", "input": "say hello"},
        {"id": "asks", "input": "ask", "graders": [{"type": "regex", "pattern": "[?]"}]},
    ],
}
JUDGE: dict[str, object] = {
    "when": "=== WORK",
    "steps": [{"says": '{"reason": "it is", "verdict": "met"}'}],
}
ALL = ManifestGrade(suite="basics", share=1.0, max_cost_usd_per_day=Decimal(1))


def later() -> datetime:
    return clock.now() + timedelta(hours=1)


def prepare(agent: AgentWithSuite) -> SuiteFile:
    rude: dict[str, object] = {"when": "be rude", "steps": [{"says": "go away"}]}
    agent.write_model(JUDGE, rude, {"steps": [{"says": "hello"}]})
    return agent.write_suite(SUITE)


async def talk(runner: SuiteRunner, text: str, origin: Origin | None = None) -> str:
    session = await runner.runtime.start(runner.agent, origin=origin or Origin(type="user"))
    await session.send(text)
    await session.run(ignore_delta)
    return session.id


async def grade(
    runner: SuiteRunner, suite: SuiteFile, stated: ManifestGrade = ALL
) -> GradingReport:
    grader = ProductionGrader(runner=runner, suite_file=suite, settings=stated, clock=later)
    return await grader.run()


async def grading_log(runner: SuiteRunner) -> list[AnyPayload]:
    log = runner.runtime.log
    payloads: list[AnyPayload] = []
    for run in await existing_runs(log, "tested", "basics (production)", newest=10):
        assert (await origin_of(log, await log.session(run.id))).type == "grader"
        payloads += [event.payload for event in await log.read(run.id)]
    return payloads


def test_sampling_depends_on_the_id_and_has_the_configured_share():
    names = [ids.new_id(ids.SESSION) for _ in range(4_000)]
    chosen = [name for name in names if is_sampled(name, 0.05)]
    assert 130 <= len(chosen) <= 270  # 5 standard deviations around 200
    assert chosen == [name for name in names if is_sampled(name, 0.05)]
    assert all(is_sampled(name, 0.2) for name in chosen)
    assert not any(is_sampled(name, 0.0) for name in names)


async def test_sampled_sessions_are_graded_once_and_compared_with_the_suite(agent: AgentWithSuite):
    suite = prepare(agent)
    await agent.run(suite)
    async with agent.runner() as runner:
        real = [await talk(runner, "hi"), await talk(runner, "be rude")]
        real.append(await talk(runner, "hi", Origin(type="api", id="key_1")))
        for kind in ("eval", "grader", "dream", "import"):
            await talk(runner, "be rude", Origin(type=kind))
        report = await grade(runner, suite)
        assert {ended.case_id for ended in report.graded} == set(real)
        assert not (await grade(runner, suite)).graded
        payloads = await grading_log(runner)
        verdicts = {
            item.case_id: item.outcome for item in payloads if isinstance(item, EvalCaseEnded)
        }
        assert [verdicts[name] for name in real] == ["passed", "failed", "passed"]
        assert "go away" not in str(payloads)  # what was said is in the session, and nowhere else
        assert not list((runner.verdicts / "production").iterdir())
        score = await production_score(runner.runtime.log, "tested", "basics")
    assert score is not None
    assert score.lab is not None
    assert (score.production.count, score.production.pass_rate) == (3, pytest.approx(2 / 3))
    assert score.production.interval.low < 2 / 3 < score.production.interval.high
    assert (score.lab.count, score.lab.pass_rate) == (2, 0.5)
    assert score.lab_by_same_graders is not None
    assert (score.lab_by_same_graders.count, score.lab_by_same_graders.pass_rate) == (1, 1.0)
    assert score.notes == ("judge not calibrated: 0 labels; judge of the judged model's family",)


async def test_a_running_or_waiting_session_is_not_graded_yet(agent: AgentWithSuite):
    suite = prepare(agent)
    async with agent.runner() as runner:
        session = await talk(runner, "hi")
        now = ProductionGrader(runner=runner, suite_file=suite, settings=ALL, clock=clock.now)
        assert not (await now.run()).graded
        async with hold_session(runner.runtime.log, session):
            assert not (await grade(runner, suite)).graded
        assert len((await grade(runner, suite)).graded) == 1


async def test_the_daily_budget_includes_requests_cut_off_by_a_crash(
    agent: AgentWithSuite,
):
    suite, today = prepare(agent), clock.now().date()
    async with agent.runner() as runner:
        await talk(runner, "hi")
        await grade(runner, suite)
        [day] = await existing_runs(runner.runtime.log, "tested", "basics (production)", newest=1)
        async with hold_session(runner.runtime.log, day.id) as writer:
            started = ModelRequestStarted(model="judge", purpose="judge")
            await writer.append(started, BudgetReserved(reservation_id="r", cost_usd="1.5"))
        later_one = await talk(runner, "hi again")
        if clock.now().date() != today:
            pytest.skip("it is midnight: the sessions are of two days, with a budget each")
        report = await grade(runner, suite)
        assert (report.graded, report.over_budget) == ([], 1)
        rich = ManifestGrade(suite="basics", share=1.0, max_cost_usd_per_day=Decimal(2))
        [ended] = (await grade(runner, suite, rich)).graded
        assert ended.case_id == later_one


def test_graders_that_need_a_case_are_refused_for_production_sessions(agent: AgentWithSuite):
    cases = [{"id": "a", "input": "hi", "gold": "x", "expect": "answer"}]
    for grader in (
        {"type": "file", "path": "a"},
        {"type": "command", "run": "true"},
        {"type": "equals"},
        {"type": "pairwise"},
        {"type": "trajectory", "in_context": "x"},
    ):
        suite = agent.write_suite({"graders": [grader], "cases": cases})
        with pytest.raises(InvalidInput, match=str(grader["type"])):
            production_graders(suite)
    with pytest.raises(InvalidInput, match="no `graders`"):
        production_graders(agent.write_suite({"cases": cases}))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_grading_killed_repeatedly_grades_and_records_once(
    agent: AgentWithSuite,
):
    prepare(agent)
    stated = "grade: {suite: basics, share: 1, max_cost_usd_per_day: 1}\n"
    (agent.folder / "agent.yaml").write_text(f"name: tested\n{stated}")
    async with agent.runner() as runner:
        real = {await talk(runner, f"hi {number}") for number in range(6)}
    command = [sys.executable, "-m", "mainspring", "eval", "grade", "--now", "-m", MODEL]
    for events in (1, 2, 3, 5, 7, 4, 6):
        before = event_count(agent)
        with subprocess.Popen(command, cwd=agent.folder, env=clean_environ()) as process:
            while process.poll() is None and event_count(agent) - before < events:
                pass
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=60)
    subprocess.run(command, cwd=agent.folder, env=clean_environ(), check=True, timeout=60)
    async with agent.runner() as runner:
        payloads = await grading_log(runner)
    graded = [item.case_id for item in payloads if isinstance(item, EvalCaseEnded)]
    assert sorted(graded) == sorted(real)
    answered = [item for item in payloads if isinstance(item, ModelRequestEnded)]
    assert len(answered) == len({item.model_request_start_id for item in answered})
