"""Small requests that check whether a model works: one to time it, a few to see that it can call
tools. They belong to no session and are not recorded."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from mainspring.core import ids
from mainspring.core.content import TextBlock
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import (
    Assistant,
    FailedOver,
    Message,
    Model,
    Reply,
    Request,
    RetryScheduled,
    Stalled,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    User,
)

_HELLO = User((TextBlock("Reply with one word: ready"),))
_CODE_WORD = "indigo-47"
_LOOK_UP = ToolSpec(
    name="look_up",
    description="Look up the code word for a key.",
    input_schema={
        "type": "object",
        "properties": {"key": {"type": "string"}},
        "required": ["key"],
        "additionalProperties": False,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedReply:
    """The reply to one request, with times."""

    reply: Reply
    first_seconds: float
    """The time to the first part of the reply."""
    seconds: float
    switched: str | None
    """The model that answered, and why, if it was not the first choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    what: str
    ok: bool
    detail: str
    seconds: float


Judge: TypeAlias = Callable[[Reply], str | None]
"""The problem with a reply; `None` if there is none."""


async def ask_once(model: Model, name: str) -> TimedReply:
    """Raises: ProviderFailed."""
    return await _ask(model, _request(name, _HELLO))


async def check_model(model: Model, name: str) -> AsyncGenerator[ModelCheck, None]:
    """Check that a model can work as an agent: answer, call a tool, and use its result."""
    question = User((TextBlock("Use look_up with the key 'alpha'. Then tell me the code word."),))
    yield await _check(model, "answers", _request(name, _HELLO), _has_words)
    yield await _check(model, "calls a tool", _request(name, question, tools=True), _has_called)
    use = ToolUse(id="toolu_1", name="look_up", input={"key": "alpha"})
    result = ToolResultBlock(tool_use_id="toolu_1", content=(TextBlock(f"alpha is {_CODE_WORD}"),))
    answer = _request(name, question, Assistant((use,)), User((result,)), tools=True)
    yield await _check(model, "uses a tool's result", answer, _has_read)


def _request(name: str, *messages: Message, tools: bool = False) -> Request:
    return Request(
        model=name,
        system=("Answer briefly and do exactly what you are asked.",),
        tools=(_LOOK_UP,) if tools else (),
        messages=messages,
        max_tokens=512,
        request_id=ids.new_id(ids.REQUEST),
    )


async def _ask(model: Model, request: Request) -> TimedReply:
    began = anyio.current_time()
    first: float | None = None
    switched: str | None = None
    reply: Reply | None = None
    async with aclosing(model.stream(request)) as deltas:
        async for delta in deltas:
            match delta:
                case Reply():
                    reply = delta
                case FailedOver(to_model=other, reason=reason):
                    switched = f"{other} ({reason})"
                case Stalled():
                    continue
                case RetryScheduled():  # a check says what is the matter, and does not wait
                    raise ProviderFailed(delta.model, delta.kind, delta.reason)
                case _:
                    pass
            first = first if first is not None else anyio.current_time() - began
    seconds = anyio.current_time() - began
    if reply is None:
        raise ProviderFailed(request.model, "malformed", "the stream ended without a reply")
    return TimedReply(
        reply=reply, first_seconds=first or seconds, seconds=seconds, switched=switched
    )


async def _check(model: Model, what: str, request: Request, judge: Judge) -> ModelCheck:
    began = anyio.current_time()
    try:
        trial = await _ask(model, request)
    except ProviderFailed as failed:
        seconds = anyio.current_time() - began
        return ModelCheck(what=what, ok=False, detail=str(failed), seconds=seconds)
    wrong = judge(trial.reply)
    return ModelCheck(
        what=what, ok=wrong is None, detail=wrong or trial.reply.model, seconds=trial.seconds
    )


def _has_words(reply: Reply) -> str | None:
    return None if _text(reply) else "it said nothing"


def _has_called(reply: Reply) -> str | None:
    uses = [part for part in reply.content if isinstance(part, ToolUse)]
    if not uses:
        return f"it called no tool and said: {_text(reply)[:80]}"
    is_right = uses[0].name == "look_up" and uses[0].input == {"key": "alpha"}
    return None if is_right else f"it called {uses[0].name} with {uses[0].input}"


def _has_read(reply: Reply) -> str | None:
    text = _text(reply)
    return (
        None if _CODE_WORD in text else f"the code word is {_CODE_WORD}, and it said: {text[:80]}"
    )


def _text(reply: Reply) -> str:
    return " ".join(part.text for part in reply.content if isinstance(part, TextBlock)).strip()
