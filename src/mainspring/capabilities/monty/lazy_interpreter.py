"""Tier 1 for generated Python: workers that start with the first program, if they are installed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from mainspring.capabilities.monty.python_tool import CodeInterpreter, InterpreterResult
from mainspring.core.ports import Workspace


class LazyInterpreter:
    """An `Interprets` for all sessions of a process; the stack ends it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._interpreter: CodeInterpreter | None = None

    @classmethod
    def of(cls, stack: AsyncExitStack) -> LazyInterpreter | None:
        return None if find_spec("pydantic_monty") is None else cls(stack)

    async def run(self, code: str, workspace: Workspace | None = None) -> InterpreterResult:
        if self._interpreter is None:
            # by name: it is an extra, and takes a while to import
            module = import_module("mainspring.capabilities.monty.interpreter")
            self._interpreter = cast(
                "CodeInterpreter", await self._stack.enter_async_context(module.Interpreter())
            )
        return await self._interpreter.run(code, workspace)
