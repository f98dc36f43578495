"""Runs of suites: results, unchanged cases, budgets, timeouts, and runs that were cut off."""

from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, new_agent, outcomes, results_of, scripts

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvalCaseEnded, MemoryRecalled, UtilityCredited
from mainspring.improve.evals.runs.case_selection import Selection
from mainspring.improve.evals.runs.run_log import EvalRun, list_runs, read_run
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.improve.evals.runs.trial_credit import credit_trial
from mainspring.runtime.session.session_summary import origin_of


class CutOff(Exception):
    pass


CASES = [
    {"id": "greets", "input": "Say hello", "graders": [{"type": "contains", "text": "hello"}]},
    {
        "id": "parts",
        "input": "Say bye",
        "tags": ["slow"],
        "tier": "full",
        "graders": [{"type": "contains", "text": ["hello", "bye"]}],
    },
]


async def test_trials_are_separate_sessions_graded_from_their_logs(agent: AgentWithSuite):
    run = await agent.run(agent.write_suite({"cases": CASES, "trials": 2}))
    assert outcomes(run) == {"greets": "passed passed", "parts": "failed failed"}
    assert run.ended is not None
    assert (run.ended.status, run.ended.passed, run.ended.failed) == ("completed", 2, 2)
    failed = results_of(run, "parts")[0]
    assert [(check.name, check.passed) for check in failed.grades[0].checks] == [
        ("contains hello", True),
        ("contains bye", False),
    ]
    async with agent.runner() as runner:
        log = runner.runtime.log
        origin = await origin_of(log, await log.session(failed.session_id))
        assert (origin.type, origin.id) == ("eval", run.id)
        assert (await read_run(log, run.id)).results == run.results


async def test_only_changed_cases_are_run_again(agent: AgentWithSuite):
    suite = agent.write_suite({"cases": CASES})
    first = await agent.run(suite)
    again = await agent.run(suite)
    assert agent.results == []
    assert {item.from_run for item in again.results.values()} == {first.id}
    assert again.cost_usd == Decimal(0)
    changed = agent.write_suite({"cases": [{**CASES[0], "input": "Say hello!"}, CASES[1]]})
    await agent.run(changed)
    assert [item.case_id for item in agent.results] == ["greets"]
    agent.write_model({"steps": [{"says": "hello and bye"}]})
    assert outcomes(await agent.run(changed)) == {"greets": "passed", "parts": "passed"}
    (agent.folder / "AGENTS.md").write_text("Be brief.", encoding="utf-8")
    await agent.run(changed)
    assert len(agent.results) == 2
    await agent.run(changed, settings=RunSettings(fresh=True))
    assert len(agent.results) == 2


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(cases=("parts",)), ["parts"]),
        (Selection(tags=("slow",)), ["parts"]),
        (Selection(tier="fast"), ["greets"]),
        (Selection(tier="full"), ["greets", "parts"]),
        (Selection(only_failed=True), ["parts"]),
    ],
    ids=str,
)
async def test_cases_are_selected_by_id_tag_tier_and_last_result(
    agent: AgentWithSuite, selection: Selection, expected: list[str]
):
    suite = agent.write_suite({"cases": CASES})
    await agent.run(suite)
    assert sorted(outcomes(await agent.run(suite, selection))) == expected


async def test_a_selection_without_cases_is_refused(agent: AgentWithSuite):
    suite = agent.write_suite({"cases": CASES})
    for selection in (Selection(cases=("gone",)), Selection(tags=("gone",))):
        with pytest.raises(InvalidInput, match=r"gone|no case"):
            await agent.run(suite, selection)


async def test_an_interrupted_run_continues_and_runs_no_trial_twice(agent: AgentWithSuite):
    suite = agent.write_suite({"cases": CASES, "trials": 3, "parallel": 1})
    seen: list[EvalCaseEnded] = []

    def stop_after_two(item: EvalCaseEnded) -> None:
        seen.append(item)
        if len(seen) == 2:
            raise CutOff

    async with agent.runner() as runner:
        plan = await runner.plan(suite, Selection(), RunSettings())
        with pytest.raises(CutOff):
            await runner.run(suite, plan, RunSettings(), stop_after_two)
    run = await agent.run(suite)
    assert run.id == plan.created.run_id
    assert len(agent.results) == 4
    assert outcomes(run) == {"greets": "passed passed passed", "parts": "failed failed failed"}
    async with agent.runner() as runner:
        assert len(await list_runs(runner.runtime.log, "tested", "basics")) == 1


