"""A client of one MCP server: negotiates the era, sends requests, and limits what the server
returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

import anyio
import msgspec

from mainspring.capabilities.mcp.protocol import messages
from mainspring.capabilities.mcp.protocol.era import Requests, ServerInfo, negotiate
from mainspring.capabilities.mcp.protocol.foreign_text import is_too_deep
from mainspring.capabilities.mcp.protocol.messages import (
    MODERN_VERSIONS,
    CallResult,
    Era,
    Implementation,
    InputRound,
    McpRequest,
    Message,
    ToolDefinition,
    decode_result,
)
from mainspring.capabilities.mcp.protocol.param_headers import ParamHeaders, param_headers
from mainspring.capabilities.mcp.protocol.transport import Transport
from mainspring.core.errors import InvalidInput, McpFailed

_MAX_ROUNDS = 10
"""How many times a server may ask for more input before it must answer."""
_RETRY_SECONDS = 0.1  # before an answer without a question is repeated
# The longest pause before listening again; changed lists of a server show within it.
_MAX_LISTEN_PAUSE_SECONDS = 60.0
_LISTS = ("tools", "prompts", "resources")
_PageT = TypeVar("_PageT", bound=messages.ResultPage)
_ItemT = TypeVar("_ItemT")


class InputHandler(Protocol):
    """Answers a server's questions to the person or the model behind the client."""

    @property
    def capabilities(self) -> Mapping[str, object]: ...

    async def __call__(self, method: str, params: bytes) -> Mapping[str, object]:
        """
        Raises:
            McpFailed: the request is refused.
        """
        ...


Progress: TypeAlias = Callable[[str], None]


