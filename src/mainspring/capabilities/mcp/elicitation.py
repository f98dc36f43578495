"""Questions of MCP servers to the person behind the client, in the middle of a call: a form, or a
link to open. Each becomes a question of the running tool call.

A call continues in this process while the person thinks. In another process, a modern server gets
its stored state back (`stored_rounds.py`); a call of a legacy server is made again, and earlier
answers are given at once.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

import anyio
import msgspec
from anyio import CancelScope
from anyio.abc import TaskGroup
from msgspec import Struct
from yarl import URL

from mainspring.capabilities.mcp.protocol import messages
from mainspring.capabilities.mcp.protocol.foreign_text import (
    clean_line,
    clean_text,
    clean_value,
    is_too_deep,
)
from mainspring.capabilities.mcp.protocol.messages import CallResult, decode_result
from mainspring.capabilities.mcp.server_requests import RequestHandlers
from mainspring.capabilities.mcp.stored_rounds import OpenSeal, StoredRounds
from mainspring.core.errors import McpFailed
from mainspring.core.events import ApprovalAnswered, Evidence
from mainspring.core.tool import Call, PersonQuestion

Questions: TypeAlias = tuple[PersonQuestion, ...]
Perform: TypeAlias = Callable[[Callable[[str], None], StoredRounds], Awaitable[CallResult]]
"""Calls the server, with a callback for progress and the stored input rounds. Raises: McpFailed."""

_MAX_CALLS = 64  # open calls whose questions are kept; one more drops the oldest
_MAX_FIELDS = 50  # of one form; a person does not fill in more
_MAX_MESSAGE_CHARS = 4_000  # of a question; more is not read by anybody
_MAX_URL_CHARS = 2_000  # of the page that a person is sent to; the person reads it first
_FIELD_TYPES = ("string", "number", "integer", "boolean", "array")
_MAX_NAME_CHARS = 200  # of a field, which is shown on a line
_MAX_QUESTIONS = 20
"""Open questions of a call."""
_SECRETS = (
    r"pass.?(?:word|phrase|wd|code)|\bpwd\b|secret|token|api.?key|credential|(?:private|ssh).?key"
    r"|id_(?:rsa|ed25519)|\bcvv\b|\bcvc\b|card.?number|\bpin\b|\botp\b|one.?time.?(?:code|pass)|\b2fa\b"
    r"|seed.?phrase|mnemonic|cookie|пароль|密码|密碼|口令|パスワード|暗証番号|비밀번호"
    r"|contraseña|senha|mot.?de.?passe|passwor[dt]|kennwort|wachtwoord|hasło|heslo|şifre"
)
_SECRET = re.compile(_SECRETS, re.I)
_ASKS_FOR_SECRET = re.compile(
    rf"\b(?:enter|type|paste|give|provide|send|confirm|need|what is)\b[^.]{{0,60}}(?:{_SECRETS})",
    re.I,
)


class ElicitParams(Struct, frozen=True, kw_only=True, rename="camel"):
    message: str = ""
    mode: Literal["form", "url"] = "form"
    requested_schema: dict[str, object] | None = None
    url: str = ""


@dataclass(slots=True, eq=False)
class _OpenQuestion:
    question: PersonQuestion
    answer: ApprovalAnswered | None = None
    is_answered: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True, eq=False)
class _PendingCall:
    rounds: StoredRounds
    scope: CancelScope = field(default_factory=CancelScope)
    questions: list[_OpenQuestion] = field(default_factory=list[_OpenQuestion])
    changed: anyio.Event = field(default_factory=anyio.Event)
    progress: Callable[[str], None] = lambda _: None
    result: CallResult | None = None
    error: McpFailed | None = None

    def show_progress(self, text: str) -> None:
        self.progress(text)

    def notify(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    def answer(self, call: Call) -> Questions:
        """Pass the answers of the call to the server; returns the open questions."""
        self.rounds.call = call
        for item in self.questions:
            item.answer = call.answer_to(item.question)
            if item.answer is not None:
                item.is_answered.set()
        self.questions = [item for item in self.questions if item.answer is None]
        return tuple(item.question for item in self.questions)


class Elicitations:
    """An `InputHandler` for the calls of one server. `group` must outlive them. `others`: handlers
    of the server's other requests."""

    def __init__(
        self,
        server: str,
        group: TaskGroup,
        open_seal: OpenSeal | None = None,
        others: RequestHandlers | None = None,
    ) -> None:
        self._server = server
        self._group = group
        self._open_seal = open_seal
        self._handlers = others or {}
        self._calls: dict[str, _PendingCall] = {}

    async def __call__(self, method: str, params: bytes) -> Mapping[str, object]:
        if method == "elicitation/create":
            return await self._elicit(decode_result(params, ElicitParams, method))
        handler = self._handlers.get(method)
        if handler is None or not (method == "roots/list" or self._pending_calls()):
            raise McpFailed(f"{method:.80} is not allowed here", code=messages.METHOD_NOT_FOUND)
        return await handler.answer(params)

    @property
    def capabilities(self) -> Mapping[str, object]:
        capabilities = {
            handler.capability: dict[str, object]() for handler in self._handlers.values()
        }
        return {"elicitation": {"form": {}, "url": {}}, **capabilities}

    def _pending_calls(self) -> list[_PendingCall]:
        return [item for item in self._calls.values() if item.result is item.error is None]

    async def run(
        self, call: Call, perform: Perform, progress: Callable[[str], None]
    ) -> CallResult | Questions:
        """The result of a call; or the questions that a person must answer before it continues.

        Raises: McpFailed.
        """
        pending = self._calls.get(call.id)
        if pending is None:
            if len(self._calls) >= _MAX_CALLS:  # the oldest call was abandoned
                self._calls.pop(next(iter(self._calls))).scope.cancel()
            pending = self._calls[call.id] = _PendingCall(StoredRounds(call, self._open_seal))
            self._group.start_soon(self._perform, pending, perform)
        pending.progress = progress
        try:
            while True:
                questions = pending.answer(call)
                if pending.result is not None or pending.error is not None:
                    break
                if questions:
                    return questions
                await pending.changed.wait()
        except anyio.get_cancelled_exc_class():
            pending.scope.cancel()
            self._calls.pop(call.id, None)
            raise
        del self._calls[call.id]
        if pending.result is None:
            raise pending.error or McpFailed("the call was cancelled", is_in_doubt=True)
        return pending.result

    async def _perform(self, pending: _PendingCall, perform: Perform) -> None:
        try:
            with pending.scope:
                pending.result = await perform(pending.show_progress, pending.rounds)
        except McpFailed as error:
            pending.error = error
        finally:
            if pending.result is None and pending.error is None:
                pending.error = McpFailed("the call was cancelled", is_in_doubt=True)
            pending.notify()

    async def _elicit(self, params: ElicitParams) -> Mapping[str, object]:
        if not (pending_calls := self._pending_calls()):
            return {"action": "cancel"}  # there is no call whose user could be asked
        pending = pending_calls[-1]
        if len(pending.questions) >= _MAX_QUESTIONS:
            raise _refusal("too many questions are open")
        question = self._question(params, pending)
        item = _OpenQuestion(question)
        pending.questions.append(item)
        pending.notify()
        try:
            await item.is_answered.wait()
        finally:
            if item in pending.questions:  # the server cancelled the question
                pending.questions.remove(item)
        answer = item.answer
        if answer is None or answer.decision == "deny":
            return {"action": "decline"}
        if question.form_schema is None:
            return {"action": "accept"}
        return {"action": "accept", "content": _content(question.form_schema, answer.form or {})}

    def _question(self, params: ElicitParams, pending: _PendingCall) -> PersonQuestion:
        digest = hashlib.sha256(msgspec.json.encode(params)).hexdigest()[:16]
        pending.rounds.asked[digest] += 1
        key = f"{digest}-{pending.rounds.asked[digest]}"
        text = clean_text(params.message)[:_MAX_MESSAGE_CHARS].strip()
        server = f"The MCP server {self._server}"
        if params.mode == "url":
            url = _checked_url(params.url)
            text = f"{server} asks you to open a link to {url.raw_host}: {text}"
            return PersonQuestion(
                key=key, text=text, evidence=(Evidence(title="link", text=str(url), ref=str(url)),)
            )
        schema = _checked_schema(params.requested_schema or {})
        if schema["properties"] and _ASKS_FOR_SECRET.search(unicodedata.normalize("NFKC", text)):
            raise _refusal("do not ask for secrets in a form, use a url")
        return PersonQuestion(key=key, text=f"{server} asks: {text}", form_schema=schema)


