"""Calls a function and turns its return value or exception into a result for the model."""

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
_NO_RESULT = "(no result)"  # providers reject an empty text


class ToolError(MainspringError):
    """Raised by a tool's function for an expected failure; the model reads the message."""


async def call_function(function: Callable[..., object], arguments: Mapping[str, object]) -> object:
    """Call a function of the user, in a thread unless it is async."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    # A thread cannot be stopped: waiting for it would let one slow function delay a cancel.
    returned = await to_thread.run_sync(partial(function, **arguments), abandon_on_cancel=True)
    return await returned if inspect.isawaitable(returned) else returned


def to_tool_result(value: object) -> ToolResult:
    match value:
        case ToolResult():
            return value
        case None | "":
            return ToolResult.text(_NO_RESULT)
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
    """The error in one line, without a traceback, which may contain private data."""
    return ToolResult((_text(_error_text(error)),), ok=False)


def _error_text(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return "; ".join(_error_text(part) for part in group.exceptions)
    message = str(error)
    if isinstance(error, ToolError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _block(part: object) -> Block:
    if isinstance(part, str):
        return _text(part)
    if isinstance(part, _BLOCKS):
        return cast("Block", part)
    return _text(msgspec.json.encode(part, enc_hook=encode_model).decode())


def _text(text: str) -> TextBlock:
    """A text block without lone surrogates (from file names or broken output), which neither the
    log nor models accept."""
    return TextBlock(text.encode("utf-8", "replace").decode())
