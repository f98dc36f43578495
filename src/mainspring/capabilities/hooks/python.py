"""Hooks that are Python functions of the program that Mainspring is embedded in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from mainspring.core.hook import NOTHING_SAID, HookEvent, Occasion, Ruling

Function: TypeAlias = Callable[[Occasion], Awaitable[Ruling | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonHook:
    event: HookEvent
    function: Function
    matcher: str = ""
    timeout_seconds: float = 60.0

    @property
    def label(self) -> str:
        return f"python: {getattr(self.function, '__qualname__', type(self.function).__name__)}"

    async def run(self, occasion: Occasion) -> Ruling:
        said = cast("object", await self.function(occasion))  # it may be anybody's
        if said is None:
            return NOTHING_SAID
        if not isinstance(said, Ruling):
            raise TypeError(f"{self.label} returned {type(said).__name__}, not a Ruling or None")
        return said


def on(event: HookEvent, matcher: str = "") -> Callable[[Function], PythonHook]:
    """Make a function a hook: `@on("PreToolUse", "bash")`. It never runs but through a runner."""

    def hook(function: Function) -> PythonHook:
        return PythonHook(event=event, function=function, matcher=matcher)

    return hook
