"""Runs one hook handler for one event, within a time limit and with failures as values, or in the
background: HTTP, MCP tool, prompt and agent handlers; commands are in `command.py`."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never, cast

import aiohttp
import anyio
import msgspec
from anyio.abc import TaskGroup

from mainspring.capabilities.hooks.command import HookEnvironment, run_command
from mainspring.capabilities.hooks.config import (
    AgentHook,
    CommandHook,
    Handler,
    HookFolder,
    HttpHook,
    McpToolHook,
    PromptHook,
    ReminderHook,
)
from mainspring.capabilities.hooks.verdict import (
    HandlerReply,
    HookFailure,
    combine,
    read_judgement,
    read_output,
    truncate,
)
from mainspring.core.errors import MainspringError
from mainspring.core.events import HookRan
from mainspring.core.hook import HookEvent, HookEventName, HookResult

MAX_RESPONSE_BYTES = 1_000_000  # of a hook's answer, which is a small JSON object
_HEADER_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


async def run_http(
    handler: HttpHook, event: HookEventName, payload: bytes, environment: Mapping[str, str]
) -> HandlerReply:
    """Post the event to a URL. Any status but 2xx is a failure."""
    headers = {
        **{
            name: _expand_variables(value, handler, environment)
            for name, value in handler.headers.items()
        },
        "content-type": "application/json",
        "accept-encoding": "identity",
    }
    try:
        async with (
            aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
            ) as session,
            session.post(
                handler.url, data=payload, headers=headers, allow_redirects=False
            ) as response,
        ):
            if not 200 <= response.status < 300:
                return HookFailure(f"answered with status {response.status}")
            body = await _read_body(response)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # Not the error's text: it may contain a header.
        return HookFailure(f"could not be asked: {type(error).__name__}")
    if body is None:
        return HookFailure(f"answered with more than {MAX_RESPONSE_BYTES} bytes")
    return read_output(event, body)


async def _read_body(response: aiohttp.ClientResponse) -> bytes | None:
    body = bytearray()
    while chunk := await response.content.readany():
        body += chunk
        if len(body) > MAX_RESPONSE_BYTES:
            response.close()
            return None
    return bytes(body)


def _expand_variables(value: str, handler: HttpHook, environment: Mapping[str, str]) -> str:
    def expand(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return environment.get(name, "") if name in handler.allowed_env_vars else ""

    return _HEADER_VARIABLE.sub(expand, value)


CallTool: TypeAlias = Callable[[str, str, Mapping[str, object]], Awaitable[str]]
"""Calls a tool: server, tool and input to the text of the result; raises if the tool failed."""

_TEMPLATE_PATH = re.compile(r"\$\{([\w.]+)\}")


async def run_mcp_tool(
    handler: McpToolHook, event: HookEventName, payload: bytes, call_tool: CallTool | None
) -> HandlerReply:
    if call_tool is None:
        return HookFailure("needs an MCP server, and this session has none")
    fields = msgspec.json.decode(payload, type=dict[str, object])
    filled = {name: _fill_template(value, fields) for name, value in handler.input.items()}
    answer = await call_tool(handler.server, handler.tool, filled)
    return read_output(event, answer.encode(errors="replace"))


def _fill_template(value: object, payload_fields: Mapping[str, object]) -> object:
    """Replace `${tool_input.file_path}` and the like in an input."""
    if isinstance(value, str):
        return _TEMPLATE_PATH.sub(lambda match: _value_at(match[1], payload_fields), value)
    if isinstance(value, list):
        return [_fill_template(item, payload_fields) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _fill_template(item, payload_fields) for name, item in fields.items()}
    return value


def _value_at(path: str, fields: Mapping[str, object]) -> str:
    name, _, deeper = path.partition(".")
    value = fields.get(name)
    if deeper:
        return (
            _value_at(deeper, cast("dict[str, object]", value)) if isinstance(value, dict) else ""
        )
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


AskModel: TypeAlias = Callable[[str, str | None], Awaitable[str]]
"""Asks a model for an answer: takes a prompt, and a model or `None` for the default one."""

_ARGUMENTS = "$ARGUMENTS"
_ANSWER_FORMAT = (
    'Answer with one JSON object and nothing around it: {"ok": true} if it may go ahead, '
    '{"ok": false, "reason": "why not"} if not.'
)


def prompt_text(prompt: str, payload: bytes) -> str:
    """A hook's prompt with the event, and the format of the answer."""
    event_text = payload.decode()
    if _ARGUMENTS in prompt:
        return f"{prompt.replace(_ARGUMENTS, event_text)}\n\n{_ANSWER_FORMAT}"
    return f"{prompt}\n\nWhat happens:\n{event_text}\n\n{_ANSWER_FORMAT}"


