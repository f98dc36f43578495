"""Hooks with fixed answers, as nodes of workflows declare them. They deny, ask and add text; no
answer allows a call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TypeAlias, cast, get_args

import msgspec

from mainspring.capabilities.hooks.config import compile_matcher
from mainspring.capabilities.hooks.verdict import HookFailure, read_output
from mainspring.core.errors import InvalidInput
from mainspring.core.hook import HookEventName, HookResult

StaticAnswer: TypeAlias = tuple[HookEventName, Callable[[Collection[str]], HookResult | None]]
"""An event, and its answer for a subject with these names."""


def static_answers(hooks: Mapping[str, object]) -> list[StaticAnswer]:
    """Raises: InvalidInput: a matcher or a response is not valid."""
    return [
        _static_answer(event, entry)
        for event in get_args(HookEventName)
        for entry in cast("list[dict[str, object]]", hooks.get(event, []))
    ]


def _static_answer(event: HookEventName, entry: Mapping[str, object]) -> StaticAnswer:
    read = read_output(event, msgspec.json.encode(entry["response"]))
    if isinstance(read, HookFailure):
        raise InvalidInput(f"hooks.{event}: the response {read.reason}")
    matches = compile_matcher(str(entry.get("matcher", "")))
    result = replace(
        read,
        permission=None if read.permission == "allow" else read.permission,
        updates=(),
        context=(*read.context, *read.messages),  # the model is meant, nobody else reads them
        messages=(),
    )
    return event, lambda names: result if not names or matches(names) else None
