"""Hooks that are a question to a model, which answers yes or no in JSON and in nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mainspring.capabilities.hooks.config import Prompt
from mainspring.capabilities.hooks.verdict import Failed, Reply, read_judgement

Ask: TypeAlias = Callable[[str, str | None], Awaitable[str]]
"""A prompt, and a model or `None` for the usual one, to the answer."""

_ARGUMENTS = "$ARGUMENTS"
_FORM = (
    'Answer with one JSON object and nothing around it: {"ok": true} if it may go ahead, '
    '{"ok": false, "reason": "why not"} if not.'
)


async def run_prompt(handler: Prompt, payload: bytes, ask: Ask | None) -> Reply:
    if ask is None:
        return Failed("needs a model to ask, and there is none")
    return read_judgement(await ask(question(handler.prompt, payload), handler.model))


def question(prompt: str, payload: bytes) -> str:
    """A hook's prompt with what happened in it, and how it is to be answered."""
    told = payload.decode()
    if _ARGUMENTS in prompt:
        return f"{prompt.replace(_ARGUMENTS, told)}\n\n{_FORM}"
    return f"{prompt}\n\nWhat happens:\n{told}\n\n{_FORM}"
