"""Sending events to a session: all events of a request are checked before any is submitted."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from mainspring.core.envelope import payload_type
from mainspring.core.errors import AlreadyExists, EventIdTaken, Forbidden, InvalidInput
from mainspring.core.events import (
    ClientPayload,
    FeedbackGiven,
    SystemMessage,
    UserCustomToolResult,
    UserDefineOutcome,
    UserInterrupt,
    UserMessage,
    UserToolConfirmation,
    UserToolResult,
)
from mainspring.harness.state.open_call import OpenCall, call_id_of
from mainspring.harness.state.session_projection import SessionProjection
from mainspring.log.store import InboxItem
from mainspring.runtime.feedback import check_subject
from mainspring.service.access.principal import Principal
from mainspring.service.resources.environments import SelfHostedConfig
from mainspring.service.sessions.events.earlier_answers import (
    EarlierAnswers,
    answer_client_id,
    answer_key,
    answered_by,
    conflicting_answer,
    is_answer,
)
from mainspring.service.sessions.events.event_content import (
    SendConfirmation,
    SendCustomResult,
    SendResult,
    SentEvent,
    expand_skill_command,
    to_payload,
    with_shared_file_limit,
)
from mainspring.service.sessions.events.wire_events import EventRenderer, WireEvent
from mainspring.service.sessions.resource_types import ResourceLookups
from mainspring.service.sessions.session_record import ACCEPTED_KIND, AcceptedRequest, SessionRecord
from mainspring.service.sessions.session_view import LoadedSession
from mainspring.service.sessions.sessions import Sessions
from mainspring.service.storage.repository import IndexColumns, Repository

_ACCOMPANIED = UserMessage | UserToolResult | UserCustomToolResult
_KEY_REUSED = "Idempotency-Key: an earlier request with this key sent other events"
_RESULT = "result"
"""The prefix of the client ids of results, so that an inbox accepts one result for each call."""
_SPEECH = UserMessage | UserDefineOutcome | SystemMessage


class AnswerAccess(Protocol):
    """Who may answer calls of a session, and who has sent messages in it."""

    async def check(
        self, principal: Principal, session: SessionRecord, askings: Mapping[str, int]
    ) -> None:
        """Raises: Forbidden."""
        ...

    async def note_speaker(self, principal: Principal, session: SessionRecord) -> None: ...


class EventSender:
    def __init__(self, sessions: Sessions, answers: AnswerAccess) -> None:
        self._sessions = sessions
        self._wire = EventRenderer(sessions.log)
        records = sessions.repository.records
        self._answers = answers
        self._accepted = Repository(
            records,
            ACCEPTED_KIND,
            AcceptedRequest,
            columns=lambda accepted: IndexColumns(parent=accepted.session_id),
            clock=sessions.clock,
        )

    async def send(
        self,
        principal: Principal,
        session_id: str,
        sent: Sequence[SentEvent],
        *,
        key: str | None = None,
    ) -> list[WireEvent]:
        """Put events into the inbox and wake the session. With a `key`, a repeated request takes
        effect once. An answer to a call takes effect once without a key too.

        Raises: NotFound, InvalidInput, Forbidden: they may not send or approve this. StaleVersion:
            a call has been answered already, with another answer.
        """
        if principal.environment_id is not None:
            _check_worker_events(sent)
        session = await self._sessions.find(principal, session_id)
        calls = [item.tool_use_id for item in sent if isinstance(item, SendConfirmation)]
        if calls:
            askings = {
                call.id: call.asked for id_ in calls if (call := session.projection.call(id_))
            }
            await self._answers.check(principal, session.record, askings)
        lookups = with_shared_file_limit(self._sessions.dependencies.lookups)
        payloads = [
            await self._payload(principal, session, lookups, event, f"events[{index}]")
            for index, event in enumerate(sent)
        ]
        if session.record.workflow_run_id and any(isinstance(item, _SPEECH) for item in payloads):
            raise InvalidInput("a workflow run takes no messages: answer its gates, or steer it")
        repeated = await self._repeated(session, payloads)
        if len(repeated) < len(payloads):
            check_open(session)
        if key is None:
            check_events(session, payloads, repeated)
            client_ids = [_client_id(session.projection, payload) for payload in payloads]
        else:
            client_ids = await self._accept(principal.tenant, session, payloads, repeated, key)
        if any(isinstance(payload, _SPEECH) for payload in payloads):
            await self._answers.note_speaker(principal, session.record)
        items = await self._submit(principal, session, payloads, client_ids, repeated)
        main = session.row.thread_id
        return [await self._wire.pending(item, main_thread_id=main) for item in items]

    async def _payload(
        self,
        principal: Principal,
        session: LoadedSession,
        lookups: ResourceLookups,
        sent: SentEvent,
        where: str,
    ) -> ClientPayload:
        payload = await to_payload(lookups, principal.tenant, sent, where=where)
        if isinstance(payload, FeedbackGiven):
            principal.require_human()
            await check_subject(self._sessions.log, session.record.id, payload.subject)
        if isinstance(payload, UserToolConfirmation):
            return replace(payload, answered_by=answered_by(principal))
        return await expand_skill_command(
            self._sessions.dependencies, principal.tenant, session.record, payload
        )

    async def _repeated(
        self, session: LoadedSession, payloads: Sequence[ClientPayload]
    ) -> dict[int, InboxItem]:
        """The answers that the session already has, by index in `payloads`.

        Raises: StaleVersion: one of them was different.
        """
        keys = {at: key for at, payload in enumerate(payloads) if (key := answer_key(payload))}
        if not keys:
            return {}
        answers = EarlierAnswers(self._sessions.log, session.record.id)
        earlier = await answers.pending()
        earlier |= await answers.logged(
            key
            for index, key in keys.items()
            if key not in earlier and not _is_open(session.projection, payloads[index])
        )
        repeated = {index: earlier[key] for index, key in keys.items() if key in earlier}
        for index, item in repeated.items():
            answers.check_same(item, payloads[index])
        return repeated

    async def _accept(
        self,
        tenant: str,
        session: LoadedSession,
        payloads: Sequence[ClientPayload],
        repeated: Collection[int],
        key: str,
    ) -> Sequence[str | None]:
        """The client ids of a request with an idempotency key. The first such request is checked
        and stored; a repeated one gets the stored ids.

        Raises: InvalidInput.
        """
        session_id = session.record.id
        id_ = _request_id(session_id, key)
        about = tuple(map(_fingerprint, payloads))
        accepted = await self._accepted.find(tenant, id_)
        if accepted is None:
            check_events(session, payloads, repeated)
            client_ids = tuple(
                _client_id(session.projection, payload) or f"{id_}:{index}"
                for index, payload in enumerate(payloads)
            )
            new = AcceptedRequest(id=id_, session_id=session_id, client_ids=client_ids, about=about)
            try:
                accepted = await self._accepted.put(tenant, new)
            except AlreadyExists:  # the same request was sent concurrently
                accepted = await self._accepted.get(tenant, id_)
        if accepted.about != about:
            raise InvalidInput(_KEY_REUSED)
        return accepted.client_ids

    async def _submit(
        self,
        principal: Principal,
        session: LoadedSession,
        payloads: Sequence[ClientPayload],
        client_ids: Sequence[str | None],
        repeated: Mapping[int, InboxItem],
    ) -> list[InboxItem]:
        new = [index for index in range(len(payloads)) if index not in repeated]
        try:
            items = await self._sessions.submit(
                principal,
                session.record,
                *(payloads[index] for index in new),
                client_ids=[client_ids[index] for index in new],
                thread_ids=[_target_thread(session.projection, payloads[index]) for index in new],
                row=session.row,
            )
        except EventIdTaken as error:
            kind, _, target = error.client_id.partition(":")
            if not is_answer(error.client_id) and kind != _RESULT:
                raise InvalidInput(_KEY_REUSED) from error
            raise conflicting_answer(target.partition(":")[0]) from error
        submitted = dict(zip(new, items, strict=True)) | dict(repeated)
        return [submitted[index] for index in range(len(payloads))]


def _check_worker_events(sent: Sequence[SentEvent]) -> None:
    """Check that a worker sends only results of its calls; it may not prompt, steer or approve.

    Raises: Forbidden.
    """
    for index, event in enumerate(sent):
        if not isinstance(event, SendResult | SendCustomResult):
            type_ = event.__struct_config__.tag
            raise Forbidden(
                f"events[{index}]: a worker may send only results of its calls, not {type_}"
            )


def _client_id(projection: SessionProjection, payload: ClientPayload) -> str | None:
    """The client id of an answer, so that the inbox accepts it once."""
    if not isinstance(payload, UserToolConfirmation):
        call_id = call_id_of(payload)
        return call_id and f"{_RESULT}:{call_id}"
    call = projection.call(payload.tool_use_id)
    return None if call is None else answer_client_id(call.id, call.asked)


def _is_open(projection: SessionProjection, payload: ClientPayload) -> bool:
    """Whether the call of an answer still waits for it."""
    call = projection.call(call_id_of(payload) or "")
    return call is not None and (call.is_asked or not isinstance(payload, UserToolConfirmation))


def check_events(
    session: LoadedSession, payloads: Sequence[ClientPayload], repeated: Collection[int]
) -> None:
    """Check that the session accepts the payloads, in this order. `repeated`: indexes of answers
    that it already has.

    Raises: InvalidInput.
    """
    answered = set[str]()
    for index, payload in enumerate(payloads):
        where = f"events[{index}]"
        call_id = None if index in repeated else _check_one(session, payload, where)
        if isinstance(payload, SystemMessage):
            _check_accompanying(payloads, index, where)
        if call_id is None:
            continue
        if call_id in answered:
            raise InvalidInput(f"{where}: {call_id} has been answered already")
        answered.add(call_id)


def _check_one(session: LoadedSession, payload: ClientPayload, where: str) -> str | None:
    """Returns the id of the call that the payload answers, if any."""
    match payload:
        case UserToolConfirmation(tool_use_id=call_id):
            _check_asked(session.projection, call_id, where)
            return call_id
        case UserCustomToolResult(custom_tool_use_id=call_id):
            _find_call(session.projection, call_id, f"{where}.custom_tool_use_id", is_custom=True)
            return call_id
        case UserToolResult(tool_use_id=call_id):
            if not isinstance(session.record.environment, SelfHostedConfig):
                raise InvalidInput(f"{where}: user.tool_result is for self_hosted environments")
            _check_handed_over(session.projection, call_id, f"{where}.tool_use_id")
            return call_id
        case UserInterrupt(session_thread_id=str(thread_id)):
            _check_thread(session, thread_id, f"{where}.session_thread_id")
            return None
        case _:
            return None


def check_open(session: LoadedSession) -> None:
    if session.record.archived_at is not None:
        raise InvalidInput(f"session {session.record.id} is archived and accepts no events")
    if session.status == "terminated":
        raise InvalidInput(f"session {session.record.id} has ended and accepts no events")


def _check_asked(projection: SessionProjection, call_id: str, where: str) -> None:
    call = projection.call(call_id)
    if call is None or not call.is_asked:
        raise InvalidInput(
            f"{where}.tool_use_id: {call_id} is not waiting for a confirmation;"
            f" {_waiting_text(call for call in projection.calls if call.is_asked)}"
        )
    if call.open_approval is not None:
        raise InvalidInput(
            f"{where}.tool_use_id: {call_id} asks a question with a form;"
            " answer it with POST /v1/mainspring/approvals/{id}"
        )


def _find_call(
    projection: SessionProjection, call_id: str, where: str, *, is_custom: bool
) -> OpenCall:
    calls = [call for call in projection.calls if (call.kind == "custom") == is_custom]
    for call in calls:
        if call.id == call_id:
            return call
    raise InvalidInput(f"{where}: {call_id} is not waiting for a result; {_waiting_text(calls)}")


def _check_handed_over(projection: SessionProjection, call_id: str, where: str) -> None:
    """Check that a client runs the call. One that was just approved counts as handed over."""
    call = _find_call(projection, call_id, where, is_custom=False)
    if call.is_ours:
        raise InvalidInput(f"{where}: {call_id} is not run by a client")
    if call.is_asked:
        raise InvalidInput(f"{where}: {call_id} needs a user.tool_confirmation first")


def _waiting_text(calls: Iterable[OpenCall]) -> str:
    ids = [call.id for call in calls]
    return f"waiting: {', '.join(ids[:10])}" if ids else "no call is"


def _check_thread(session: LoadedSession, thread_id: str, where: str) -> None:
    if thread_id not in session.projection.threads:
        raise InvalidInput(f"{where}: this session has no thread {thread_id}")
    if thread_id in session.record.archived_threads:
        raise InvalidInput(f"{where}: the thread {thread_id} is archived")


def _check_accompanying(payloads: Sequence[ClientPayload], index: int, where: str) -> None:
    is_last = index == len(payloads) - 1
    if not is_last or index == 0 or not isinstance(payloads[index - 1], _ACCOMPANIED):
        raise InvalidInput(
            f"{where}: a system.message must come last, right after the user.message,"
            " user.tool_result or user.custom_tool_result that it accompanies"
        )


def _target_thread(projection: SessionProjection, payload: ClientPayload) -> str | None:
    """The thread that an event is for; for an answer, the thread of its call. `None`: the main
    thread."""
    if isinstance(payload, UserInterrupt):
        return payload.session_thread_id
    call_id = call_id_of(payload)
    call = None if call_id is None else projection.call(call_id)
    return None if call is None else call.thread_id


def _fingerprint(payload: ClientPayload) -> str:
    is_interrupt = isinstance(payload, UserInterrupt)
    target = payload.session_thread_id if is_interrupt else call_id_of(payload)
    return f"{payload_type(payload)} {target}"


def _request_id(session_id: str, key: str) -> str:
    if not 1 <= len(key) <= 255 or not key.isascii():
        raise InvalidInput("Idempotency-Key: must have 1 to 255 ASCII characters")
    return hashlib.sha256(f"{session_id}\0{key}".encode()).hexdigest()