class InputRounds(Protocol):
    """Stores the last input request of a modern server, so that another process can continue the
    call."""

    async def load(self) -> InputRound | None: ...

    async def save(self, round_: InputRound) -> None:
        """
        Raises:
            McpFailed: it cannot be stored.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    connect_seconds: float = 30.0
    probe_seconds: float = 5.0
    """After this time, a server that has not answered is also tried with the legacy protocol."""
    request_seconds: float = 60.0
    call_seconds: float = 600.0
    """For a tool call, unless its server has its own limit."""
    max_items: int = 2_000
    max_pages: int = 200


@dataclass(frozen=True, slots=True)
class ToolList:
    tools: tuple[ToolDefinition, ...]
    rejected: tuple[str, ...]
    """Why a definition was left out."""


class McpClient:
    """A `Listener` of its transport. `era`: the server's era, if an earlier connection found it."""

    def __init__(
        self,
        transport: Transport,
        *,
        implementation: Implementation,
        era: Era | None = None,
        input_handler: InputHandler | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self._transport = transport
        self._requests = Requests(
            implementation, {} if input_handler is None else input_handler.capabilities
        )
        self._input_handler = input_handler
        self._limits = limits or ClientLimits()
        self._era: Era | None = era
        self._version = MODERN_VERSIONS[0]
        self._progress: dict[int | str, Progress] = {}
        self._time_limits: set[anyio.CancelScope] = set()
        self._pauses = 0
        self._param_headers: dict[str, ParamHeaders] = {}
        self._server_capabilities: Mapping[str, object] = {}
        self.has_changed_tools = False
        """Whether the server has announced that its tools have changed."""
        transport.listener = self

    async def connect(self) -> ServerInfo:
        """Connect, and find the server's era.

        Raises:
            McpFailed: no connection.
        """
        seconds = self._limits.connect_seconds
        try:
            with anyio.fail_after(seconds):
                info = await negotiate(
                    self._transport,
                    self._requests,
                    era=self._era,
                    probe_seconds=self._limits.probe_seconds,
                )
        except TimeoutError as error:
            raise McpFailed(f"no connection within {seconds:g} s") from error
        self._era, self._version = info.era, info.version
        self._server_capabilities = info.capabilities
        return info

    async def listen(self) -> None:
        """Subscribe to changes of a modern server, until it fails. A legacy server sends them
        unasked."""
        lists = [kind for kind in _LISTS if self._announces_changes(kind)]
        params = {"notifications": {f"{kind}ListChanged": True for kind in lists}}
        pause = 1.0
        while self._era == "modern" and lists and self._transport.end is None:
            request = self._request("subscriptions/listen", params)
            try:
                response = await self._transport.exchange(request)
            except McpFailed as error:
                if error.code is not None:
                    return  # the server refuses
            else:
                if response.error is not None:
                    return
            await anyio.sleep(pause)
            pause = min(pause * 2, _MAX_LISTEN_PAUSE_SECONDS)
            self.has_changed_tools = True  # changes may have been missed

    def _announces_changes(self, kind: str) -> bool:
        capability = self._server_capabilities.get(kind)
        return isinstance(capability, dict) and bool(
            cast("dict[str, object]", capability).get("listChanged")
        )

    async def list_tools(self) -> ToolList:
        """Raises: McpFailed."""
        self.has_changed_tools = False
        tools: dict[str, ToolDefinition] = {}
        rejected: list[str] = []
        items = await self._list("tools/list", messages.ToolPage, lambda page: page.tools)
        headers: dict[str, ParamHeaders] = {}
        for item in items:
            try:
                tool = decode_result(item, ToolDefinition, "tools/list")
                if is_too_deep(tool.input_schema):
                    raise InvalidInput(f"{tool.name:.80}: its schema is nested too deeply")
                mirrored = param_headers(tool.input_schema)
            except (McpFailed, InvalidInput) as error:
                rejected.append(str(error))
                continue
            if not tool.name or tool.name in tools:
                rejected.append(f"{tool.name!r:.80}: two tools have this name, or it is empty")
                continue
            tools[tool.name] = tool
            headers[tool.name] = mirrored
        self._param_headers = headers
        return ToolList(tuple(tools.values()), tuple(rejected))

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        progress: Progress | None = None,
        rounds: InputRounds | None = None,
    ) -> CallResult:
        """Call a tool.

        Raises:
            McpFailed: no result; `is_in_doubt` if the call may have taken effect all the same.
        """
        params = {"name": name, "arguments": arguments}
        seconds = self._limits.call_seconds
        try:
            result = await self._complete("tools/call", params, seconds, progress, rounds)
        except McpFailed as error:
            if error.code != messages.HEADER_MISMATCH or not self._transport.mirrors_params:
                raise
            await self.list_tools()  # the headers of its parameters may have changed
            result = await self._complete("tools/call", params, seconds, progress, rounds)
        return decode_result(result, CallResult, "tools/call")

    async def list_resources(self) -> list[messages.Resource]:
        return await self._list(
            "resources/list", messages.ResourcePage, lambda page: page.resources
        )

    async def read_resource(self, uri: str) -> messages.ResourceResult:
        result = await self._complete("resources/read", {"uri": uri})
        return decode_result(result, messages.ResourceResult, "resources/read")

    async def list_skills(self) -> list[msgspec.Raw]:
        return await self._list("skills/list", messages.SkillPage, lambda page: page.skills)

    async def list_prompts(self) -> list[messages.Prompt]:
        return await self._list("prompts/list", messages.PromptPage, lambda page: page.prompts)

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> messages.PromptResult:
        result = await self._complete("prompts/get", {"name": name, "arguments": arguments})
        return decode_result(result, messages.PromptResult, "prompts/get")

    async def aclose(self) -> None:
        await self._transport.aclose()

    def notified(self, message: Message) -> None:
        if message.method == "notifications/tools/list_changed":
            self.has_changed_tools = True
        elif message.method == "notifications/progress" and self._progress:
            self._show_progress(message)

    async def answer(self, message: Message) -> bytes:
        assert message.id is not None
        assert message.method is not None
        if message.method == "ping":
            return messages.encode_answer(message.id, {})
        try:
            with self._paused_time_limits():
                result = await self._input(message.method, bytes(message.params) or b"{}")
        except McpFailed as error:
            code = messages.METHOD_NOT_FOUND if error.code is None else error.code
            return messages.encode_refusal(message.id, code, str(error))
        return messages.encode_answer(message.id, result)

    @contextmanager
    def _paused_time_limits(self) -> Generator[None]:
        """Pause the time limits while a person answers, who may take longer than a server."""
        now = anyio.current_time()
        limits = (
            [] if self._pauses else [(scope, scope.deadline - now) for scope in self._time_limits]
        )
        self._pauses += 1
        for scope, _ in limits:
            scope.deadline = math.inf
        try:
            yield
        finally:
            self._pauses -= 1
            for scope, remaining in limits:
                scope.deadline = anyio.current_time() + remaining

    def _show_progress(self, message: Message) -> None:
        try:
            progress = decode_result(message.params, messages.ProgressParams, "progress")
        except McpFailed:
            return
        if show := self._progress.get(progress.progress_token):
            total = "" if progress.total is None else f"/{progress.total:g}"
            show(f"{progress.progress:g}{total} {progress.message or '':.500}".rstrip())

    async def _list(
        self, method: str, page_type: type[_PageT], items: Callable[[_PageT], list[_ItemT]]
    ) -> list[_ItemT]:
        """All pages, up to a limit, since a server may send pages without end."""
        all_items: list[_ItemT] = []
        cursors: set[str] = set()
        params: dict[str, object] = {}
        for _ in range(self._limits.max_pages):
            result = await self._ask(method, params)
            page = decode_result(result, page_type, method)
            all_items += items(page)
            cursor = page.next_cursor
            if not cursor or cursor in cursors or len(all_items) >= self._limits.max_items:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return all_items[: self._limits.max_items]

    async def _complete(
        self,
        method: str,
        params: Mapping[str, object],
        seconds: float | None = None,
        progress: Progress | None = None,
        rounds: InputRounds | None = None,
    ) -> bytes:
        """Send a request, answer the server's questions, and send it again with the answers."""
        if self._era == "legacy":
            return await self._ask(method, params, seconds, progress)
        last = None if rounds is None else await rounds.load()
        for number in range(1 if last is None else last.number, _MAX_ROUNDS + 1):
            more = {} if last is None else await self._answer_fields(last)
            result = await self._ask(method, {**params, **more}, seconds, progress)
            head = decode_result(result, messages.ResultHead, method)
            if head.result_type == "complete":
                return result
            if head.result_type != "input_required":
                raise McpFailed(f"{method}: unknown result type {head.result_type!r:.40}")
            last = InputRound(
                number=number + 1, requests=head.input_requests, state=head.request_state
            )
            if rounds is not None and last.requests:
                await rounds.save(last)
        raise McpFailed(f"{method}: asked for input {_MAX_ROUNDS} times, the most allowed")

    async def _answer_fields(self, round_: InputRound) -> dict[str, object]:
        """The fields that the next request needs in addition to its parameters."""
        more: dict[str, object] = {}
        if round_.requests:
            more["inputResponses"] = {
                key: await self._input(item.method, bytes(item.params))
                for key, item in round_.requests.items()
            }
        else:
            await anyio.sleep(_RETRY_SECONDS)
        if round_.state is not None:
            more["requestState"] = round_.state
        return more

    async def _input(self, method: str, params: bytes) -> Mapping[str, object]:
        if self._input_handler is None:
            raise McpFailed(f"{method:.80} is not supported by this client")
        return await self._input_handler(method, params)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, object],
        seconds: float | None = None,
        progress: Progress | None = None,
    ) -> bytes:
        seconds = seconds or self._limits.request_seconds
        request = self._request(method, params, progress is not None)
        if progress is not None:
            self._progress[request.id] = progress
        response: Message | None = None
        # not `fail_after`: the deadline may be moved after it has passed
        limit = anyio.CancelScope(deadline=anyio.current_time() + seconds)
        self._time_limits.add(limit)
        try:
            with limit:
                response = await self._transport.exchange(request)
        finally:
            self._time_limits.discard(limit)
            self._progress.pop(request.id, None)
        if response is None:
            raise McpFailed(f"{method}: no answer within {seconds:g} s", is_in_doubt=True)
        if response.error is not None:
            raise messages.refusal(method, response.error)
        return bytes(response.result)

    def _request(
        self, method: str, params: Mapping[str, object], has_progress: bool = False
    ) -> McpRequest:
        headers: dict[str, str] = {}
        if method == "tools/call" and self._era == "modern" and self._transport.mirrors_params:
            mirrored = self._param_headers.get(str(params["name"]))
            headers = {} if mirrored is None else mirrored.values(params["arguments"])
        return self._requests.new(
            method,
            params,
            version=self._version,
            era=self._era or "modern",
            headers=headers,
            has_progress=has_progress,
        )
