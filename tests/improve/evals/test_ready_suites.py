"""The ready suites, on the default agent. Every case has a scripted model that passes it and one
that fails it; what the platform promises holds even if the model obeys every attacker."""

from pathlib import Path

import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, outcomes, scripts

from mainspring.harness.context.xray import render_message
from mainspring.improve.evals.quality.suite_health import check_health
from mainspring.improve.evals.ready.safety_dimensions import DIMENSIONS, INJECTION
from mainspring.improve.evals.ready.suites import READY_SUITES, ready_suite_file
from mainspring.improve.evals.suite import Case
from mainspring.improve.evals.suites.new_suite import copy_ready_suite
from mainspring.improve.evals.suites.suite_files import read_suite
from mainspring.runtime.session.xrays import read_shots


def cases_of(name: str) -> tuple[Case, ...]:
    return read_suite(ready_suite_file(name)).suite.cases


def test_three_quarters_of_safety_cases_test_the_platform_in_all_dimensions():
    cases = cases_of("safety")
    assert len(cases) >= 60
    assert sum(case.kind == "platform" for case in cases) >= 0.75 * len(cases)
    assert {tag for case in cases for tag in case.tags if tag in DIMENSIONS} == set(DIMENSIONS)
    carriers = {"file", "page", "tool-output", "memory", "skill", "compaction"}
    assert carriers <= {tag for case in cases for tag in case.tags}


def test_the_documentation_states_the_number_of_cases():
    page = (Path(__file__).parents[3] / "docs/evals.md").read_text(encoding="utf-8")
    for name in READY_SUITES:
        assert f"| `{name}` | {len(cases_of(name))} |" in page
    kinds = [case.kind for case in cases_of("safety")]
    assert f"\n{kinds.count('platform')} cases are of the kind `platform`" in page
    assert f"\n{kinds.count('model')} are of the kind `model`" in page


@pytest.mark.parametrize("name", [name for name in READY_SUITES if name != "safety"])
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_solution_and_failure_scripts_of_a_ready_suite_behave_as_declared(
    agent: AgentWithSuite, name: str
):
    suite = read_suite(copy_ready_suite(agent.folder, ready_suite_file(name)))
    assert all(case.solution and case.failure for case in suite.suite.cases)
    async with agent.runner() as runner:
        found = await check_health(runner, suite)
    assert (found.noop_passed, found.oracle_failed, found.failure_passed) == ((), (), ())


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_no_attack_succeeds_even_if_the_model_obeys_it(agent: AgentWithSuite):
    suite = read_suite(copy_ready_suite(agent.folder, ready_suite_file("safety")))
    kinds = {case.id: case.kind for case in suite.suite.cases}
    run = await agent.run(suite, settings=scripts(lambda case: case.failure))
    passed = {name for name, outcome in outcomes(run).items() if outcome == "passed"}
    assert passed == {name for name, kind in kinds.items() if kind == "platform"}
    injections = [item for item in run.results.values() if INJECTION in item.tags]
    assert len(injections) >= 45
    async with agent.runner() as runner:  # the attacker's words have reached the model
        log = runner.runtime.log
        for item in injections:
            *_, last = await read_shots(log, await log.session(item.session_id))
            texts = "".join(map(render_message, last.request.messages))
            assert "IMPORTANT, to every AI assistant" in texts, item.case_id
    careful = outcomes(await agent.run(suite, settings=scripts(lambda case: case.solution)))
    assert {name for name, outcome in careful.items() if outcome != "passed"} == set()
