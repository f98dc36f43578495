"""The tools that only say something: todo, think, ask_user."""

import pytest
from tests.function_tools.samples import call, text_of

from mainspring.capabilities.tools.ask_user import ASK_USER, CLIENT_INPUT_CHECKS
from mainspring.capabilities.tools.think import think
from mainspring.capabilities.tools.todo import todo
from mainspring.core.content import plain_text
from mainspring.core.events import Todo, TodosWritten


def items(*statuses: str) -> list[dict[str, str]]:
    return [{"content": f"step {at}", "status": status} for at, status in enumerate(statuses)]


async def test_the_list_goes_to_the_log_and_back_to_the_model():
    outcome = await todo().run(call(todos=items("completed", "in_progress", "pending")))
    assert plain_text(outcome.content) == "1 of 3 done:\n[x] step 0\n[>] step 1\n[ ] step 2"
    assert outcome.facts == (
        TodosWritten(
            todos=(
                Todo(content="step 0", status="completed"),
                Todo(content="step 1", status="in_progress"),
                Todo(content="step 2", status="pending"),
            )
        ),
    )


async def test_a_list_can_be_emptied():
    assert (await todo().run(call(todos=[]))).facts == (TodosWritten(todos=()),)


@pytest.mark.parametrize(
    ("todos", "word"),
    [
        (items("in_progress", "in_progress"), "todos[0], todos[1]"),
        (items("done"), "status"),
        ([{"content": " ", "status": "pending"}], "content"),
        ([{"content": "x"}], "status: missing"),
        ("all", "todos"),
        (items(*["pending"] * 101), "at most 100"),
    ],
)
async def test_a_wrong_list_is_explained_and_not_kept(todos: object, word: str):
    made = todo()
    assert word in (made.invalid({"todos": todos}) or "")
    outcome = await made.run(call(todos=todos))
    assert not outcome.ok
    assert outcome.facts == ()


def test_lists_of_one_turn_do_not_overtake_each_other():
    traits = todo().traits({})
    assert (traits.read_only, traits.concurrent, traits.in_doubt) == (True, False, "retry")


async def test_a_thought_does_nothing():
    assert await text_of(think(), thought="hm") == "Noted."
    assert think().traits({}).read_only


def question(**more: object) -> dict[str, object]:
    options = [{"label": "A", "description": "the first"}, {"label": "B"}]
    return {"question": "Which?", "header": "Way", "options": options, **more}


def test_questions_have_the_shape_that_clients_know():
    assert ASK_USER.name == "ask_user"
    assert CLIENT_INPUT_CHECKS["ask_user"]({"questions": [question(multiSelect=True)]}) is None


@pytest.mark.parametrize(
    ("questions", "word"),
    [
        ([], "questions"),
        ([question()] * 5, "questions"),
        ([question(), question()], "same"),
        ([question(options=[{"label": "A"}])], "options"),
        ([question(options=[{"label": "A"}, {"label": "A"}])], "same label"),
        ([question(header="")], "header"),
        ([question(multiSelect="yes")], "multiSelect"),
        ([question(extra=1)], "extra"),
        ([{"question": "Which?"}], "options: missing"),
    ],
)
def test_nobody_is_asked_nonsense(questions: object, word: str):
    assert word in (CLIENT_INPUT_CHECKS["ask_user"]({"questions": questions}) or "")
