"""An open call as tools, gates and hooks see it, and the marks by which it is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from mainspring.core.model import ToolOutput
from mainspring.core.tool import Call, Tool
from mainspring.harness.desk import Desk
from mainspring.harness.open_call import OpenCall

_ENCODER = msgspec.json.Encoder(order="deterministic")


def look_up(desk: Desk, name: str) -> Tool | None:
    return desk.tools.get(name) or desk.tools.get(desk.aliases.get(name, ""))


def judged(call: Call, tool: Tool) -> Call:
    """As gates and hooks see it: whole paths, where the log has what was asked."""
    return replace(call, input=tool.judged(call.input))


def call_hash(name: str, given: Mapping[str, object], preview: str | None = None) -> str:
    """Of the exact call that a gate judged, and of what it would do."""
    return hashlib.sha256(_ENCODER.encode((name, given, preview))).hexdigest()


def idempotency_key(session_id: str, call_id: str, name: str, given: Mapping[str, object]) -> str:
    """The same for every attempt at this call, and for no other."""
    return hashlib.sha256(_ENCODER.encode((session_id, call_id, name, given))).hexdigest()


def open_call(desk: Desk, call: OpenCall, given: Mapping[str, object]) -> Call:
    """What is tried now: known by the mark of its first attempt, if there was one."""
    made = call_of(desk, call.id, call.name, given)
    key = made.idempotency_key if call.started is None else call.started
    return replace(made, idempotency_key=key, is_approved=call.is_approved)


def call_of(desk: Desk, call_id: str, name: str, given: Mapping[str, object]) -> Call:
    session_id = desk.writer.session_id
    tool = look_up(desk, name)
    name = name if tool is None else tool.spec.name

    def say(text: str) -> None:
        desk.emit(ToolOutput(id=call_id, name=name, text=desk.writer.scrubbed(text)))

    return Call(
        id=call_id,
        name=name,
        input=given,
        idempotency_key=idempotency_key(session_id, call_id, name, given),
        session_id=session_id,
        thread_id=desk.thread.id,
        say=say,
    )
