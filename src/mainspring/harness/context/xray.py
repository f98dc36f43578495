"""Past requests, rebuilt from the log alone, byte for byte: what the model was really given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMcpToolUse,
    AgentMessage,
    AgentThinking,
    AgentToolUse,
    ModelRequestEnded,
    ModelRequestStarted,
)
from mainspring.core.model import Reply, ReplyReason, Request, Thinking, ToolUse
from mainspring.harness.context.view import Prefix, view
from mainspring.harness.ensemble import Ensemble
from mainspring.harness.thread import Thread

_REASONS: dict[str | None, ReplyReason] = {
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One call of the model: what it was given and what it said."""

    number: int
    """From 1, in the order of the thread."""
    started: Event
    start: ModelRequestStarted
    request: Request
    reply: Reply | None
    """None if there was none, or it was thrown away."""
    end: ModelRequestEnded | None


def prefix_digests(log: Iterable[Event]) -> set[str]:
    """Blobs that are needed to rebuild the requests of a log."""
    return {
        event.payload.prefix
        for event in log
        if isinstance(event.payload, ModelRequestStarted) and event.payload.prefix
    }


def decode_prefix(content: bytes) -> Prefix:
    try:
        return msgspec.json.decode(content, type=Prefix)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"this is not what stands before messages: {error}") from error


def shots(log: Iterable[Event], *, thread_id: str, prefixes: Mapping[str, Prefix]) -> list[Shot]:
    """Every turn's call, in order; calls beside the conversation are not turns."""
    taken: list[Shot] = []
    said: list[TextBlock | Thinking | ToolUse] = []
    for event, thread in _folded(log, thread_id):
        match event.payload:
            case ModelRequestStarted(purpose=None, prefix=str(digest)) as start:
                request = view(
                    thread,
                    prefixes[digest],
                    max_tokens=start.max_tokens or 0,
                    request_id=start.request_id or "",
                )
                taken.append(
                    Shot(
                        number=len(taken) + 1,
                        started=event,
                        start=start,
                        request=request,
                        reply=None,
                        end=None,
                    )
                )
                said = []
            case ModelRequestEnded(purpose=None) as end if taken and taken[-1].end is None:
                taken[-1] = _ended(taken[-1], end, said)
            case _:
                said += _part(event)
    return taken


def _folded(log: Iterable[Event], thread_id: str) -> Iterator[tuple[Event, Thread]]:
    """A thread's own events, each with the thread as it is then. All threads are folded: one that
    was forked off begins with what its parent knew."""
    ensemble: Ensemble | None = None
    for event in log:
        ensemble = ensemble or Ensemble(event.thread_id)  # the first is always the main one's
        ensemble.apply(event)
        if event.thread_id == thread_id and thread_id in ensemble.members:
            yield event, ensemble.members[thread_id].thread


def _ended(shot: Shot, end: ModelRequestEnded, said: list[TextBlock | Thinking | ToolUse]) -> Shot:
    reply = None
    if not end.is_error:
        reply = Reply(
            content=tuple(said),
            usage=end.model_usage,
            reason=_REASONS.get(end.stop_reason, "end_turn"),
            model=end.model or shot.request.model,
        )
    return Shot(
        number=shot.number,
        started=shot.started,
        start=shot.start,
        request=shot.request,
        reply=reply,
        end=end,
    )


def _part(event: Event) -> list[TextBlock | Thinking | ToolUse]:
    match event.payload:
        case AgentMessage(content=content):
            return [block for block in content if isinstance(block, TextBlock)]
        case AgentThinking(text=text, signature=signature):
            return [Thinking(text=text, signature=signature)]
        case (
            AgentToolUse(name=name, input=given)
            | AgentMcpToolUse(name=name, input=given)
            | AgentCustomToolUse(name=name, input=given)
        ):
            return [ToolUse(id=event.id, name=name, input=given)]
        case _:
            return []


def canonical(request: Request) -> bytes:
    """The request with its calls numbered instead of named: equal for equal conversations."""
    encoded = msgspec.json.encode(
        msgspec.structs.replace(request, request_id="", stream=True, cache_messages=())
    )
    names: list[str] = []
    for message in request.messages:
        for part in message.content:
            if isinstance(part, ToolUse) and part.id not in names:
                names.append(part.id)
    for number, name in enumerate(names):
        encoded = encoded.replace(name.encode(), b"call_%d" % number)
    return encoded
