"""The tools that only say something: think, ask_user."""

import pytest
from tests.function_tools.samples import text_of

from mainspring.capabilities.tools.ask_user import ASK_USER, CLIENT_INPUT_CHECKS
from mainspring.capabilities.tools.think import think


async def test_a_thought_does_nothing():
    assert await text_of(think(), thought="hm") == "Noted."
    assert think().traits({}).read_only


def question(**more: object) -> dict[str, object]:
    options = [{"label": "A", "description": "the first"}, {"label": "B"}]
    return {"question": "Which?", "header": "Way", "options": options, **more}


def test_questions_have_the_format_that_clients_know():
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
def test_invalid_questions_are_refused(questions: object, word: str):
    assert word in (CLIENT_INPUT_CHECKS["ask_user"]({"questions": questions}) or "")
