"""Results of hooks: parsed from an exit status, an output or a judgement, and combined into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar, cast, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mainspring.core.events import PermissionUpdate
from mainspring.core.hook import EMPTY_HOOK_RESULT, HookEventName, HookResult

GATE_EVENTS = frozenset[HookEventName](("UserPromptSubmit", "PreToolUse", "PermissionRequest"))
"""Events before an action that a hook may deny: if a hook fails, the action is denied."""

CAN_BLOCK = GATE_EVENTS | frozenset[HookEventName](
    ("PostToolBatch", "Stop", "SubagentStop", "PreCompact")
)
"""Events that a hook may block. A failure blocks only events in `GATE_EVENTS`: it must not keep an
agent working."""

_ON_CALLS = frozenset[HookEventName](("PreToolUse", "PermissionRequest"))
_AFTER_CALLS = frozenset[HookEventName](("PostToolUse", "PostToolUseFailure"))
_TEXT_IS_CONTEXT = frozenset[HookEventName](("SessionStart", "UserPromptSubmit"))
_Permission: TypeAlias = Literal["deny", "defer", "ask", "allow"]
_STRICTEST_FIRST: tuple[_Permission, ...] = get_args(_Permission)
_MAX_CHARS = 10_000  # of a hook's text for the model, about 2,500 tokens
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_NAMES = 5  # unknown fields named in a warning
_CONTEXT_HINT = 'for the model to read it, print {"hookSpecificOutput": {"additionalContext": ...}}'
_NO_REASON = "a hook denied it without a reason"


@dataclass(frozen=True, slots=True)
class HookFailure:
    """A hook without a usable answer."""

    reason: str
    timed_out: bool = False
    is_changed: bool = False
    """A script has changed since it was trusted: the action is denied, even with
    `hooksFailOpen`."""


HandlerReply: TypeAlias = HookResult | HookFailure
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


def read_exit(event: HookEventName, status: int, *, stdout: bytes, stderr: bytes) -> HandlerReply:
    """The result of a program by its exit status: 0 is its output, 2 blocks, others are
    failures."""
    complaint = _text(stderr)
    if status == 2:
        return refusal_result(complaint)
    if status != 0:
        how = f"exited with {status}" if status > 0 else f"was killed by signal {-status}"
        first = complaint.splitlines()[0][:300] if complaint else ""
        return HookFailure(f"{how}: {first}" if first else how)
    return read_output(event, stdout)


def read_output(event: HookEventName, output: bytes) -> HandlerReply:
    """The result of a successful hook: JSON, or text on events where that is context."""
    output = output.removeprefix(_BYTE_ORDER_MARK).strip()
    if not output.startswith(b"{"):
        if not output:
            return EMPTY_HOOK_RESULT
        if event in _TEXT_IS_CONTEXT:
            return HookResult(context=(_text(output),))
        return HookResult(ignored=(f"text on stdout has no effect on {event}; {_CONTEXT_HINT}",))
    try:
        out = _OUTPUT.decode(output)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return HookFailure(f"gave an answer that cannot be read: {truncate(str(error), 300)}")
    specific = out.hook_specific_output or _Specific()
    if specific.hook_event_name not in (None, event):
        answered = truncate(specific.hook_event_name or "", 60)
        return HookFailure(f"answered to {answered}, not to {event}")
    result = combine(event, [*_general_results(event, out), *_event_results(event, specific)])
    return replace(result, ignored=_unknown_fields(output))


def _unknown_fields(output: bytes) -> tuple[str, ...]:
    """Fields of an answer that have no effect."""
    out = msgspec.json.decode(output, type=dict[str, object])
    names = [name for name in out if name not in _READ_FIELDS]
    specific = out.get("hookSpecificOutput")
    if isinstance(specific, dict):
        inner = _Specific.__struct_encode_fields__
        fields = cast("dict[str, object]", specific)
        names += [f"hookSpecificOutput.{name}" for name in fields if name not in inner]
    if not names:
        return ()
    is_misplaced = "additionalContext" in names or "additional_context" in names
    hint = f"; {_CONTEXT_HINT}" if is_misplaced else ""
    name_list = ", ".join(truncate(name, 60) for name in names[:_MAX_NAMES])
    return (f"{name_list}: not known, so it has no effect{hint}",)


def read_judgement(out: str) -> HandlerReply:
    """Parse a model's answer: `{"ok": ..., "reason": ...}`, with nothing around it."""
    try:
        judgement = _JUDGEMENT.decode(out.strip().encode())
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return HookFailure("gave a judgement that cannot be read")
    verdicts = {judgement.ok, judgement.decision} - {UNSET}
    if len(verdicts) != 1:
        return HookFailure("gave a judgement without saying yes or no")
    return EMPTY_HOOK_RESULT if verdicts <= {True, "approve"} else refusal_result(judgement.reason)


