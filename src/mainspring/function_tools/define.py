"""Makes a tool of a function with type hints and a docstring."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from mainspring.core.errors import InvalidInput
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, InDoubtPolicy, Tool, ToolResult, Traits
from mainspring.function_tools.results import (
    ToolError,
    call_function,
    error_result,
    to_tool_result,
)
from mainspring.function_tools.tool_inputs import InvalidInputs, ToolInputs, read_signature
from mainspring.function_tools.wrap import with_approval, with_timeout

__all__ = ["FunctionTool", "ToolError", "ToolOptions", "tool"]

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DEFAULTS = Traits()


class ToolOptions(TypedDict, total=False):
    name: str
    """By default the name of the function."""
    description: str
    """By default the first paragraph of the docstring."""
    read_only: bool
    concurrent: bool
    destructive: bool
    in_doubt: InDoubtPolicy
    """By default `probe` with a probe, `retry` for a read-only tool, else `report`."""
    on_interrupt: Literal["cancel", "block"]
    probe: Callable[[Call], Awaitable[ToolResult | None]]
    timeout_seconds: float
    max_chars: int
    dedupe: Literal["session"] | float
    """Calls with the same arguments, in the session or within this many seconds, get the stored
    result."""
    ignore: Sequence[str]
    """Arguments that `dedupe` does not compare."""
    needs_approval: bool | Callable[[Mapping[str, object]], bool]
    """A person must approve it before it runs: always, or if a function of the input is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """Which earlier calls of a tool count as the same call."""

    seconds: float | None = None
    """The maximum age of their results; `None`: any age."""
    ignore: frozenset[str] = frozenset()

    def same(self, first: Mapping[str, object], other: Mapping[str, object]) -> bool:
        return self._arguments(first) == self._arguments(other)

    def _arguments(self, args: Mapping[str, object]) -> dict[str, object]:
        return {name: value for name, value in args.items() if name not in self.ignore}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTool(Tool, Generic[P, R]):
    function: Callable[P, R]
    """The original function, so that tests can call it."""
    dedupe: Dedupe | None = None
    """When a repeated call gets the result of the earlier one instead of running."""
    deps_type: object = object
    """The type of `deps=` of the run: `Deps` of its parameter `Call[Deps]`."""


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a tool of a function: `@tool`, or `@tool(read_only=True, ...)`.

    A parameter annotated with `Call` receives the call and is not shown to the model. A function
    that is not async runs in a thread; if it is cancelled, it continues there to its end.

    Raises:
        InvalidInput: the function cannot be a tool; it says why.
    """

    if function is None:
        return partial(_define_tool, options=options)
    return _define_tool(function, options)


def _define_tool(function: Callable[P, R], options: ToolOptions) -> FunctionTool[P, R]:
    name = options.get("name") or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"a tool's name is 1 to 64 letters, digits, _ and -, not {name!r}")
    try:
        inputs, doc = read_signature(function)
    except InvalidInput as error:
        raise InvalidInput(f"tool {name}: {error}") from error
    description = options.get("description") or doc.summary
    if not description:
        raise InvalidInput(f"tool {name}: it needs a docstring, which the model reads")
    traits = tool_traits(name, options)

    def invalid(args: Mapping[str, object]) -> str | None:
        values = inputs.read(args)
        return values.text if isinstance(values, InvalidInputs) else None

    function_tool = FunctionTool(
        spec=ToolSpec(name=name, description=description, input_schema=inputs.schema),
        run=partial(_run, function, inputs),
        traits=lambda _: traits,
        probe=options.get("probe"),
        invalid=invalid,
        function=function,
        deps_type=inputs.deps_type,
        dedupe=_dedupe(name, options),
    )
    needs = options.get("needs_approval", False)
    if needs is not False:
        function_tool = (
            with_approval(function_tool, needs) if callable(needs) else with_approval(function_tool)
        )
    seconds = options.get("timeout_seconds")
    return function_tool if seconds is None else with_timeout(function_tool, seconds)


def _dedupe(name: str, options: ToolOptions) -> Dedupe | None:
    requested, ignore = options.get("dedupe"), frozenset(options.get("ignore", ()))
    if requested is None:
        if ignore:
            raise InvalidInput(f"tool {name}: ignore= needs dedupe=; alone it has no effect")
        return None
    return Dedupe(seconds=None if requested == "session" else float(requested), ignore=ignore)


def tool_traits(name: str, options: ToolOptions) -> Traits:
    """The traits of the calls of a tool with these options."""
    read_only = options.get("read_only", _DEFAULTS.read_only)
    has_probe = "probe" in options
    default: InDoubtPolicy = "probe" if has_probe else "retry" if read_only else _DEFAULTS.in_doubt
    in_doubt = options.get("in_doubt", default)
    if in_doubt == "probe" and not has_probe:
        raise InvalidInput(f"tool {name}: in_doubt='probe' needs probe=")
    return Traits(
        read_only=read_only,
        concurrent=options.get("concurrent", _DEFAULTS.concurrent),
        destructive=options.get("destructive", _DEFAULTS.destructive),
        in_doubt=in_doubt,
        on_interrupt=options.get("on_interrupt", _DEFAULTS.on_interrupt),
        max_chars=options.get("max_chars", _DEFAULTS.max_chars),
    )


async def _run(function: Callable[..., object], inputs: ToolInputs, call: Call) -> ToolResult:
    arguments = inputs.read(call.input)
    if isinstance(arguments, InvalidInputs):
        return ToolResult.text(arguments.text, ok=False)
    if inputs.call_parameter is not None:
        arguments[inputs.call_parameter] = call
    try:
        return to_tool_result(await call_function(function, arguments))
    # This is the user's function: the model reads whatever it raises, and the session goes on.
    # Cancellation is not caught.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return error_result(error)
