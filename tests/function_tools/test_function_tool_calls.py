"""A function that is a tool runs: what it gives back, how it fails, where it runs."""

import threading
from collections.abc import Callable

import anyio
import anyio.from_thread
import pytest
from tests.function_tools.samples import Leaf, Point, call, failure_of, text_of

from mainspring.core.content import Base64Source, ImageBlock, TextBlock
from mainspring.core.tool import ToolResult
from mainspring.function_tools.define import FunctionTool, ToolError, tool

IMAGE = ImageBlock(source=Base64Source(media_type="image/png", data="AA=="))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("done", (TextBlock("done"),)),
        ("", (TextBlock("(no result)"),)),
        (None, (TextBlock("(no result)"),)),
        ({"a": [1, None]}, (TextBlock('{"a":[1,null]}'),)),
        ([1, 2], (TextBlock("[1,2]"),)),
        (Point(1), (TextBlock('{"x":1,"y":0}'),)),
        (Leaf(size=2), (TextBlock('{"size":2}'),)),
        (IMAGE, (IMAGE,)),
        (["see", IMAGE, 3], (TextBlock("see"), IMAGE, TextBlock("3"))),
        ("half \udc80", (TextBlock("half ?"),)),
    ],
)
async def test_the_return_value_becomes_content(value: object, content: tuple[object, ...]):
    @tool
    def give() -> object:
        """Give."""
        return value

    assert await give.run(call()) == ToolResult(content)  # pyright: ignore[reportArgumentType]


async def test_a_tool_result_is_passed_on_unchanged():
    mine = ToolResult.text("no", ok=False)

    @tool
    async def give() -> ToolResult:
        """Give."""
        return mine

    assert await give.run(call()) is mine


async def test_a_tool_error_is_reported_in_its_own_words():
    @tool
    def find(name: str) -> str:
        """Find."""
        raise ToolError(f"no file {name}; try another")

    assert await failure_of(find, name="x") == "no file x; try another"


def quits() -> None:
    raise SystemExit(3)


def divides() -> float:
    secret = 0
    return 1 / secret


def is_silent() -> None:
    raise LookupError


def gives_no_json() -> object:
    return threading.Lock()


async def fails_in_a_group() -> None:
    async with anyio.create_task_group():
        raise ToolError("one of them failed")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (quits, "SystemExit: 3"),
        (divides, "ZeroDivisionError: division by zero"),
        (is_silent, "LookupError"),
        (gives_no_json, "TypeError: a lock has no JSON form"),
        (fails_in_a_group, "one of them failed"),
    ],
)
async def test_any_exception_becomes_a_one_line_result(function: Callable[[], object], words: str):
    assert await failure_of(tool(function, description="Fail.")) == words


async def test_a_function_that_is_not_async_runs_in_a_thread():
    @tool
    def name_thread() -> str:
        """Name the thread."""
        return threading.current_thread().name

    assert await text_of(name_thread) != threading.current_thread().name


async def test_cancelling_does_not_wait_for_a_thread():
    entered, release = anyio.Event(), threading.Event()

    @tool
    def hang() -> None:
        """Hang."""
        anyio.from_thread.run_sync(entered.set)
        release.wait(90)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(text_of, hang)
            await entered.wait()
            group.cancel_scope.cancel()
    assert not release.is_set()
    release.set()


async def test_a_timeout_is_reported_to_the_model():
    @tool(timeout_seconds=0.01)
    async def sleep() -> None:
        """Sleep."""
        await anyio.sleep_forever()

    assert "longer than 0.01 s" in await failure_of(sleep)
    assert isinstance(sleep, FunctionTool)
