"""A task is given to the models that its rules, or a classifier, name."""

from collections.abc import Callable

import pytest
from tests.providers.fake_models import Fake, answer, fails, fleet, request, says

from mainspring.capabilities.providers.router import Router
from mainspring.capabilities.providers.routing_rules import (
    ModelCandidate,
    Routing,
    RoutingRule,
    RoutingTask,
)
from mainspring.core.errors import InvalidInput
from mainspring.core.model import Request, ToolSpec

MAIN, SPARE, THIRD = "anthropic:opus", "openai:gpt", "gemini:flash"
READ = ToolSpec(name="read", description="", input_schema={})


@pytest.mark.parametrize(
    ("task", "tools", "answers"),
    [
        (RoutingTask(), 0, SPARE),
        (RoutingTask(agent="reviewer-go"), 3, THIRD),
        (RoutingTask(skills=("pdf", "summarize")), 3, SPARE),
        (RoutingTask(), 3, MAIN),
    ],
)
async def test_rules_choose_by_agent_skill_and_tools(task: RoutingTask, tools: int, answers: str):
    rules = [
        RoutingRule(use=THIRD, agent="reviewer-*"),
        RoutingRule(use=SPARE, skill="summarize"),
        RoutingRule(use=SPARE, max_tools=0),
    ]
    models = {name: Fake(says(name)) for name in (MAIN, SPARE, THIRD)}
    route = fleet(models, rules=rules).route(task)
    assert (await answer(route, request(tools=(READ,) * tools))).model == answers


async def test_a_chosen_model_that_fails_falls_back_to_the_others():
    models = {MAIN: Fake(says("ok")), SPARE: Fake(fails("forbidden"))}
    assert (await answer(fleet(models, rules=[RoutingRule(use=SPARE)]).route())).model == MAIN


async def test_a_classifier_is_asked_once_per_route():
    asked: list[str] = []

    async def classify(task: RoutingTask, _request: Request) -> str:
        asked.append(task.agent)
        return "small"

    routing = Routing(
        {
            "main": [ModelCandidate(id=MAIN, model=Fake(says("no")))],
            "small": [ModelCandidate(id=SPARE, model=Fake(says("ok")))],
        },
        classifier=classify,
    )
    route = Router(routing).route(RoutingTask(agent="a"))
    assert (await answer(route)).model == SPARE
    assert (await answer(route)).model == SPARE
    assert asked == ["a"]


def _unknown() -> Routing:
    candidate = ModelCandidate(id=MAIN, model=Fake(says("ok")))
    return Routing({"main": [candidate]}, [RoutingRule(use="nobody")])


@pytest.mark.parametrize("make", [_unknown, lambda: Routing({"main": []})])
def test_an_invalid_routing_is_refused(make: Callable[[], Routing]):
    with pytest.raises(InvalidInput):
        make()


async def test_a_role_without_models_uses_the_main_models():
    route = fleet({MAIN: Fake(says("ok"))}).route(RoutingTask(role="judge"))
    assert (await answer(route)).model == MAIN
