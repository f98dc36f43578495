"""Answers that a session already has for its calls. A client that repeats an answer gets the same
reply again; a client that sends another answer is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core.clock import to_micros
from mainspring.core.envelope import FORMAT, AnyPayload, encode_payload, payload_type
from mainspring.core.errors import StaleVersion
from mainspring.core.events import (
    ClientPayload,
    UserCustomToolResult,
    UserToolConfirmation,
    UserToolResult,
)
from mainspring.harness.state.open_call import call_id_of
from mainspring.log.event_chain import encode_scrubbed
from mainspring.log.session_log import SessionLog
from mainspring.log.store import InboxItem
from mainspring.log.upcast import read_payload
from mainspring.service.access.principal import Principal

_Answer = UserToolConfirmation | UserCustomToolResult | UserToolResult
ANSWER_TYPES = frozenset({"user.tool_confirmation", "user.custom_tool_result", "user.tool_result"})
AnswerKey = tuple[str, str]
"""The type of an answer and the id of its call: a call can have a confirmation and a result."""


def answer_key(payload: AnyPayload) -> AnswerKey | None:
    """The key of an answer; `None` if the payload answers no call."""
    call_id = call_id_of(payload) if isinstance(payload, _Answer) else None
    return None if call_id is None else (payload_type(payload), call_id)


def answered_by(principal: Principal) -> str:
    return f"{principal.key_id}:{principal.name}" if principal.name else principal.key_id


def answer_client_id(call_id: str, asked: int) -> str:
    """The client id of an answer. An inbox accepts each client id once, so only the first of two
    answers to one question."""
    return f"answer:{call_id}:{asked}"


def is_answer(client_id: str) -> bool:
    return client_id.startswith("answer:")


class EarlierAnswers:
    """The answers of one session, from its inbox and from its log."""

    def __init__(self, log: SessionLog, session_id: str) -> None:
        self._log = log
        self._session_id = session_id

    async def pending(self) -> dict[AnswerKey, InboxItem]:
        """Answers in the inbox that the session has not processed yet."""
        items: dict[AnswerKey, InboxItem] = {}
        for item in await self._log.store.pending(self._session_id, types=ANSWER_TYPES):
            key = answer_key(read_payload(item.type, item.body, item.version))
            if key is not None:
                items.setdefault(key, item)
        return items

    async def logged(self, keys: Iterable[AnswerKey]) -> dict[AnswerKey, InboxItem]:
        """The answers with these keys that are in the log; the newest of each."""
        wanted_keys = frozenset(keys)
        items: dict[AnswerKey, InboxItem] = {}
        if not wanted_keys:
            return items
        types = {type_ for type_, _ in wanted_keys}
        for event in await self._log.read(self._session_id, types=types):
            payload = event.payload
            if isinstance(payload, _Answer) and (key := answer_key(payload)) in wanted_keys:
                assert key is not None
                items[key] = InboxItem(
                    event_id=event.id,
                    client_id=event.id,
                    thread_id=event.thread_id,
                    time=to_micros(event.time),
                    version=FORMAT,
                    type=event.type,
                    body=encode_payload(payload).decode(),
                    sender=None,
                    seq=event.seq,
                )
        return items

    def check_same(self, earlier: InboxItem, payload: ClientPayload) -> None:
        """Raises: StaleVersion: the earlier answer was another one."""
        earlier_payload = read_payload(earlier.type, earlier.body, earlier.version)
        clean, _ = encode_scrubbed(payload, self._log.scrub)
        if clean != earlier_payload:
            key = answer_key(payload)
            raise conflicting_answer(key[1] if key else "")


def conflicting_answer(call_id: str) -> StaleVersion:
    return StaleVersion(
        f"{call_id} has been answered already, with another answer or by somebody else;"
        " the first answer counts"
    )