def refusal_result(reason: str | None) -> HookResult:
    """A result that blocks; its effect depends on the event."""
    return HookResult(blocked=True, reason=reason or _NO_REASON)


def combine(event: HookEventName, results: Sequence[HookResult]) -> HookResult:
    """Combine results, in the order of the hooks; the strictest decides.

    Blocking an event that cannot be blocked, or that has already happened, becomes a message.
    """
    refusals = [result for result in results if _refuses(event, result)]
    decided = _combine_refusals(event, refusals) if refusals else _combine_accepted(event, results)
    return replace(
        decided,
        stop=_first_set([result.stop for result in results]),
        context=_join_texts([*(result.context for result in results), decided.context]),
        messages=_join_texts([*(result.messages for result in results), decided.messages]),
        updated_output=_first_set([result.updated_output for result in results]),
        retry=any(result.retry for result in results),
        hook_runs=tuple(fact for result in results for fact in result.hook_runs),
    )


def _refuses(event: HookEventName, result: HookResult) -> bool:
    is_stopped = result.stop is not None and event in GATE_EVENTS
    return result.blocked or result.permission == "deny" or is_stopped


def _combine_refusals(event: HookEventName, refusals: Sequence[HookResult]) -> HookResult:
    reasons = tuple(dict.fromkeys(r.reason or r.stop or _NO_REASON for r in refusals))
    if event in _AFTER_CALLS:
        return HookResult(context=reasons)  # too late to block: the model gets a message
    if event not in CAN_BLOCK:
        return HookResult(messages=reasons)
    return HookResult(
        permission="deny" if event in _ON_CALLS else None,
        reason=truncate("\n".join(reasons)),
        blocked=True,
        interrupt=any(result.interrupt for result in refusals),
    )


def _combine_accepted(event: HookEventName, results: Sequence[HookResult]) -> HookResult:
    permission = _strictest(results) if event in _ON_CALLS else None
    decisive = [r for r in results if permission is not None and r.permission == permission]
    reasons = dict.fromkeys(result.reason for result in decisive if result.reason)
    updates = [update for result in decisive for update in result.updates]
    return HookResult(
        permission=permission,
        reason=truncate("\n".join(reasons)) or None,
        updated_input=_first_set([result.updated_input for result in results]),
        updates=tuple(updates) if permission == "allow" else (),
    )


def _strictest(results: Sequence[HookResult]) -> _Permission | None:
    permissions = {result.permission for result in results}
    for permission in _STRICTEST_FIRST:
        if permission in permissions:
            return permission
    return None


def _general_results(event: HookEventName, out: _Output) -> list[HookResult]:
    results: list[HookResult] = []
    if out.decision == "block":
        results.append(HookResult(blocked=True, reason=out.reason))
    if out.decision == "approve" and event == "PreToolUse":
        results.append(HookResult(permission="allow", reason=out.reason))
    if out.continue_ is False:
        results.append(HookResult(stop=truncate(out.stop_reason or "a hook ended the run")))
    if out.system_message:
        results.append(HookResult(messages=(out.system_message,)))
    return results


def _event_results(event: HookEventName, out: _Specific) -> list[HookResult]:
    context = (out.additional_context,) if out.additional_context else ()
    results = [HookResult(context=context, retry=event == "PermissionDenied" and bool(out.retry))]
    if out.permission_decision == "deny" or event == "PreToolUse":
        results.append(
            HookResult(
                permission=out.permission_decision,
                reason=out.permission_decision_reason,
                updated_input=out.updated_input,
            )
        )
    if out.decision is not None:
        results.append(_permission_result(event, out.decision))
    if event == "PostToolUse" and out.updated_tool_output is not None:
        results.append(HookResult(updated_output=_as_text(out.updated_tool_output)))
    return results


def _permission_result(event: HookEventName, out: _Decision) -> HookResult:
    if out.behavior == "deny":
        return HookResult(permission="deny", reason=out.message, interrupt=bool(out.interrupt))
    if event != "PermissionRequest":
        return EMPTY_HOOK_RESULT
    return HookResult(
        permission="allow",
        reason=out.message,
        updated_input=out.updated_input,
        updates=out.updated_permissions or (),
    )


def truncate(text: str, max_chars: int = _MAX_CHARS) -> str:
    """A hook's text, short enough for a prompt."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def _as_text(output: object) -> str:
    return output if isinstance(output, str) else msgspec.json.encode(output).decode()


def _text(output: bytes) -> str:
    return truncate(output.decode(errors="replace").strip())


def _join_texts(groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(truncate(text) for texts in groups for text in texts)


def _first_set(values: Sequence[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)
