"""A function becomes a tool: its schema, what it accepts, and when it cannot be one."""

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from tests.function_tools.samples import Box, Colour, Leaf, Line, Options, Tree, failure_of, text_of

from mainspring.core.errors import InvalidInput
from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.function_tools.define import tool


def properties(made: Tool) -> dict[str, dict[str, object]]:
    found: Any = made.spec.input_schema["properties"]  # a schema is JSON of no fixed shape
    return found


@tool
def search(query: str, limit: int = 10, tags: list[str] | None = None) -> str:
    """Search the archive
    for documents.

    Slow on Sundays.

    Args:
        query: What to look for,
            in plain words.
        limit (int): How many at most.

    Returns:
        tags: not a parameter here.
    """
    return f"{query} {limit} {tags}"


@tool(name="paint-it", read_only=True, concurrent=True, max_chars=7)
async def paint(colour: Colour, line: Line, options: Options, how: Literal["fast", 1]) -> object:
    """Paint."""
    return {"colour": colour, "line": line, "options": options, "how": how}


def test_a_bare_decorator_takes_name_description_and_schema_from_the_function():
    assert (search.spec.name, search.spec.description) == (
        "search",
        "Search the archive for documents.",
    )
    assert search.spec.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for, in plain words."},
            "limit": {"type": "integer", "description": "How many at most.", "default": 10},
            "tags": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }


def test_the_function_can_still_be_called_directly():
    assert search.function("whales", limit=2) == "whales 2 None"


def test_options_become_name_and_traits():
    traits = paint.traits({})
    assert paint.spec.name == "paint-it"
    assert (traits.read_only, traits.concurrent, traits.max_chars) == (True, True, 7)
    assert traits.in_doubt == "retry"


def test_without_options_the_traits_are_the_safe_ones():
    traits = search.traits({})
    assert (traits.read_only, traits.concurrent, traits.in_doubt) == (False, False, "report")


async def test_a_probe_sets_in_doubt_to_probe_unless_overridden():
    async def probe(call: Call) -> ToolResult | None:
        return None

    def pay() -> None:
        """Pay."""

    assert tool(pay, probe=probe).traits({}).in_doubt == "probe"
    assert tool(pay, probe=probe, in_doubt="ask").traits({}).in_doubt == "ask"
    assert tool(pay, probe=probe).probe is probe


async def test_rich_types_are_converted_before_the_call():
    given = {
        "colour": "red",
        "line": {"start": {"x": 1}, "ends": [{"x": 2, "y": 3}]},
        "options": {"deep": True},
        "how": 1,
    }
    assert paint.invalid(given) is None
    assert msgspec.json.decode(await text_of(paint, **given)) == {
        **given,
        "line": {"start": {"x": 1, "y": 0}, "ends": [{"x": 2, "y": 3}]},
    }


def test_every_invalid_field_is_named_at_once_at_any_depth():
    given = {
        "color": "red",
        "line": {"ends": [{"x": "2"}, {"x": 1, "y": None}, {}]},
        "options": {"deep": 1, "depth": "x"},
        "how": "slow",
    }
    assert (paint.invalid(given) or "").splitlines() == [
        "The input is not valid:",
        "- colour: missing",
        "- line.start: missing",
        "- line.ends[0].x: expected `int`, got `str`",
        "- line.ends[1].y: expected `int`, got `null`",
        "- line.ends[2].x: missing",
        "- options.deep: expected `bool`, got `int`",
        "- options.depth: expected `int`, got `str`",
        "- how: must be one of 'fast', 1",
        "- color: unknown; the fields are: colour, line, options, how",
    ]


async def test_a_call_with_an_invalid_input_does_not_reach_the_function():
    ran: list[int] = []

    @tool
    def count(n: int) -> None:
        """Count."""
        ran.append(n)

    assert (
        await failure_of(count, n="1") == "The input is not valid:\n- n: expected `int`, got `str`"
    )
    assert ran == []