async def test_a_case_that_times_out_fails_and_the_others_continue(agent: AgentWithSuite):
    agent.write_model(
        {
            "when": "hang",
            "steps": [{"calls": [{"tool": "bash", "input": {"command": "sleep 50"}}]}],
        },
        {"steps": [{"says": "hello"}]},
    )
    hangs = {**CASES[0], "id": "hangs", "input": "hang", "timeout_seconds": 1.5}
    hangs["mode"] = "bypassPermissions"
    with anyio.fail_after(40):
        run = await agent.run(agent.write_suite({"cases": [hangs, CASES[0]]}))
    assert outcomes(run) == {"hangs": "failed", "greets": "passed"}
    assert results_of(run, "hangs")[0].error == "it took more than 1.5 s"


async def test_a_run_stops_before_its_budget_is_exceeded(agent: AgentWithSuite):
    (agent.folder / ".mainspring").mkdir(exist_ok=True)
    suite = agent.write_suite({"cases": CASES, "trials": 3, "parallel": 1})
    async with agent.runner() as runner:
        settings = RunSettings(budget_usd=Decimal("-1"))
        plan = await runner.plan(suite, Selection(), settings)
        run = await runner.run(suite, plan, settings)
    assert run.ended is not None
    assert run.ended.status == "budget_reached"
    assert set(outcomes(run).values()) == {"error"}
    assert len(run.results) == 1


async def test_a_model_failure_is_an_error_and_is_retried_by_the_next_run(agent: AgentWithSuite):
    agent.write_model({"when": "never", "steps": [{"says": "hello"}]})
    suite = agent.write_suite({"cases": CASES[:1]})
    run = await agent.run(suite)
    assert outcomes(run) == {"greets": "error"}
    assert "has no part for" in (results_of(run, "greets")[0].error or "")
    await agent.run(suite)
    assert len(agent.results) == 1


async def test_a_trial_writes_memories_only_if_its_case_enables_them(tmp_path: Path):
    note = {"name": "Tabs", "description": "style", "text": "Use tabs."}
    call = {"tool": "memory_write", "input": {"note": note, "reason": "told"}}
    case = {
        "input": "Remember it.",
        "files": {"memory/MEMORY.md": ""},
        "approvals": "allow",
        "graders": [{"type": "file", "path": "memory/reference_tabs.md"}],
        "solution": {"steps": [{"calls": [call]}, {"says": "done"}]},
    }
    agent = new_agent(tmp_path / "agent")
    suite = agent.write_suite(
        {"cases": [{**case, "id": "usual"}, {**case, "id": "on", "memory": "on"}]}
    )
    run = await agent.run(suite, settings=scripts(lambda case: case.solution))
    assert outcomes(run) == {"usual": "failed", "on": "passed"}


async def test_memories_are_credited_only_if_the_case_enables_memory(
    tmp_path: Path,
):
    agent = new_agent(tmp_path / "agent")
    agent.home = tmp_path / "home"
    own = agent.home / ".mainspring/memory/procedure_release.md"
    own.parent.mkdir(parents=True)
    own.write_text("---\ntype: procedure\n---\n\nWe release with the script deploy.sh.\n")
    case = {
        "input": "With which script do we release?",
        "files": {"memory/procedure_case.md": "We release with the script case.sh."},
        "graders": [{"type": "contains", "text": "hello"}],
    }
    bad = {**case, "graders": [{"type": "contains", "text": "goodbye"}]}
    suite = agent.write_suite(
        {
            "cases": [
                {**case, "id": "usual"},
                {**case, "id": "on", "memory": "on"},
                {**bad, "id": "bad", "memory": "on"},
            ]
        }
    )
    credits: dict[str, list[tuple[str, float, str]]] = {}
    async with agent.runner() as runner:
        plan = await runner.plan(suite, Selection(), RunSettings())
        run = await runner.run(suite, plan, RunSettings())
        for (name, _), ended in run.results.items():
            read = [event.payload for event in await runner.runtime.log.read(ended.session_id)]
            recalled = [item.store_id for item in read if isinstance(item, MemoryRecalled)]
            assert {"agent", "user"} == set(recalled), name
            credits[name] = [
                (item.subject.id, item.reward, item.source)
                for item in read
                if isinstance(item, UtilityCredited)
            ]
        await credit_trial(
            runner.runtime.log, run.id, suite.suite.cases[1], ended_of(run, "on"), ()
        )
        again = await runner.runtime.log.read(ended_of(run, "on").session_id)
    subject = "user/procedure_release.md"
    assert credits == {
        "usual": [],
        "on": [(subject, 1.0, "eval")],
        "bad": [(subject, 0.0, "eval")],
    }
    assert sum(isinstance(event.payload, UtilityCredited) for event in again) == 1


def ended_of(run: EvalRun, case_id: str) -> EvalCaseEnded:
    (ended,) = results_of(run, case_id)
    return ended
