"""A tool call as a value: its next step (`CallPlan`), its hash, its idempotency key, and the check
for input in which a secret was redacted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Failure, ToolCallStashed
from mainspring.core.model import ToolOutput
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.thread_context import ThreadContext

MAX_STASH_BYTES = 256_000  # of what a call keeps for its next attempt; it is in the log
_ENCODER = msgspec.json.Encoder(order="deterministic")


class ReadyCall(Struct, frozen=True):
    """A call that may run now."""

    call: OpenCall
    tool: Tool
    traits: Traits
    context: tuple[str, ...] = ()
    """Text from hooks that the model reads with the result."""


class PendingCall(Struct, frozen=True):
    """A call that waits for a person or a client."""

    call: OpenCall


class AnsweredCall(Struct, frozen=True):
    """A call that has its result without running."""

    call: OpenCall
    tool_result: ToolResult


CallPlan: TypeAlias = ReadyCall | PendingCall | AnsweredCall


def refuse_call(call: OpenCall, text: str, error: Failure) -> AnsweredCall:
    return AnsweredCall(call, ToolResult.text(text, ok=False, error=error))


def normalized_call(call: Call, tool: Tool) -> Call:
    """The call with absolute paths, as hooks and rules see it; the log has the original."""
    args = tool.normalize_input(call.input)
    return call if args is call.input else replace(call, input=args)


def call_hash(name: str, args: Mapping[str, object], preview: str | None = None) -> str:
    """Hash of the exact call that was authorized and of its preview."""
    return hashlib.sha256(_ENCODER.encode((name, args, preview))).hexdigest()


def idempotency_key(session_id: str, call_id: str, name: str, args: Mapping[str, object]) -> str:
    """The same for every attempt at this call, and different for any other call."""
    return hashlib.sha256(_ENCODER.encode((session_id, call_id, name, args))).hexdigest()


def attempt_of(context: ThreadContext, call: OpenCall) -> Call:
    """The call to run now, with the state of earlier attempts at it."""
    return new_call(context, call.id, call.name, call.input, call)


def new_call(
    context: ThreadContext,
    call_id: str,
    name: str,
    args: Mapping[str, object],
    earlier: OpenCall | None = None,
) -> Call:
    """`earlier` is the call as recorded in the log; it has the key of the first attempt."""
    session_id = context.writer.session_id
    tool = context.toolbox.find(name)
    name = name if tool is None else tool.spec.name

    def say(text: str) -> None:
        context.emit(ToolOutput(id=call_id, name=name, text=context.writer.scrubbed(text)))

    async def stash(value: object) -> None:
        size = len(msgspec.json.encode(value))
        if size > MAX_STASH_BYTES:
            text = f"a stash has at most {MAX_STASH_BYTES} bytes of JSON, not {size}"
            raise InvalidInput(text)
        context.note(ToolCallStashed(tool_use_id=call_id, value=value))
        await context.event_sink.commit()

    key = None if earlier is None else earlier.started
    approvals = () if earlier is None else earlier.approvals
    return Call(
        id=call_id,
        name=name,
        input=args,
        idempotency_key=key or idempotency_key(session_id, call_id, name, args),
        session_id=session_id,
        thread_id=context.thread.id,
        say=say,
        stash=stash,
        deps=context.deps,
        is_approved=earlier is not None and earlier.is_approved,
        stashed=None if earlier is None else earlier.stashed,
        answers={item.id: item.answer for item in approvals if item.answer and not item.is_void},
    )


_REDACTION_LABEL = re.compile(rb"\[redacted:[a-z0-9_]+\]")
_REDACTED_TEXT = (
    "Not done: {} replaces what looks like a secret, and would be written or run literally. Leave"
    " out the secret, or let the program read it from an environment variable; in tests and"
    " examples use a placeholder, such as `changeme` or `test-password`; edit part of a file rather"
    " than the whole file."
)


def redacted_input_error(tool: Tool, args: Mapping[str, object]) -> str | None:
    """Why a call with redacted input must not run, as a text for the model."""
    if tool.traits(args).read_only:
        return None
    label = _REDACTION_LABEL.search(msgspec.json.encode(args))
    return None if label is None else _REDACTED_TEXT.format(label.group().decode())
