"""Control requests in a stream-json conversation, as Claude Code's SDKs send and answer them: hooks
and permission callbacks of the program that started this process, its agents, interrupts and modes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, cast

import anyio
import msgspec
from msgspec import Meta, Struct

from mainspring.capabilities.hooks.config import Matcher, compile_matcher, names_with_aliases
from mainspring.capabilities.hooks.verdict import HookFailure, read_output
from mainspring.core import ids
from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdate
from mainspring.core.hook import HookEvent, HookEventName, HookResult
from mainspring.core.tool import Call
from mainspring.edges.cli.run.stream_input import ControlRequest, ControlResponse
from mainspring.harness.function_hooks import FunctionHook
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.permissions.tool_names import ALIASES, claude_code_name
from mainspring.runtime.agent import Agent
from mainspring.runtime.export_sessions.claude_code_stream import StreamMessage
from mainspring.runtime.session.run_result import ApprovalRequest
from mainspring.runtime.session.session import Session
from mainspring.runtime.subagent import Subagent

_HOOK_SECONDS = 60.0  # the SDK's own limit for a hook
NOBODY_ASKED = "This needs a person's approval, and nobody can be asked in this run"
_PERSON_SECONDS = 24 * 3600.0
"""The program may ask a person before it answers."""


class ControlFailed(Exception):
    """The program that started this process did not answer, or refused."""


class _HookMatcher(Struct, frozen=True, kw_only=True, rename="camel"):
    hook_callback_ids: tuple[str, ...]
    matcher: str | None = None
    timeout: Annotated[float, Meta(ge=0, le=_PERSON_SECONDS)] | None = None
    """Seconds; 0 for the default."""


class _AgentDefinition(Struct, frozen=True, kw_only=True, rename="camel"):
    description: str
    prompt: str
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    max_turns: int | None = None


class _Initialize(Struct, frozen=True, kw_only=True):
    hooks: dict[HookEventName, tuple[_HookMatcher, ...]] | None = None
    agents: dict[str, _AgentDefinition] = {}


class _Permission(Struct, frozen=True, kw_only=True, rename="camel"):
    behavior: str
    updated_input: dict[str, object] | None = None
    updated_permissions: tuple[PermissionUpdate, ...] = ()
    message: str | None = None
    interrupt: bool = False


@dataclass(slots=True, kw_only=True)
class ControlChannel:
    """Requests in both directions. `write` prints one line to standard output."""

    write: Callable[[StreamMessage], None]
    asks_permission: bool = False
    """Whether the program decides calls that need a person: `--permission-prompt-tool stdio`."""
    _setup: _Initialize = field(default_factory=_Initialize)
    _waiting: dict[str, tuple[anyio.Event, list[Mapping[str, object]]]] = field(
        default_factory=dict[str, "tuple[anyio.Event, list[Mapping[str, object]]]"]
    )
    _is_closed: bool = False
    _permissions: dict[str, _Permission] = field(default_factory=dict[str, _Permission])
    """The program's decisions, by call id."""

    async def ask(self, request: Mapping[str, object]) -> dict[str, object]:
        """Raises: ControlFailed."""
        if self._is_closed:
            raise ControlFailed("standard input has ended: nobody can answer")
        request_id = ids.new_id("ctrl")
        answered, answers = anyio.Event(), list[Mapping[str, object]]()
        self._waiting[request_id] = answered, answers
        try:
            self.write({"type": "control_request", "request_id": request_id, "request": request})
            await answered.wait()
        finally:
            del self._waiting[request_id]
        answer = answers[0] if answers else {"error": "standard input has ended"}
        if answer.get("subtype") != "success":
            raise ControlFailed(str(answer.get("error", "it refused")))
        response = answer.get("response")
        return cast("dict[str, object]", response) if isinstance(response, dict) else {}

    def on_response(self, line: ControlResponse) -> None:
        """Handle an answer. It is ignored if no request is open for it."""
        waiting = self._waiting.get(str(line.response.get("request_id", "")))
        if waiting is not None and not waiting[0].is_set():
            waiting[1].append(line.response)
            waiting[0].set()

    def close(self) -> None:
        """End all open requests: no more answers will come."""
        self._is_closed = True
        for answered, _ in self._waiting.values():
            answered.set()

    async def respond(self, control: ControlRequest, session: Session | None) -> None:
        try:
            response = await self._response(control, session)
            answer: StreamMessage = {"subtype": "success", "response": response}
        except (InvalidInput, msgspec.MsgspecError, RecursionError) as error:
            answer = {"subtype": "error", "error": str(error)}
        self.write(
            {"type": "control_response", "response": {**answer, "request_id": control.request_id}}
        )

    async def _response(
        self, control: ControlRequest, session: Session | None
    ) -> dict[str, object]:
        match control.subtype:
            case "initialize":
                self._initialize(control.request)
                return {"commands": [], "output_style": "default", "hooks_applied": session is None}
            case "interrupt":
                if session is not None:
                    await session.interrupt()
            case "set_permission_mode":
                mode = parse_mode(str(control.request.get("mode", "")))
                if session is None:
                    raise InvalidInput("the session has not begun")
                await session.permit(PermissionUpdate(type="setMode", mode=mode))
            case "mcp_status":
                return {"mcpServers": []}
            case _:
                raise InvalidInput(f"{control.subtype[:100] or 'this'} is not supported")
        return {}

    def _initialize(self, request: Mapping[str, object]) -> None:
        setup = msgspec.convert(request, _Initialize)
        for matchers in (setup.hooks or {}).values():
            for item in matchers:
                compile_matcher(item.matcher or "")  # so that an invalid one is refused at once
        self._setup = setup

    def configured(self, agent: Agent, *, session_id: str, folder: str) -> Agent:
        """The agent with the hooks and subagents of the program that started this process."""
        common = {"session_id": session_id, "cwd": folder, "transcript_path": ""}
        hooks = [
            self._hook(event, item, callback_id, common)
            for event, matchers in (self._setup.hooks or {}).items()
            for item in matchers
            for callback_id in item.hook_callback_ids
        ]
        if self.asks_permission:
            hooks.append(self._permission_hook())
        subagents = [_subagent(name, item) for name, item in self._setup.agents.items()]
        return replace(
            agent,
            hooks=(*agent.hooks, *hooks),
            subagents=(*agent.subagents, *subagents),
        )

    def _hook(
        self,
        event: HookEventName,
        item: _HookMatcher,
        callback_id: str,
        common: Mapping[str, object],
    ) -> FunctionHook:
        matches: Matcher = compile_matcher(item.matcher or "")

        async def run(hook_event: HookEvent, _call: Call | None) -> HookResult | None:
            if hook_event.subject and not matches(names_with_aliases(hook_event.subject, ALIASES)):
                return None
            fields: dict[str, object] = {**common, **hook_event.fields, "hook_event_name": event}
            if "tool_input" in fields:
                fields["tool_name"] = claude_code_name(hook_event.subject)
            output = await self.ask(
                {
                    "subtype": "hook_callback",
                    "callback_id": callback_id,
                    "input": fields,
                    "tool_use_id": hook_event.tool_use_id,
                }
            )
            reply = read_output(event, msgspec.json.encode(output))
            if isinstance(reply, HookFailure):
                raise ControlFailed(f"{callback_id}: {reply.reason}")
            return reply

        return FunctionHook(
            event=event, name=callback_id, run=run, seconds=item.timeout or _HOOK_SECONDS
        )

    def on_approval(self, request: ApprovalRequest) -> bool | str:
        """Decide calls that only a person may allow: the program's decision counts as a
        person's."""
        permission = self._permissions.pop(request.call_id, None)
        if permission is None:
            return NOBODY_ASKED
        if permission.behavior != "allow":
            return permission.message or NOBODY_ASKED
        return permission.updated_input is None or "A rule asks about this call: do not change it"

    def _permission_hook(self) -> FunctionHook:
        async def run(hook_event: HookEvent, _call: Call | None) -> HookResult | None:
            tool_input = hook_event.fields.get("tool_input", {})
            answer = await self.ask(
                {
                    "subtype": "can_use_tool",
                    "tool_name": claude_code_name(hook_event.subject),
                    "input": tool_input,
                    "tool_use_id": hook_event.tool_use_id,
                    "permission_suggestions": [],
                }
            )
            permission = msgspec.convert(answer, _Permission)
            if permission.behavior != "allow":
                return HookResult(
                    permission="deny",
                    blocked=True,
                    reason=permission.message,
                    interrupt=permission.interrupt,
                )
            if permission.updated_input == tool_input:
                permission = msgspec.structs.replace(permission, updated_input=None)
            self._permissions[hook_event.tool_use_id or ""] = permission
            return HookResult(
                permission="allow",
                updated_input=permission.updated_input,
                updates=permission.updated_permissions,
            )

        return FunctionHook(
            event="PermissionRequest", name="can_use_tool", run=run, seconds=_PERSON_SECONDS
        )


def _subagent(name: str, definition: _AgentDefinition) -> Subagent:
    fields = msgspec.structs.asdict(definition)
    if definition.model == "inherit":
        fields["model"] = None
    return Subagent(name=name, **fields)