async def run_judge(
    handler: PromptHook | AgentHook, payload: bytes, ask: AskModel | None
) -> HandlerReply:
    if ask is None:
        needed = "a model to ask" if isinstance(handler, PromptHook) else "an agent to run"
        return HookFailure(f"needs {needed}, and there is none")
    return read_judgement(await ask(prompt_text(handler.prompt, payload), handler.model))


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerPorts:
    """What handlers need; a handler whose port is missing fails."""

    environment: HookEnvironment
    call_tool: CallTool | None = None
    ask_model: AskModel | None = None
    run_hook_agent: AskModel | None = None
    """Like `ask_model`, for an agent that can use tools first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerResult:
    """A handler's reply, and its duration."""

    label: str
    event: HookEvent
    reply: HandlerReply
    milliseconds: int

    def fact(self) -> HookRan:
        match self.reply:
            case HookFailure(reason=reason, timed_out=timed_out):
                outcome = "timed_out" if timed_out else "failed"
            case HookResult(reason=reason):
                result = combine(self.event.event, [self.reply])
                outcome = "blocked" if result.blocked else "ok"
            case _:
                assert_never(self.reply)
        return HookRan(
            hook_event=self.event.event,
            handler=self.label,
            outcome=outcome,
            tool_use_id=self.event.tool_use_id,
            reason=truncate(reason, 500) if reason else None,
            milliseconds=self.milliseconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCall:
    event: HookEvent
    payload: bytes
    ports: HandlerPorts = field(repr=False)

    def in_folder(self, folder: HookFolder | None) -> HandlerCall:
        """The same call for a handler of this plugin or skill."""
        around = replace(self.ports.environment, folder=folder)
        return replace(self, ports=replace(self.ports, environment=around)) if folder else self

    async def run(self, handler: Handler, *, seconds: float) -> HandlerResult:
        """Run a handler. Always returns a result, and in time."""
        started = time.monotonic()
        reply: HandlerReply = HookFailure(f"did not answer within {seconds:g} s", timed_out=True)
        with anyio.move_on_after(seconds):
            reply = await self._run_catching(handler)
        return HandlerResult(
            label=handler.label,
            event=self.event,
            reply=reply,
            milliseconds=int((time.monotonic() - started) * 1000),
        )

    async def _run_catching(self, handler: Handler) -> HandlerReply:
        try:
            return await self._reply(handler)
        except MainspringError as error:
            return HookFailure(truncate(f"failed: {error}", 300))
        except Exception as error:  # noqa: BLE001 - foreign code; a gate's crash must be a no, not ours
            # Not the error's text: foreign code may put anything into it, and it goes to the log.
            return HookFailure(f"crashed: {type(error).__name__}")

    async def _reply(self, handler: Handler) -> HandlerReply:
        event, payload, ports = self.event.event, self.payload, self.ports
        match handler:
            case CommandHook():
                return await run_command(handler, event, payload, ports.environment)
            case HttpHook():
                return await run_http(handler, event, payload, ports.environment.environment)
            case McpToolHook():
                return await run_mcp_tool(handler, event, payload, ports.call_tool)
            case PromptHook():
                return await run_judge(handler, payload, ports.ask_model)
            case AgentHook():
                return await run_judge(handler, payload, ports.run_hook_agent)
            case ReminderHook(text=text):
                return HookResult(context=(text,))
            case _:
                assert_never(handler)


Wake: TypeAlias = Callable[[str], Awaitable[None]]
"""Sends a message to the session, also if it is idle."""

MAX_AT_ONCE = 16  # hooks in the background; another one fails without being started
_TAKES_CONTEXT = frozenset[HookEventName](
    (
        *("SessionStart", "UserPromptSubmit"),
        *("PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    )
)


@dataclass(slots=True)
class BackgroundHooks:
    wake: Wake | None = None
    _running: int = 0
    _context: list[str] = field(default_factory=list[str])
    _results: list[HookResult] = field(default_factory=list[HookResult])

    def start(
        self, group: TaskGroup | None, call: HandlerCall, handler: CommandHook, *, seconds: float
    ) -> None:
        """Start a hook and return immediately. Neither the hook nor its failure can block."""
        if group is None:
            self._fail(call, handler, "runs in the background, but the runner is not open")
            return
        if self._running >= MAX_AT_ONCE:
            self._fail(call, handler, f"was not started: {MAX_AT_ONCE} are running already")
            return
        self._running += 1

        async def run() -> None:
            try:
                result = await call.run(handler, seconds=seconds)
                await self._store(result, rewakes=handler.async_rewake)
            finally:
                self._running -= 1

        group.start_soon(run)

    def take(self, event: HookEventName) -> list[HookResult]:
        """The results since the last call. Context for the model is held back until an event that
        can pass it on."""
        hook_results, self._results = self._results, []
        if event in _TAKES_CONTEXT and self._context:
            hook_results.append(HookResult(context=tuple(self._context)))
            self._context = []
        return hook_results

    def _fail(self, call: HandlerCall, handler: CommandHook, why: str) -> None:
        reply = HookFailure(why)
        failed = HandlerResult(label=handler.label, event=call.event, reply=reply, milliseconds=0)
        message = f"hook {handler.label} {why}"
        self._results.append(HookResult(messages=(message,), hook_runs=(failed.fact(),)))

    async def _store(self, result: HandlerResult, *, rewakes: bool) -> None:
        messages: tuple[str, ...] = ()
        match result.reply:
            case HookFailure(reason=reason):
                messages = (f"hook {result.label} {reason}",)
            case HookResult(context=context, messages=messages, blocked=blocked, reason=reason):
                self._context.extend(context)
                ignored = tuple(f"hook {result.label}: {e}" for e in result.reply.ignored)
                messages = (*messages, *ignored)
                if blocked and rewakes and reason:
                    await self._wake_model(reason)
        fact = result.fact()
        if fact.outcome == "blocked":
            fact = msgspec.structs.replace(fact, outcome="ok")  # too late to block
        self._results.append(HookResult(messages=messages, hook_runs=(fact,)))

    async def _wake_model(self, text: str) -> None:
        try:
            if self.wake is not None:
                await self.wake(text)
                return
        except MainspringError:
            pass  # the session cannot be woken; it reads the text later
        self._context.append(text)
