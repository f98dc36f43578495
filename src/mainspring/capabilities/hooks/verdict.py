"""What a hook has said: exit status, output or judgement into a `Ruling`, several into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mainspring.core.events import PermissionUpdate
from mainspring.core.hook import NOTHING_SAID, HookEvent, Ruling

GATES = frozenset[HookEvent](("UserPromptSubmit", "PreToolUse", "PermissionRequest"))
"""Something is about to happen that a hook may forbid: a hook that fails has forbidden it."""

CAN_BLOCK = GATES | frozenset[HookEvent](("PostToolBatch", "Stop", "SubagentStop", "PreCompact"))
"""A hook may say no. But to fail is not to say no where that would keep an agent working."""

_ON_CALLS = frozenset[HookEvent](("PreToolUse", "PermissionRequest"))
_AFTER_CALLS = frozenset[HookEvent](("PostToolUse", "PostToolUseFailure"))
_TEXT_IS_CONTEXT = frozenset[HookEvent](("SessionStart", "UserPromptSubmit"))
_Permission: TypeAlias = Literal["deny", "defer", "ask", "allow"]
_STRICTEST_FIRST: tuple[_Permission, ...] = get_args(_Permission)
_MAX_CHARS = 10_000
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_NAMES = 5
_INSTEAD = 'for the model to read it, print {"hookSpecificOutput": {"additionalContext": ...}}'
_UNREASONED = "a hook said no and gave no reason"


@dataclass(frozen=True, slots=True)
class Failed:
    """A hook that has said nothing that can be acted on."""

    reason: str
    timed_out: bool = False
    is_changed: bool = False
    """It is not what somebody has vouched for: a gate is closed then, whatever the settings say."""


Reply: TypeAlias = Ruling | Failed
T = TypeVar("T")


class _Decision(Struct, frozen=True, kw_only=True, rename="camel"):
    behavior: Literal["allow", "deny"]
    updated_input: dict[str, object] | None = None
    updated_permissions: tuple[PermissionUpdate, ...] | None = None
    message: str | None = None
    interrupt: bool | None = None


class _Specific(Struct, frozen=True, kw_only=True, rename="camel"):
    hook_event_name: str | None = None
    additional_context: str | None = None
    permission_decision: Literal["allow", "deny", "ask", "defer"] | None = None
    permission_decision_reason: str | None = None
    updated_input: dict[str, object] | None = None
    updated_tool_output: object = None
    decision: _Decision | None = None
    retry: bool | None = None


class _Output(Struct, frozen=True, kw_only=True, rename="camel"):
    continue_: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    system_message: str | None = None
    decision: Literal["approve", "block"] | None = None
    reason: str | None = None
    hook_specific_output: _Specific | None = None


class _Judgement(Struct, frozen=True, kw_only=True):
    ok: bool | UnsetType = UNSET
    decision: Literal["approve", "block"] | UnsetType = UNSET
    reason: str | None = None


_OUTPUT = msgspec.json.Decoder(_Output)
_READ_FIELDS = frozenset((*_Output.__struct_encode_fields__, "suppressOutput"))
_JUDGEMENT = msgspec.json.Decoder(_Judgement)


def read_exit(event: HookEvent, status: int, *, stdout: bytes, stderr: bytes) -> Reply:
    """What a program has said by how it ended: 0 is its output, 2 is no, others are failures."""
    complaint = _text(stderr)
    if status == 2:
        return refusal(complaint)
    if status != 0:
        how = f"exited with {status}" if status > 0 else f"was killed by signal {-status}"
        first = complaint.splitlines()[0][:300] if complaint else ""
        return Failed(f"{how}: {first}" if first else how)
    return read_output(event, stdout)


def read_output(event: HookEvent, output: bytes) -> Reply:
    """What a hook that succeeded has said: JSON, or words where those are context."""
    output = output.removeprefix(_BYTE_ORDER_MARK).strip()
    if not output.startswith(b"{"):
        if not output:
            return NOTHING_SAID
        if event in _TEXT_IS_CONTEXT:
            return Ruling(context=(_text(output),))
        return Ruling(ignored=(f"text on stdout has no effect on {event}; {_INSTEAD}",))
    try:
        said = _OUTPUT.decode(output)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Failed(f"gave an answer that cannot be read: {cut(str(error), 300)}")
    specific = said.hook_specific_output or _Specific()
    if specific.hook_event_name not in (None, event):
        return Failed(f"answered to {cut(specific.hook_event_name or '', 60)}, not to {event}")
    ruling = combine(event, [*_general(event, said), *_particular(event, specific)])
    return replace(ruling, ignored=_unknown_fields(output))


def _unknown_fields(output: bytes) -> tuple[str, ...]:
    """What an answer says that nobody reads."""
    answer = msgspec.json.decode(output, type=dict[str, object])
    names = [name for name in answer if name not in _READ_FIELDS]
    specific = answer.get("hookSpecificOutput")
    if isinstance(specific, dict):
        inner = _Specific.__struct_encode_fields__
        known = cast("dict[str, object]", specific)
        names += [f"hookSpecificOutput.{name}" for name in known if name not in inner]
    if not names:
        return ()
    misplaced = "additionalContext" in names or "additional_context" in names
    hint = f"; {_INSTEAD}" if misplaced else ""
    shown = ", ".join(cut(name, 60) for name in names[:_MAX_NAMES])
    return (f"{shown}: not known, so it has no effect{hint}",)


def read_judgement(answer: str) -> Reply:
    """What a model was asked to say: `{"ok": ..., "reason": ...}`, and nothing around it."""
    try:
        said = _JUDGEMENT.decode(answer.strip().encode())
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return Failed("gave a judgement that cannot be read")
    verdicts = {said.ok, said.decision} - {UNSET}
    if len(verdicts) != 1:
        return Failed("gave a judgement without saying yes or no")
    return NOTHING_SAID if verdicts <= {True, "approve"} else refusal(said.reason)


def refusal(reason: str | None) -> Ruling:
    """A no; what it comes to, the event decides."""
    return Ruling(blocked=True, reason=reason or _UNREASONED)


def combine(event: HookEvent, rulings: Sequence[Ruling]) -> Ruling:
    """One ruling of several, of which the strictest decides; in the order of the hooks.

    A no to what has happened already, or cannot be helped, becomes words.
    """
    refusals = [ruling for ruling in rulings if _refuses(event, ruling)]
    decided = _refused(event, refusals) if refusals else _accepted(event, rulings)
    return replace(
        decided,
        stop=_first([ruling.stop for ruling in rulings]),
        context=_all_words([*(ruling.context for ruling in rulings), decided.context]),
        messages=_all_words([*(ruling.messages for ruling in rulings), decided.messages]),
        updated_output=_first([ruling.updated_output for ruling in rulings]),
        retry=any(ruling.retry for ruling in rulings),
        ran=tuple(fact for ruling in rulings for fact in ruling.ran),
    )


def _refuses(event: HookEvent, ruling: Ruling) -> bool:
    is_stopped = ruling.stop is not None and event in GATES
    return ruling.blocked or ruling.permission == "deny" or is_stopped


def _refused(event: HookEvent, refusals: Sequence[Ruling]) -> Ruling:
    reasons = tuple(dict.fromkeys(r.reason or r.stop or _UNREASONED for r in refusals))
    if event in _AFTER_CALLS:
        return Ruling(context=reasons)  # it has happened: the model hears what is wrong with it
    if event not in CAN_BLOCK:
        return Ruling(messages=reasons)
    return Ruling(
        permission="deny" if event in _ON_CALLS else None,
        reason=cut("\n".join(reasons)),
        blocked=True,
        interrupt=any(ruling.interrupt for ruling in refusals),
    )


def _accepted(event: HookEvent, rulings: Sequence[Ruling]) -> Ruling:
    permission = _strictest(rulings) if event in _ON_CALLS else None
    decisive = [r for r in rulings if permission is not None and r.permission == permission]
    reasons = dict.fromkeys(ruling.reason for ruling in decisive if ruling.reason)
    updates = [update for ruling in decisive for update in ruling.updates]
    return Ruling(
        permission=permission,
        reason=cut("\n".join(reasons)) or None,
        updated_input=_first([ruling.updated_input for ruling in rulings]),
        updates=tuple(updates) if permission == "allow" else (),
    )


def _strictest(rulings: Sequence[Ruling]) -> _Permission | None:
    said = {ruling.permission for ruling in rulings}
    for permission in _STRICTEST_FIRST:
        if permission in said:
            return permission
    return None


def _general(event: HookEvent, said: _Output) -> list[Ruling]:
    rulings: list[Ruling] = []
    if said.decision == "block":
        rulings.append(Ruling(blocked=True, reason=said.reason))
    if said.decision == "approve" and event == "PreToolUse":
        rulings.append(Ruling(permission="allow", reason=said.reason))
    if said.continue_ is False:
        rulings.append(Ruling(stop=cut(said.stop_reason or "a hook ended the run")))
    if said.system_message:
        rulings.append(Ruling(messages=(said.system_message,)))
    return rulings


def _particular(event: HookEvent, said: _Specific) -> list[Ruling]:
    context = (said.additional_context,) if said.additional_context else ()
    rulings = [Ruling(context=context, retry=event == "PermissionDenied" and bool(said.retry))]
    if said.permission_decision == "deny" or event == "PreToolUse":
        rulings.append(
            Ruling(
                permission=said.permission_decision,
                reason=said.permission_decision_reason,
                updated_input=said.updated_input,
            )
        )
    if said.decision is not None:
        rulings.append(_on_request(event, said.decision))
    if event == "PostToolUse" and said.updated_tool_output is not None:
        rulings.append(Ruling(updated_output=_as_text(said.updated_tool_output)))
    return rulings


def _on_request(event: HookEvent, said: _Decision) -> Ruling:
    if said.behavior == "deny":
        return Ruling(permission="deny", reason=said.message, interrupt=bool(said.interrupt))
    if event != "PermissionRequest":
        return NOTHING_SAID
    return Ruling(
        permission="allow",
        reason=said.message,
        updated_input=said.updated_input,
        updates=said.updated_permissions or (),
    )


def cut(text: str, max_chars: int = _MAX_CHARS) -> str:
    """Words of a hook, in a length that a prompt can bear."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _as_text(output: object) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def _text(output: bytes) -> str:
    return cut(output.decode(errors="replace").strip())


def _all_words(said: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(cut(text) for texts in said for text in texts)


def _first(values: Sequence[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
