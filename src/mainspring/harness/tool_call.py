"""One tool call as a value: find its tool, build the call, hash it, derive its idempotency key,
and reject input in which a secret was redacted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from mainspring.core.model import ToolOutput
from mainspring.core.tool import Call, Tool
from mainspring.harness.state.open_call import OpenCall
from mainspring.harness.thread_context import ThreadContext

_ENCODER = msgspec.json.Encoder(order="deterministic")


def find_tool(context: ThreadContext, name: str) -> Tool | None:
    return context.tools.get(name) or context.tools.get(context.aliases.get(name, ""))


def normalized_call(call: Call, tool: Tool) -> Call:
    """As gates and hooks see it: whole paths, where the log has what was asked."""
    return replace(call, input=tool.normalize_input(call.input))


def call_hash(name: str, given: Mapping[str, object], preview: str | None = None) -> str:
    """Of the exact call that a gate judged, and of what it would do."""
    return hashlib.sha256(_ENCODER.encode((name, given, preview))).hexdigest()


def idempotency_key(session_id: str, call_id: str, name: str, given: Mapping[str, object]) -> str:
    """The same for every attempt at this call, and for no other."""
    return hashlib.sha256(_ENCODER.encode((session_id, call_id, name, given))).hexdigest()


def attempt_of(context: ThreadContext, call: OpenCall, given: Mapping[str, object]) -> Call:
    """What is tried now: known by the mark of its first attempt, if there was one."""
    made = new_call(context, call.id, call.name, given)
    key = made.idempotency_key if call.started is None else call.started
    return replace(made, idempotency_key=key, is_approved=call.is_approved)


def new_call(context: ThreadContext, call_id: str, name: str, given: Mapping[str, object]) -> Call:
    session_id = context.writer.session_id
    tool = find_tool(context, name)
    name = name if tool is None else tool.spec.name

    def say(text: str) -> None:
        context.emit(ToolOutput(id=call_id, name=name, text=context.writer.scrubbed(text)))

    return Call(
        id=call_id,
        name=name,
        input=given,
        idempotency_key=idempotency_key(session_id, call_id, name, given),
        session_id=session_id,
        thread_id=context.thread.id,
        say=say,
    )


_REDACTION_LABEL = re.compile(rb"\[redacted:[a-z0-9_]+\]")
_REDACTED_TEXT = (
    "Not done: {} stands in the place of what looks like a secret, and would be written or run like"
    " that. Leave out the secret, or have the program take it from a variable of its environment;"
    " in tests and examples write a placeholder, such as `changeme` or `test-password`; change a"
    " part of a file rather than the whole."
)


def redacted_input_error(tool: Tool, given: Mapping[str, object]) -> str | None:
    """Why a call must not be carried out as it stands, in words for the model."""
    if tool.traits(given).read_only:
        return None
    found = _REDACTION_LABEL.search(msgspec.json.encode(given))
    return None if found is None else _REDACTED_TEXT.format(found.group().decode())
