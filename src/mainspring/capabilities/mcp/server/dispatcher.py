"""Answers requests of both eras: finds the method, decodes its parameters, calls the features,
encodes the result."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
from msgspec import Raw, Struct

from mainspring.capabilities.mcp.protocol.messages import (
    LEGACY_VERSIONS,
    META,
    MODERN_VERSIONS,
    SKILLS_EXTENSION,
    Implementation,
    Message,
    RequestId,
    encode_answer,
    encode_refusal,
)
from mainspring.capabilities.mcp.server.connection import MAX_SUBSCRIPTIONS, McpConnection
from mainspring.capabilities.mcp.server.exchange import (
    ClientTraits,
    Exchange,
    InputRequired,
    Outlet,
)
from mainspring.capabilities.mcp.server.features import CompletionRequest, Features
from mainspring.capabilities.mcp.server.listening import listen
from mainspring.capabilities.mcp.server.params import (
    CallToolParams,
    CompletionParams,
    InitializeParams,
    LevelParams,
    ListParams,
    PromptParams,
    PromptReference,
    RequestHead,
    ResourceParams,
    client_of,
    page_of,
    read_params,
)
from mainspring.capabilities.mcp.server.refusals import (
    RequestRefused,
    busy,
    internal_error,
    invalid,
    malformed,
    no_method,
)
from mainspring.capabilities.mcp.server.request_state import (
    RequestState,
    StateSigner,
    request_digest,
)
from mainspring.core.errors import Forbidden, InvalidInput, MainspringError, NotFound

_LOG = logging.getLogger("mainspring.mcp.server")
_MAX_COMPLETIONS = 100  # MCP, completion/complete: at most 100 values
Result: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, with the parts that all methods share already decoded."""

    id: RequestId
    method: str
    params: Raw
    head: RequestHead
    connection: McpConnection
    client: ClientTraits
    outlet: Outlet

    @property
    def is_modern(self) -> bool:
        return self.client.era == "modern"


_Method: TypeAlias = Callable[[_Call], Awaitable[Result]]


