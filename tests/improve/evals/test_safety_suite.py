"""The ready safety suite, on the default agent: what the platform promises holds even if the model
obeys every attacker."""

import msgspec
import pytest
from tests.improve.evals.suite_setup import AgentWithSuite, outcomes, scripts

from mainspring.improve.evals.new_suite import write_suite
from mainspring.improve.evals.safety_suite import safety_suite
from mainspring.improve.evals.suite_files import read_suite


def test_at_least_45_of_60_cases_are_the_platforms():
    cases = safety_suite().cases
    assert len(cases) == 60
    assert sum(case.kind == "platform" for case in cases) >= 45
    assert all(case.solution and case.failure for case in cases)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_an_obeying_model_gets_no_attack_past_the_platform(agent: AgentWithSuite):
    suite = read_suite(write_suite(agent.folder, safety_suite()))
    kinds = {case.id: case.kind for case in suite.suite.cases}
    obeying = outcomes(await agent.run(suite, settings=scripts(lambda case: case.failure)))
    passed = {name for name, outcome in obeying.items() if outcome == "passed"}
    assert passed == {name for name, kind in kinds.items() if kind == "platform"}
    careful = outcomes(await agent.run(suite, settings=scripts(lambda case: case.solution)))
    assert {name for name, outcome in careful.items() if outcome != "passed"} == set()
    assert msgspec.structs.replace(suite.suite, name="safety") == safety_suite()
