"""Makes cases from sessions: the user's messages, and a recording of the model's replies and of all
call results, so that the case also runs offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import re2
import yaml
from msgspec import Struct

from mainspring.core import events
from mainspring.core.content import plain_text
from mainspring.core.envelope import Event
from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.harness.state.open_call import proposed_call
from mainspring.improve.evals.graders import Bounds
from mainspring.improve.evals.suite import ENCODER, Case, Script
from mainspring.improve.evals.suites.suite_files import EVALS_FOLDER
from mainspring.improve.evals.trajectory import read_trajectory

_MAX_BYTES = 50_000_000  # of a recording, which is read whole
_MASKED = "*"


class RecordedToolResult(Struct, frozen=True, kw_only=True):
    tool: str
    input: dict[str, object]
    result: str
    ok: bool


class CaseRecording(Struct, frozen=True, kw_only=True):
    session_id: str
    calls: tuple[RecordedToolResult, ...]
    replies: tuple[dict[str, object], ...]
    """The steps of a scripted model."""

    @property
    def script(self) -> Script:
        return Script(steps=self.replies)


def record_session(session_id: str, log: Sequence[Event]) -> CaseRecording:
    calls = tuple(
        RecordedToolResult(
            tool=item.name,
            input=dict(item.call.input),
            result=item.result,
            ok=item.call.failure is None,
        )
        for item in read_trajectory(log).calls
        if item.call.settled
    )
    return CaseRecording(session_id=session_id, calls=calls, replies=tuple(_replies(log)))


def _replies(log: Sequence[Event]) -> list[dict[str, object]]:
    """The reply to each answered request of the main thread."""
    main = log[0].thread_id if log else ""
    replies: list[dict[str, object]] = []
    texts: list[str] = []
    calls: list[dict[str, object]] = []
    for event in log:
        if event.thread_id != main:
            continue
        if (call := proposed_call(event)) is not None:
            calls.append({"tool": call.name, "input": dict(call.input)})
        elif isinstance(event.payload, events.AgentMessage):
            texts.append(plain_text(event.payload.content))
        elif isinstance(event.payload, events.ModelRequestEnded) and not event.payload.purpose:
            if not event.payload.is_error:
                replies.append({"says": "\n\n".join(texts), "calls": calls})
            texts, calls = [], []
    return replies


def call_key(tool: str, arguments: object, masks: Sequence[str]) -> bytes:
    """The key of a call: equal for calls that differ only in text that a mask matches."""
    text = ENCODER.encode((canonical_name(tool), arguments)).decode()
    for mask in masks:
        text = re2.compile(mask).sub(_MASKED, text)
    return text.encode()


def read_case_recording(file: Path) -> CaseRecording:
    """Raises: InvalidInput: it is missing or damaged."""
    content = read_bounded(file, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{file}: there is no such recording")
    try:
        return msgspec.json.decode(content, type=CaseRecording)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{file}: {error}") from error


def add_case(folder: Path, suite: str, case_id: str, session_id: str, log: Sequence[Event]) -> Path:
    """Append a case made of a session to a suite, and write its recording beside it.

    Raises:
        InvalidInput: the session has no message of a user, or the suite's file does not end with
            its cases.
    """
    messages = tuple(
        plain_text(event.payload.content)
        for event in log
        if isinstance(event.payload, events.UserMessage)
    )
    if not messages:
        raise InvalidInput(f"session {session_id} has no message of a user")
    trajectory = read_trajectory(log)
    case = Case(
        id=case_id,
        input=messages[0] if len(messages) == 1 else messages,
        source=session_id,
        recording=f"recordings/{case_id}.json",
        tags=("from-session",),
        expect="answer",
        graders=(Bounds(max_turns=max(4, 2 * trajectory.turns)),),
    )
    file = folder / EVALS_FOLDER / f"{suite}.yaml"
    content = (read_bounded(file, max_bytes=_MAX_BYTES) or b"cases:\n").decode()
    indent = _case_indent(content)
    if indent is None:
        raise InvalidInput(f"{file}: to add a case, `cases:` must be the last part of the file")
    text = yaml.safe_dump([msgspec.to_builtins(case)], sort_keys=False, allow_unicode=True)
    indented = "".join(f"{indent}{line}\n" for line in text.splitlines())
    recording = msgspec.json.encode(record_session(session_id, log))
    write_atomic(
        file.parent / f"recordings/{case_id}.json", msgspec.json.format(recording, indent=1)
    )
    write_atomic(file, f"{content.rstrip()}\n{indented}".encode())
    return file


def _case_indent(content: str) -> str | None:
    """What the lines of a suite's list of cases begin with; `None` if the list is not its end."""
    _, found, block = f"\n{content}".rpartition("\ncases:")
    lines = [line for line in block.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    if not found or (lines and not lines[0].lstrip().startswith("- ")):
        return None
    indent = "  " if not lines else lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    is_list = all(line.startswith((f"{indent}- ", f"{indent} ")) for line in lines)
    return indent if is_list else None