def test_unusual_types_are_validated_as_far_as_possible():
    def act(pair: tuple[int, str], one: int | list[int], box: Box[int, str], any_: object) -> None:
        """Act."""

    act.__annotations__["any_"] = Box
    made = tool(act)
    given = {
        "pair": ["1", 2],
        "one": [1, "2"],
        "box": {"first": "1", "second": "2"},
        "any_": {"first": 1},
    }
    assert (made.invalid(given) or "").splitlines()[1:] == [
        "- pair[0]: expected `int`, got `str`",
        "- pair[1]: expected `str`, got `int`",
        "- one[1]: expected `int`, got `str`",
        "- box.first: expected `int`, got `str`",
        "- any_.second: missing",
    ]
    assert "- pair: expected `array` of length 2" in (made.invalid({"pair": [1]}) or "")


def test_a_long_list_of_problems_is_shortened():
    @tool
    def total(numbers: list[int]) -> int:
        """Add."""
        return sum(numbers)

    assert (total.invalid({"numbers": ["x"] * 30}) or "").endswith("\n- and 10 more")


async def test_a_pydantic_model_can_be_a_parameter():
    @tool
    def grow(tree: Tree, spare: Leaf | None = None) -> Tree:
        """Grow.

        Args:
            tree: What grows.
        """
        assert isinstance(tree.leaves[0], Leaf)
        return tree

    assert properties(grow)["tree"]["description"] == "What grows."
    assert "Tree.Leaf" in msgspec.json.encode(grow.spec.input_schema).decode()
    assert grow.spec.input_schema["$defs"] == {"Tree.Leaf": Leaf.model_json_schema()}
    assert await text_of(grow, tree={"leaves": [{"size": 1}]}) == '{"leaves":[{"size":1}]}'
    assert grow.invalid({"tree": {"leaves": [{"size": "x"}, {}]}}) == (
        "The input is not valid:\n- tree: leaves.0.size: Input should be a valid integer, "
        "unable to parse string as an integer; leaves.1.size: Field required"
    )


@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\n:param size: How big.\n:param other: Unknown.\n:returns: nothing",
        "Do it.\n\nsize: How big.",
        "Do it.\n\n- `size`: How\n  big.",
        "Do it.\n\nsize - How big.",
        "Do it.\nArgs:\n  size (int, optional): How big.\nRaises:\n  size: never.",
    ],
)
def test_a_parameter_is_described_in_any_docstring_style(docstring: str):
    def act(size: int) -> None: ...

    act.__doc__ = docstring
    made = tool(act)
    assert made.spec.description == "Do it."
    assert properties(made)["size"]["description"] == "How big."


def test_an_annotation_overrides_the_docstring():
    @tool
    def act(
        a: Annotated[int, "The a."], b: Annotated[int, msgspec.Meta(description="The b.", ge=1)]
    ) -> None:
        """Act.

        Args:
            a: another a
            b: another b
        """

    described = {name: part["description"] for name, part in properties(act).items()}
    assert described == {"a": "The a.", "b": "The b."}
    assert act.invalid({"a": 1, "b": 0}) is not None


async def test_a_call_parameter_is_injected_and_not_in_the_schema():
    @tool
    async def where(what: str, call: Call) -> str:
        """Say where."""
        return f"{what} {call.id}"

    assert list(properties(where)) == ["what"]
    assert await text_of(where, what="at") == "at call_1"
    assert where.invalid({"what": "at", "call": {}}) is not None


def unhinted(x: int) -> None:
    """Act."""


del unhinted.__annotations__["x"]


def many(*x: int) -> None:
    """Act."""


def positional(x: int, /) -> None:
    """Act."""


def odd(x: int, stream: AsyncGenerator[int]) -> None:
    """Act."""


def late(x: int) -> None:
    """Act."""


late.__annotations__["x"] = "Nowhere"


def wordless(x: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unhinted, "tool unhinted: parameter x: a tool needs a type hint"),
        (many, "parameter x: a tool takes a fixed list"),
        (positional, "parameter x: a tool is called by name"),
        (odd, "parameter stream: its type has no JSON form"),
        (late, "a type hint names Nowhere"),
        (wordless, "it needs a docstring"),
        (lambda: None, "a tool's name is"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_a_reason(
    function: Callable[..., object], words: str
):
    with pytest.raises(InvalidInput, match=words):
        tool(function)


def test_in_doubt_probe_needs_a_probe():
    with pytest.raises(InvalidInput, match="needs probe="):
        tool(in_doubt="probe")(paint.function)