def _checked_url(text: str) -> URL:
    if clean_line(text, _MAX_URL_CHARS) != text:
        raise _refusal("the link is not one to a web page")
    try:
        url = URL(text)
    except ValueError as error:
        raise _refusal("the link is not a URL") from error
    if url.scheme not in ("https", "http") or not url.host or url.user is not None:
        raise _refusal("the link is not one to a web page")
    return url


def _checked_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """A flat form that asks for no secret, since its answers are in the log."""
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or len(cast("dict[str, object]", properties)) > _MAX_FIELDS:
        raise _refusal(f"a form has an object of at most {_MAX_FIELDS} properties")
    fields: dict[str, object] = {}
    for name, field_schema in cast("dict[str, object]", properties).items():
        if not isinstance(field_schema, dict) or is_too_deep(cast("object", field_schema)):
            raise _refusal(f"{clean_line(name, 80)} is not a field of a form")
        cleaned = cast("dict[str, object]", clean_value(cast("dict[str, object]", field_schema)))
        if cleaned.get("type", "string") not in _FIELD_TYPES or "properties" in cleaned:
            raise _refusal(f"{clean_line(name, 80)} is not a field of a form")
        if _asks_for_secret(name, cleaned):
            raise _refusal(f"{clean_line(name, 80)}: do not ask for secrets in a form, use a url")
        fields[name] = cleaned
        if clean_line(name, _MAX_NAME_CHARS) != name:
            raise _refusal(f"{clean_line(name, 80)}: the name of a field is one line of text")
    required = schema.get("required", [])
    names = cast("list[object]", required) if isinstance(required, list) else [required]
    if not all(isinstance(name, str) for name in names):
        raise _refusal("`required` of a form is a list of names")
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in names if name in fields],
    }


def _asks_for_secret(name: str, field_schema: Mapping[str, object]) -> bool:
    about = (name, field_schema.get("title", ""), field_schema.get("description", ""))
    text = unicodedata.normalize("NFKC", clean_text(" ".join(map(str, about))))
    return field_schema.get("format") == "password" or _SECRET.search(text) is not None


def _refusal(why: str) -> McpFailed:
    return McpFailed(why, code=messages.INVALID_PARAMS)


def _content(schema: Mapping[str, object], form: Mapping[str, object]) -> dict[str, object]:
    """The filled-in values, and the defaults of empty fields."""
    fields = cast("dict[str, dict[str, object]]", schema["properties"])
    defaults = {name: item["default"] for name, item in fields.items() if "default" in item}
    return {**defaults, **{name: value for name, value in form.items() if name in fields}}
