"""Wrappers of tools: a time limit, another name, a refusal, an approval, a fallback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar, cast

import anyio
import msgspec

from mainspring.core.content import TextBlock, plain_text
from mainspring.core.tool import Call, Tool, ToolResult, Traits

AnyTool = TypeVar("AnyTool", bound=Tool)


def with_timeout(tool: AnyTool, seconds: float) -> AnyTool:
    """Stop a call that takes longer, with a result that tells the model."""

    async def run(call: Call) -> ToolResult:
        with anyio.move_on_after(seconds):
            return await tool.run(call)
        return ToolResult.text(
            f"{call.name} was stopped: it took longer than {seconds:g} s. It may have taken effect,"
            " or may still do so.",
            ok=False,
        )

    return replace(tool, run=run)


def renamed(tool: AnyTool, name: str) -> AnyTool:
    """The tool under another name; its function still sees its own name."""
    own, probe = tool.spec.name, tool.probe

    async def run(call: Call) -> ToolResult:
        return await tool.run(replace(call, name=own))

    async def run_probe(call: Call) -> ToolResult | None:
        return None if probe is None else await probe(replace(call, name=own))

    spec = msgspec.structs.replace(tool.spec, name=name)
    return replace(tool, spec=spec, run=run, probe=None if probe is None else run_probe)


_SHORTENED = frozenset(
    ("default", "minLength", "maxLength", "pattern", "minItems", "maxItems", "additionalProperties")
)
_NULL = {"type": "null"}


def with_short_schema(tool: AnyTool) -> AnyTool:
    """The tool with fewer tokens in each request: its schema has the inputs without their limits.
    Inputs are still checked against the limits."""
    properties = cast("dict[str, dict[str, object]]", tool.spec.input_schema["properties"])
    schema: dict[str, object] = {
        "type": "object",
        "properties": {name: _shortened(fields) for name, fields in properties.items()},
    }
    if required := tool.spec.input_schema.get("required"):
        schema["required"] = required
    return replace(tool, spec=msgspec.structs.replace(tool.spec, input_schema=schema))


def _shortened(fields: Mapping[str, object]) -> dict[str, object]:
    short = {name: value for name, value in fields.items() if name not in _SHORTENED}
    alternatives = cast("list[dict[str, object]]", short.pop("anyOf", []))
    for alternative in alternatives:
        if alternative != _NULL:
            short = {**_shortened(alternative), **short}
    if isinstance(items := short.get("items"), dict):
        short["items"] = _shortened(cast("dict[str, object]", items))
    return short


def filtered(tool: AnyTool, refusal: Callable[[Mapping[str, object]], str | None]) -> AnyTool:
    """Refuse some inputs: `refusal` returns the reason for the model, or nothing."""

    def invalid(args: Mapping[str, object]) -> str | None:
        # The tool's own check comes first: `refusal` may rely on the shape of the input.
        return tool.invalid(args) or refusal(args)

    async def run(call: Call) -> ToolResult:
        why = invalid(call.input)
        return await tool.run(call) if why is None else ToolResult.text(why, ok=False)

    return replace(tool, invalid=invalid, run=run)


def with_approval(
    tool: AnyTool, needs: Callable[[Mapping[str, object]], bool] = lambda _: True
) -> AnyTool:
    """Require a person's approval of some calls, or of all, before they run."""

    def traits(args: Mapping[str, object]) -> Traits:
        own = tool.traits(args)
        return replace(own, needs_person=own.needs_person or _is_needed(needs, args))

    return replace(tool, traits=traits)


def with_fallback(tool: AnyTool, *others: Tool) -> AnyTool:
    """Try other tools, one after the other, when this one fails. They take the same input.

    A result that is not the first tool's is marked as degraded, for people in `details` and for
    the model, with a note not to try again.
    """

    async def run(call: Call) -> ToolResult:
        result = await _attempt(tool, call)
        failures = [_failure(tool, result)]
        for tier, other in enumerate(others, 2):
            if result.ok or result.waits_for:
                return result
            result = await _attempt(other, replace(call, name=other.spec.name))
            if result.ok:
                return _degraded(result, other.spec.name, tier, failures)
            failures.append(_failure(other, result))
        return result if result.ok or not others else _all_failed(result, failures)

    return replace(tool, run=run)


async def _attempt(tool: Tool, call: Call) -> ToolResult:
    if wrong := tool.invalid(call.input):
        return ToolResult.text(wrong, ok=False, error="invalid")
    try:
        return await tool.run(call)
    # As in the pipeline: a failure of a tool is a value, here a reason to try the next one.
    except Exception as error:  # noqa: BLE001
        return ToolResult.text(f"{type(error).__name__}: {error}", ok=False, error="failed")


def _failure(tool: Tool, result: ToolResult) -> str:
    return f"{tool.spec.name}: {plain_text(result.content)[:200]}"


def _degraded(result: ToolResult, name: str, tier: int, failures: list[str]) -> ToolResult:
    note = (
        f"[degraded: this is from {name}, since {'; '.join(failures)}. Do not call the tool again"
        " for the same thing.]"
    )
    details = {"degraded": True, "tier": tier, "tool": name, "failures": failures}
    return replace(result, content=(*result.content, TextBlock(note)), details=details)


def _all_failed(result: ToolResult, failures: list[str]) -> ToolResult:
    text = "All tools failed; do not try again:\n" + "\n".join(f"- {item}" for item in failures)
    return replace(result, content=(TextBlock(text),))


def _is_needed(needs: Callable[[Mapping[str, object]], bool], args: Mapping[str, object]) -> bool:
    """If the rule cannot judge an input, a person must approve it."""
    try:
        return needs(args)
    except Exception:  # noqa: BLE001 (the user's function; a failure must not allow a call)
        return True