class McpDispatcher:
    """Stateless: connections and features are passed in."""

    def __init__(
        self, info: Implementation, *, signer: StateSigner, instructions: str | None = None
    ) -> None:
        self.info = info
        self._signer = signer
        self._instructions = instructions
        methods: dict[str, tuple[str | None, _Method]] = {
            "tools/list": ("tools", _lists("tools", lambda own: own.tools())),
            "tools/call": ("tools", self._call_tool),
            "resources/list": ("resources", _lists("resources", lambda own: own.resources())),
            "resources/templates/list": (
                "resources",
                _lists("resourceTemplates", lambda own: own.resource_templates()),
            ),
            "resources/read": ("resources", self._read_resource),
            "prompts/list": ("prompts", _lists("prompts", lambda own: own.prompts())),
            "prompts/get": ("prompts", self._get_prompt),
            "completion/complete": ("completions", self._complete),
            "skills/list": (SKILLS_EXTENSION, _lists("skills", lambda own: own.skills())),
            "skills/get": (SKILLS_EXTENSION, self._get_skill),
        }
        self._modern: dict[str, tuple[str | None, _Method]] = {
            **methods,
            "server/discover": (None, self._discover),
            "subscriptions/listen": (None, self._listen),
        }
        self._legacy: dict[str, tuple[str | None, _Method]] = {
            **methods,
            "initialize": (None, self._initialize),
            "ping": (None, self._ping),
            "logging/setLevel": ("logging", self._set_level),
            "resources/subscribe": ("resources", self._subscribe),
            "resources/unsubscribe": ("resources", self._unsubscribe),
        }

    async def respond(
        self, connection: McpConnection, message: Message, outlet: Outlet
    ) -> tuple[bytes, int | None]:
        """The response to a request, and the code of its error, if it is one.

        A client cannot make it raise; cancelling it cancels the request.
        """
        assert message.id is not None
        assert message.method is not None
        try:
            result = await self._result(connection, message.id, message.method, message, outlet)
        except RequestRefused as error:
            return encode_refusal(message.id, error.code, str(error), error.data), error.code
        except (InvalidInput, NotFound, Forbidden) as error:
            refusal = invalid(str(error))
            return encode_refusal(message.id, refusal.code, str(error)), refusal.code
        except ConnectionError:
            raise
        except MainspringError as error:
            _LOG.error("%s failed: %s", message.method, error)
            refusal = internal_error()
        except Exception:  # noqa: BLE001 (a request must not end the server, whoever wrote the tool)
            _LOG.exception("%s failed", message.method)
            refusal = internal_error()
        else:
            return encode_answer(message.id, result), None
        return encode_refusal(message.id, refusal.code, str(refusal)), refusal.code

    async def _result(
        self,
        connection: McpConnection,
        id_: RequestId,
        method: str,
        message: Message,
        outlet: Outlet,
    ) -> Result:
        head = read_params(message.params, RequestHead)
        client = client_of(connection.client, head, method)
        methods = self._modern if client.era == "modern" else self._legacy
        capability, answer = methods.get(method, (None, None))
        offered = connection.features.capabilities
        is_offered = capability is None or capability in {
            **offered,
            **offered.get("extensions", {}),
        }
        if answer is None or not is_offered:
            raise no_method(method)
        call = _Call(id_, method, message.params, head, connection, client, outlet)
        try:
            result = await answer(call)
        except InputRequired as question:
            return self._input_required(call, question)
        if not call.is_modern:
            return result
        meta = {f"{META}serverInfo": self.info}
        return {"resultType": "complete", **result, "_meta": meta}

    # Introductions

    async def _discover(self, call: _Call) -> Result:
        return _cacheable(
            {
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": call.connection.features.capabilities,
                **self._advice(),
            },
            call,
        )

    async def _initialize(self, call: _Call) -> Result:
        if call.connection.client is not None:
            raise malformed("the client has introduced itself already")
        params = read_params(call.params, InitializeParams)
        request = params.protocol_version
        version = request if request in LEGACY_VERSIONS else LEGACY_VERSIONS[0]
        call.connection.client = ClientTraits(
            era="legacy", version=version, capabilities=params.capabilities, log_level="info"
        )
        return {
            "protocolVersion": version,
            "capabilities": call.connection.features.capabilities,
            "serverInfo": self.info,
            **self._advice(),
        }

    def _advice(self) -> Result:
        return {} if self._instructions is None else {"instructions": self._instructions}

    async def _ping(self, _call: _Call) -> Result:
        return {}

    async def _set_level(self, call: _Call) -> Result:
        level = read_params(call.params, LevelParams).level
        call.connection.client = replace(call.client, log_level=level)
        return {}

    # Tools, resources, prompts

    async def _call_tool(self, call: _Call) -> Result:
        params = read_params(call.params, CallToolParams)
        exchange = self._exchange(call, params.name, params.arguments)
        return _fields(
            await call.connection.features.call_tool(params.name, params.arguments or {}, exchange)
        )

    async def _read_resource(self, call: _Call) -> Result:
        uri = read_params(call.params, ResourceParams).uri
        exchange = self._exchange(call, uri, None)
        contents = await call.connection.features.read_resource(uri, exchange)
        return _cacheable({"contents": list(contents)}, call)

    async def _get_skill(self, call: _Call) -> Result:
        uri = read_params(call.params, ResourceParams).uri
        skills = await call.connection.features.skills()
        skill = next((item for item in skills if item.uri == uri), None)
        if skill is None:
            raise invalid(f"there is no skill {uri!r:.200}")
        return _cacheable({"skill": skill}, call)

    async def _get_prompt(self, call: _Call) -> Result:
        params = read_params(call.params, PromptParams)
        exchange = self._exchange(call, params.name, dict(params.arguments or {}))
        return _fields(
            await call.connection.features.get_prompt(params.name, params.arguments or {}, exchange)
        )

    async def _complete(self, call: _Call) -> Result:
        params = read_params(call.params, CompletionParams)
        is_prompt = isinstance(params.ref, PromptReference)
        values = await call.connection.features.complete(
            CompletionRequest(
                params.ref.name if isinstance(params.ref, PromptReference) else params.ref.uri,
                is_prompt,
                params.argument.name,
                params.argument.value,
                params.context.arguments,
            )
        )
        completions = list(values[:_MAX_COMPLETIONS])
        has_more = len(values) > len(completions)
        return {"completion": {"values": completions, "total": len(values), "hasMore": has_more}}

    # Changes

    async def _subscribe(self, call: _Call) -> Result:
        subscriptions = call.connection.subscriptions
        if len(subscriptions) >= MAX_SUBSCRIPTIONS:
            raise busy(f"more than {MAX_SUBSCRIPTIONS:,} subscriptions")
        subscriptions.add(read_params(call.params, ResourceParams).uri)
        return {}

    async def _unsubscribe(self, call: _Call) -> Result:
        call.connection.subscriptions.discard(read_params(call.params, ResourceParams).uri)
        return {}

    async def _listen(self, call: _Call) -> Result:
        return await listen(call.id, call.params, call.connection.features, call.outlet)

    # Rounds

    def _exchange(
        self, call: _Call, target: str, arguments: Mapping[str, object] | None
    ) -> Exchange:
        head, caller = call.head, call.connection.caller
        digest, state = b"", RequestState()
        if call.is_modern:
            digest = request_digest(call.method, target, arguments)
            if head.request_state is not None:
                state = self._signer.verify(head.request_state, caller=caller, request=digest)
        return Exchange(
            caller=caller,
            client=call.client,
            outlet=call.outlet,
            questions=None if call.is_modern else call.connection,
            progress_token=head.meta.progress_token,
            digest=digest,
            state=state,
            inputs=head.input_responses or {},
        )

    def _input_required(self, call: _Call, question: InputRequired) -> Result:
        state = self._signer.sign(
            question.state, caller=call.connection.caller, request=question.digest
        )
        return {
            "resultType": "input_required",
            "inputRequests": question.requests,
            "requestState": state,
            "_meta": {f"{META}serverInfo": self.info},
        }


def _lists(kind: str, read: Callable[[Features], Awaitable[Sequence[Struct]]]) -> _Method:
    async def answer(call: _Call) -> Result:
        items = await read(call.connection.features)
        page, cursor = page_of(items, read_params(call.params, ListParams).cursor)
        more = {} if cursor is None else {"nextCursor": cursor}
        return _cacheable({kind: page, **more}, call)

    return answer


def _cacheable(result: Result, call: _Call) -> Result:
    """No result is shared: lists depend on the caller."""
    return {**result, "ttlMs": 0, "cacheScope": "private"} if call.is_modern else result


def _fields(result: Struct) -> Result:
    return msgspec.to_builtins(result)
