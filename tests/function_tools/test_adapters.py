"""Tools of other libraries: of LangChain by its methods, functions with an OpenAI definition."""

import pydantic
import pytest
from tests.function_tools.samples import failure_of, text_of

from mainspring.core.errors import InvalidInput
from mainspring.tools import from_langchain, from_openai

SUM = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


class Arguments(pydantic.BaseModel):
    city: str


class Weather:
    """What `langchain_core.tools.tool` makes of a function has these, and more."""

    name = "weather"
    description = "Tell the weather."
    tool_call_schema = Arguments

    async def ainvoke(self, input: dict[str, object]) -> str:
        return f"sunny in {Arguments.model_validate(input).city}"


def add(a: int, b: int) -> int:
    return a + b


async def test_a_tool_of_langchain_is_a_tool():
    made = from_langchain(Weather(), read_only=True)
    assert made.spec.input_schema["required"] == ["city"]
    assert made.traits({}).read_only
    assert await text_of(made, city="Rome") == "sunny in Rome"
    assert made.invalid({}) == "The input is not valid:\n- city: missing"
    assert "valid string" in await failure_of(made, city=1)


async def test_a_function_with_an_openai_definition_is_a_tool():
    for definition in (SUM, SUM["function"]):
        made = from_openai(definition, add)  # pyright: ignore[reportArgumentType] (a plain dict)
        assert (made.spec.name, made.spec.description) == ("add", "Add two numbers.")
        assert await text_of(made, a=1, b=2) == "3"
        assert made.invalid({"a": 1, "c": 2}) == (
            "The input is not valid:\n- b: missing\n- c: unknown; the fields are: a, b"
        )
    with pytest.raises(InvalidInput, match="has a name, a description and parameters"):
        from_openai({"name": "add"}, add)
