"""Tier 1 for generated Python: workers that start with the first program, if they are installed."""

from __future__ import annotations

from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from mainspring.capabilities.monty.finished import Finished
from mainspring.capabilities.monty.python import Interprets
from mainspring.core.hands import Workspace


class Workers:
    """An `Interprets` for all sessions of a process; the stack ends it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._interpreter: Interprets | None = None

    @classmethod
    def of(cls, stack: AsyncExitStack) -> Workers | None:
        return None if find_spec("pydantic_monty") is None else cls(stack)

    async def run(self, code: str, workspace: Workspace | None = None) -> Finished:
        if self._interpreter is None:
            # by name: it is an extra, and takes a while to import
            module = import_module("mainspring.capabilities.monty.interpreter")
            self._interpreter = cast(
                "Interprets", await self._stack.enter_async_context(module.Interpreter())
            )
        return await self._interpreter.run(code, workspace)
