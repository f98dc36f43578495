"""Cases made of sessions, run offline; tools that fail, and services that a case brings."""

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, outcomes, results_of, scripts

from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals import eval as eval_command
from mainspring.improve.evals.runs.runner import RunSettings
from mainspring.improve.evals.suites.suite_files import read_suite
from mainspring.improve.evals.trajectory import read_trajectory

STAMP = "2026-11-17"
STEPS: list[object] = [
    {"calls": [{"tool": "bash", "input": {"command": f"echo built {STAMP} > out.txt; ls"}}]},
    {"says": "It is built."},
]


async def recorded_session(agent: AgentWithSuite) -> str:
    agent.write_model({"steps": STEPS})
    case = {"id": "build", "input": "Build it", "mode": "bypassPermissions", "expect": "answer"}
    run = await agent.run(agent.write_suite({"cases": [case]}))
    assert outcomes(run) == {"build": "passed"}
    return results_of(run, "build")[0].session_id


async def test_a_session_becomes_a_case_that_runs_without_tools_and_model(
    agent: AgentWithSuite,
):
    session_id = await recorded_session(agent)
    assert await eval_command.add(agent.settings, session=session_id, name="again") == 0
    assert await eval_command.add(agent.settings, session=session_id, name="twice") == 0
    suite = read_suite(agent.folder / "evals/sessions.yaml")
    assert [case.source for case in suite.suite.cases] == [session_id] * 2
    agent.write_model({"when": "never", "steps": [{"says": "x"}]})  # no model answers any more
    run = await agent.run(suite, settings=RunSettings(offline="all"))
    assert set(outcomes(run).values()) == {"passed"}
    async with agent.runner() as runner:
        log = await runner.runtime.log.read(results_of(run, "again")[0].session_id)
    [call] = read_trajectory(log).calls
    assert "out.txt" in call.result  # as recorded: this workspace has no such file
    assert results_of(run, "again")[0].error is None
    assert list((agent.folder / ".mainspring/evals").glob("*/again*/workspace/out.txt")) == []


async def test_a_live_model_gets_recorded_results_with_masked_inputs(
    agent: AgentWithSuite,
):
    session_id = await recorded_session(agent)
    await eval_command.add(agent.settings, session=session_id, name="again")
    file = agent.folder / "evals/sessions.yaml"
    later = [
        {"calls": [{"tool": "bash", "input": {"command": "echo built 2027-01-01 > out.txt; ls"}}]},
        {"says": "It is built."},
    ]
    agent.write_model({"steps": later})
    text = file.read_text(encoding="utf-8").replace("max_turns: 4", "max_failed_calls: 0")
    file.write_text(text, encoding="utf-8")
    run = await agent.run(read_suite(file), settings=RunSettings(offline="tools"))
    assert outcomes(run) == {"again": "failed"}
    file.write_text(text + '    masks: ["\\\\d{4}-\\\\d{2}-\\\\d{2}"]\n', encoding="utf-8")
    run = await agent.run(read_suite(file), settings=RunSettings(offline="tools"))
    assert outcomes(run) == {"again": "passed"}


async def test_a_suite_file_that_does_not_end_with_its_cases_is_refused(
    agent: AgentWithSuite,
):
    session_id = await recorded_session(agent)
    (agent.folder / "evals/other.yaml").write_text("cases: []\ntrials: 1\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="the last part of the file"):
        await eval_command.add(agent.settings, session=session_id, suite="other")


async def test_tools_fail_as_the_case_declares_and_its_services_answer(agent: AgentWithSuite):
    def glob(times: int) -> list[object]:
        return [{"calls": [{"tool": "glob", "input": {"pattern": "*"}}]}] * times

    def case(name: str, fault: str, expected: str, steps: list[object]) -> dict[str, object]:
        return {
            "id": name,
            "input": "look",
            "files": {"alpha.txt": "x", "omega.txt": "y"},
            "faults": [{"tool": "glob", "fault": fault, "seconds": 0.05}],
            "graders": [{"type": "bounds", "max_failed_calls": 0}],
            "tags": [expected],
            "solution": {"steps": [*steps, {"says": "done"}]},
        }

    ask = {"calls": [{"tool": "weather", "input": {"city": "Rome"}}]}
    weather = {
        "tool": "weather",
        "description": "The weather of a city.",
        "answers": {'{"city":"Rome"}': "sunny"},
    }
    cases: list[dict[str, object]] = [
        case("busy", "429", "failed", glob(1)),
        case("broken", "500", "failed", glob(1)),
        case("late", "timeout", "failed", glob(1)),
        case("slow", "slow", "passed", glob(1)),
        case("cut", "cut_off", "passed", glob(1)),
        case("second-is-fine", "500", "failed", glob(2)),
        {
            "id": "service",
            "input": "weather?",
            "services": [weather],
            "mode": "bypassPermissions",
            "tags": ["passed"],
            "graders": [{"type": "trajectory", "used": ["weather"]}],
            "solution": {"steps": [{**ask}, {"says": "sunny", "expects": "sunny"}]},
        },
    ]
    suite = agent.write_suite({"cases": cases})
    run = await agent.run(suite, settings=scripts(lambda case: case.solution))
    expected = {case.id: case.tags[0] for case in suite.suite.cases}
    assert outcomes(run) == expected
    failed = {item.case_id: item.failed_calls for item in run.results.values()}
    assert failed["second-is-fine"] == 1
