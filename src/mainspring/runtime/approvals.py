"""Approvals: what a person is asked, the events that answer it, and whether an answer is still
valid.

Needs only a session's log. The service adds deadlines, notifications and rules about who may
answer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput, NotFound, StaleVersion
from mainspring.core.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ApprovalSubject,
    ApprovalVoided,
    Evidence,
    StaleWhen,
    SubjectType,
    UserToolConfirmation,
)
from mainspring.core.ids import stable_id
from mainspring.core.sender import Sender
from mainspring.function_tools.json_schema import schema_problems, supported_keywords
from mainspring.harness.state.open_approval import OpenApproval, apply_answer, fold_approvals
from mainspring.harness.state.open_call import OpenCall
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.upcast import read_payload
from mainspring.log.writer import Writer

Decision: TypeAlias = Literal["allow", "deny"]
AnswerEvent: TypeAlias = UserToolConfirmation | ApprovalAnswered
APPROVAL_TYPES = event_types(ApprovalRequested, ApprovalAnswered, ApprovalVoided)
CHANGED_REASON = "what it was about has changed since it was asked"
MAX_EVIDENCE_CHARS = 64 * 1024
"""Characters of one piece of evidence in the log: more than a person reads before answering."""
MAX_CHOICES = 20
"""More than fit on a screen without scrolling."""
MAX_CHOICE_CHARS = 100
"""Characters of a choice: it is a label of a button and an argument on the command line."""
_ANSWERED = event_types(ApprovalAnswered)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_INTEGER = re.compile(r"[+-]?\d{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    decision: Decision
    text: str | None = None
    """The reason for a denial, which the agent reads, or a comment on what another part asked."""
    form: Mapping[str, object] | None = None
    choice: str | None = None
    """One of the choices of the question."""


def subject_of(call: OpenCall) -> ApprovalSubject:
    """What a person is asked about a call: a question of its own, or permission to run it."""
    if call.open_approval is not None:
        return call.open_approval.request.subject
    evidence = () if call.preview is None else (Evidence(title="preview", text=call.preview),)
    return ApprovalSubject(
        type="tool_call",
        id=call.id,
        hash=call.call_hash or "",
        evidence=evidence,
        stale_when=("content_changed", "call_ended"),
    )


def answer_call(call: OpenCall, answer: Answer, *, answered_by: str | None = None) -> AnswerEvent:
    """The event that answers a waiting call.

    Raises: InvalidInput: the form does not fit the question.
    """
    if call.open_approval is not None:
        return answer_approval(call.open_approval, answer, answered_by=answered_by)
    if answer.form is not None:
        raise InvalidInput(f"form: {call.name} asks for permission only; it has no form")
    if answer.choice is not None:
        raise InvalidInput(f"choice: {call.name} asks for permission only; there are no choices")
    if answer.text is not None and answer.decision == "allow":
        raise InvalidInput("a message goes with deny")
    return UserToolConfirmation(
        tool_use_id=call.id,
        result=answer.decision,
        deny_message=answer.text,
        answered_by=answered_by,
    )


def answer_approval(
    approval: OpenApproval, answer: Answer, *, answered_by: str | None = None
) -> ApprovalAnswered:
    """Raises: InvalidInput: the form or the choice does not fit the question."""
    schema = approval.request.form_schema
    _check_choice(approval.request.choices, answer)
    if answer.decision == "deny" and answer.form is not None:
        raise InvalidInput("form: only with allow")
    if answer.decision == "allow":
        check_form(schema, answer.form)
    return ApprovalAnswered(
        approval_id=approval.id,
        decision=answer.decision,
        text=answer.text,
        form=None if answer.form is None else dict(answer.form),
        tool_use_id=approval.request.tool_use_id,
        answered_by=answered_by,
        choice=answer.choice,
    )


def may_comment(call: OpenCall) -> bool:
    """Whether `allow` may have a text: if a part asks that is not a tool call."""
    return call.open_approval is not None and not call.open_approval.is_of_call


def question_id(call: OpenCall) -> str:
    """The id that the answer to a call refers to: that of its approval, or of the call itself."""
    return call.id if call.open_approval is None else call.open_approval.id


def answered_id(answer: AnswerEvent) -> str:
    """The `question_id` that an answer is for."""
    is_permission = isinstance(answer, UserToolConfirmation)
    return answer.tool_use_id if is_permission else answer.approval_id


class ApprovalQuestion(Struct, frozen=True, kw_only=True):
    """What a part asks a person that is not a tool call: a workflow, a promotion, a memory change.

    An answer counts only for the state that the person saw: `hash` covers all fields. To find out
    whether it still counts, build the question again from the current state.
    """

    type: SubjectType
    id: str
    """What is asked about; another question about the same id replaces the earlier one."""
    text: str
    evidence: tuple[Evidence, ...] = ()
    choices: tuple[str, ...] = ()
    """What the person may choose from when allowing, if anything."""
    form_schema: Mapping[str, object] | None = None
    base: str | None = None
    """The version or hash that the change is based on. If it is replaced, answers are void."""

    @property
    def hash(self) -> str:
        return hashlib.sha256(_ENCODER.encode(self)).hexdigest()

    @property
    def approval_id(self) -> str:
        return stable_id("aprv", self.type, self.id, self.hash)

    @property
    def request(self) -> ApprovalRequested:
        stale_when: tuple[StaleWhen, ...] = ("content_changed",)
        return ApprovalRequested(
            approval_id=self.approval_id,
            subject=ApprovalSubject(
                type=self.type,
                id=self.id,
                hash=self.hash,
                evidence=self.evidence,
                stale_when=stale_when if self.base is None else (*stale_when, "base_changed"),
            ),
            question=self.text,
            form_schema=None if self.form_schema is None else dict(self.form_schema),
            choices=self.choices,
        )


def evidence_of(title: str, content: str | bytes, *, ref: str | None = None) -> Evidence:
    """Material for a question, with the hash of all of it. Long material is shown in part; `ref`
    says where the rest is."""
    encoded = content.encode(errors="surrogatepass") if isinstance(content, str) else content
    text = encoded.decode(errors="replace")
    return Evidence(
        title=title,
        text=text if len(text) <= MAX_EVIDENCE_CHARS else f"{text[:MAX_EVIDENCE_CHARS]}...",
        ref=ref,
        hash=hashlib.sha256(encoded).hexdigest(),
    )


async def request_approval(
    log: SessionLog, writer: Writer, question: ApprovalQuestion
) -> OpenApproval:
    """Ask a person, and return the question with its answer, if it has one. Asking the same again
    changes nothing; asking about another state of the same subject voids earlier approvals.

    Raises: InvalidInput: the choices are empty, too long or not distinct.
    """
    _check_choices(question.choices)
    approvals = await read_approvals(log, writer.session_id)
    earlier = [
        item
        for item in approvals
        if (item.request.subject.type, item.request.subject.id) == (question.type, question.id)
        and not item.is_void
    ]
    for item in earlier:
        if item.request.subject.hash == question.hash:
            return item
    stale = [ApprovalVoided(approval_id=item.id, reason=CHANGED_REASON) for item in earlier]
    for event in await writer.append(*stale, question.request):
        approvals = fold_approvals(approvals, event)
    return approvals[-1]


async def void_approval(writer: Writer, approval_id: str, reason: str) -> None:
    """Take a question back: nobody needs the answer any more."""
    await writer.append(ApprovalVoided(approval_id=approval_id, reason=reason))


async def submit_answer(
    log: SessionLog, session_id: str, call: OpenCall, answer: Answer, *, sender: Sender
) -> InboxItem:
    """Put the answer to a call, or to a question of a part, into the session's inbox. The first
    answer counts: another one to the same question is not accepted.

    Raises:
        InvalidInput: the form or the choice does not fit the question.
        EventIdTaken: another answer was first.
    """
    return await log.submit(
        session_id,
        answer_call(call, answer),
        sender=sender,
        client_id=f"answer-{call.id}-{subject_of(call).hash}-{call.asked}",
        thread_id=call.thread_id or None,
    )


async def answer_to(
    log: SessionLog, session_id: str, question: ApprovalQuestion
) -> ApprovalAnswered | None:
    """The answer to exactly this question; `None`: nobody has answered yet.

    Raises:
        StaleVersion: the person saw another state, or the question was taken back.
        NotFound: it was never asked.
    """
    same = [
        item
        for item in await read_approvals(log, session_id)
        if (item.request.subject.type, item.request.subject.id) == (question.type, question.id)
    ]
    if not same:
        raise NotFound("approval", question.approval_id)
    for item in same:
        if item.id == question.approval_id and not item.is_void:
            return item.answer
    raise StaleVersion(f"{same[-1].id} is void: {CHANGED_REASON}")


async def read_approvals(log: SessionLog, session_id: str) -> tuple[OpenApproval, ...]:
    """All approvals of a session, with answers that are still in its inbox. Permission for tool
    calls is not among them: it is part of the calls.

    Raises: SessionNotFound.
    """
    pending = await log.store.pending(session_id, types=_ANSWERED)
    approvals: tuple[OpenApproval, ...] = ()
    for event in await log.read(session_id, types=APPROVAL_TYPES):
        approvals = fold_approvals(approvals, event)
    for item in pending:
        answer = read_payload(item.type, item.body, item.version)
        if isinstance(answer, ApprovalAnswered):
            approvals = apply_answer(approvals, answer)
    return approvals


async def is_approved(
    log: SessionLog, session_id: str, approval_id: str, subject_hash: str
) -> bool | None:
    """Whether a subject was approved in its current state; `None`: nobody has answered yet.

    Raises:
        StaleVersion: it is void: the person saw another state.
        NotFound: there is no such approval.
    """
    for item in await read_approvals(log, session_id):
        if item.id == approval_id:
            if item.is_void or item.request.subject.hash != subject_hash:
                raise StaleVersion(f"{approval_id} is void: {CHANGED_REASON}")
            return None if item.answer is None else item.answer.decision == "allow"
    raise NotFound("approval", approval_id)


def _check_choice(choices: Sequence[str], answer: Answer) -> None:
    text = ", ".join(choices)
    if answer.choice is None:
        if choices and answer.decision == "allow":
            raise InvalidInput(f"choice: missing; choose one of {text}")
    elif not choices:
        raise InvalidInput("choice: the question has no choices")
    elif answer.decision == "deny":
        raise InvalidInput("choice: only with allow")
    elif answer.choice not in choices:
        raise InvalidInput(f"choice: one of {text}")


def _check_choices(choices: Sequence[str]) -> None:
    is_short = all(0 < len(choice) <= MAX_CHOICE_CHARS for choice in choices)
    if not is_short or len(choices) > MAX_CHOICES or len(set(choices)) != len(choices):
        raise InvalidInput(
            f"choices: at most {MAX_CHOICES}, all different, of 1 to {MAX_CHOICE_CHARS} characters"
        )


def check_form(schema: Mapping[str, object] | None, form: Mapping[str, object] | None) -> None:
    """Raises: InvalidInput: a field is missing, unknown or has a value that the schema does not
    allow."""
    if schema is None:
        if form is not None:
            raise InvalidInput("form: the question has no form")
        return
    fields = form_fields(schema)
    values = form or {}
    if unknown := [name for name in values if name not in fields]:
        raise InvalidInput(f"form.{unknown[0]}: the form has no such field")
    required = cast("list[str]", schema.get("required") or [])
    for name, field in fields.items():
        if name in values:
            _check_field(f"form.{name}", field, values[name])
        elif name in required:
            raise InvalidInput(f"form.{name}: missing")


def parse_form(text: str | None) -> dict[str, object] | None:
    """Raises: InvalidInput: not a JSON object."""
    try:
        return None if text is None else msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"form: not a JSON object: {error}") from error


def form_fields(schema: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    return cast("Mapping[str, Mapping[str, object]]", schema.get("properties") or {})


def field_choices(field: Mapping[str, object]) -> list[object]:
    """The values of an enumeration, in either notation; empty: any value."""
    items = cast("Mapping[str, object]", field.get("items") or {})
    for source in (field, items):
        for key in ("oneOf", "anyOf"):
            titled = cast("list[Mapping[str, object]]", source.get(key) or [])
            if titled:
                return [option.get("const") for option in titled]
        if source.get("enum"):
            return list(cast("list[object]", source["enum"]))
    return []


def parse_field(field: Mapping[str, object], text: str) -> object:
    """The value that a person typed for a field; check it with `check_form`."""
    match field.get("type"):
        case "boolean" if text.lower() in ("y", "yes", "true", "n", "no", "false"):
            return text.lower() in ("y", "yes", "true")
        case "integer" | "number" if _INTEGER.fullmatch(text):
            return int(text)
        case "number":
            with suppress(msgspec.DecodeError, RecursionError):
                return msgspec.json.decode(text, type=float)
            return text
        case "array":
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            return text


def _check_field(where: str, field: Mapping[str, object], value: object) -> None:
    choices = field_choices(field)
    if choices and any(item not in choices for item in _items(value)):
        raise InvalidInput(f"{where}: one of {', '.join(map(str, choices))}")
    if problem := next(schema_problems(value, supported_keywords(field), where), None):
        raise InvalidInput(problem)


def _items(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else [value]
