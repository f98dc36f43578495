"""Calls a function, and makes a result that a model can read of what it returned or raised."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast, get_args

import msgspec
from anyio import to_thread

from mainspring.core.content import Block, TextBlock
from mainspring.core.errors import MainspringError
from mainspring.core.tool import ToolResult
from mainspring.function_tools.input_types import encode_model

_BLOCKS: tuple[type, ...] = get_args(Block)
_NOTHING = "(no result)"  # providers refuse an empty text


class ToolError(MainspringError):
    """Raised by a tool's function: what the model is to read about an expected failure."""


async def call_function(function: Callable[..., object], arguments: Mapping[str, object]) -> object:
    """Call a function of the user, in a thread unless it is async."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    # A thread cannot be stopped: waiting for it would let one slow function hold up a cancel.
    returned = await to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)
    return await returned if inspect.isawaitable(returned) else returned


def to_tool_result(value: object) -> ToolResult:
    match value:
        case ToolResult():
            return value
        case None | "":
            return ToolResult.text(_NOTHING)
        case str():
            return ToolResult((_text(value),))
        case list() | tuple():
            parts = cast("list[object]", value)
            if any(isinstance(part, _BLOCKS) for part in parts):
                return ToolResult(tuple(_block(part) for part in parts))
        case _ if isinstance(value, _BLOCKS):
            return ToolResult((cast("Block", value),))
        case _:
            pass
    return ToolResult.text(msgspec.json.encode(value, enc_hook=encode_model).decode())


def error_result(error: BaseException) -> ToolResult:
    """What went wrong, in a line: no traceback, whose lines and locals are nobody's business."""
    return ToolResult((_text(_error_text(error)),), ok=False)


def _error_text(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(_error_text(part) for part in group.exceptions)
    words = str(error)
    if isinstance(error, ToolError) and words:
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _block(part: object) -> Block:
    if isinstance(part, str):
        return _text(part)
    if isinstance(part, _BLOCKS):
        return cast("Block", part)
    return _text(msgspec.json.encode(part, enc_hook=encode_model).decode())


def _text(text: str) -> TextBlock:
    """File names and broken output hold half characters, which no log and no model takes."""
    return TextBlock(text.encode("utf-8", "replace").decode())
