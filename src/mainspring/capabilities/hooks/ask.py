"""One handler on one occasion: told what happens, bounded in time, its failures made values."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TypeAlias, assert_never

import anyio

from mainspring.capabilities.hooks.agent import RunAgent, run_agent_hook
from mainspring.capabilities.hooks.command import Surroundings, run_command
from mainspring.capabilities.hooks.config import (
    Agent,
    Command,
    Handler,
    HookFolder,
    Http,
    McpTool,
    Prompt,
    Remind,
)
from mainspring.capabilities.hooks.http import run_http
from mainspring.capabilities.hooks.mcp_tool import CallTool, run_mcp_tool
from mainspring.capabilities.hooks.prompt import Ask, run_prompt
from mainspring.capabilities.hooks.python import PythonHook
from mainspring.capabilities.hooks.verdict import Failed, Reply, combine, cut
from mainspring.core.errors import MainspringError
from mainspring.core.facts import HookRan
from mainspring.core.hook import Occasion, Ruling

Askable: TypeAlias = Handler | PythonHook


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What handlers reach through; a handler whose port is missing fails."""

    surroundings: Surroundings
    call_tool: CallTool | None = None
    ask: Ask | None = None
    run_agent: RunAgent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A handler's reply, and what it cost in time."""

    label: str
    occasion: Occasion
    reply: Reply
    milliseconds: int

    def fact(self) -> HookRan:
        match self.reply:
            case Failed(reason=reason, timed_out=timed_out):
                outcome = "timed_out" if timed_out else "failed"
            case Ruling(reason=reason):
                ruling = combine(self.occasion.event, [self.reply])
                outcome = "blocked" if ruling.blocked else "ok"
            case _:
                assert_never(self.reply)
        return HookRan(
            hook_event=self.occasion.event,
            handler=self.label,
            outcome=outcome,
            tool_use_id=self.occasion.tool_use_id,
            reason=cut(reason, 500) if reason else None,
            milliseconds=self.milliseconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    occasion: Occasion
    payload: bytes
    ports: Ports = field(repr=False)

    def in_folder(self, folder: HookFolder | None) -> Question:
        """For a handler that this plugin or skill brings."""
        around = replace(self.ports.surroundings, folder=folder)
        return replace(self, ports=replace(self.ports, surroundings=around)) if folder else self

    async def put_to(self, handler: Askable, *, seconds: float) -> Answered:
        """Whatever the handler does, there is an answer, and in time."""
        started = time.monotonic()
        reply: Reply = Failed(f"did not answer within {seconds:g} s", timed_out=True)
        with anyio.move_on_after(seconds):
            reply = await self._guarded(handler)
        return Answered(
            label=handler.label,
            occasion=self.occasion,
            reply=reply,
            milliseconds=int((time.monotonic() - started) * 1000),
        )

    async def _guarded(self, handler: Askable) -> Reply:
        try:
            return await self._reply(handler)
        except MainspringError as error:
            return Failed(cut(f"failed: {error}", 300))
        except Exception as error:  # noqa: BLE001 - foreign code; a gate's crash must be a no, not ours
            # Not its text: what foreign code puts into its errors is not for the log.
            return Failed(f"crashed: {type(error).__name__}")

    async def _reply(self, handler: Askable) -> Reply:
        event, payload, ports = self.occasion.event, self.payload, self.ports
        match handler:
            case Command():
                return await run_command(handler, event, payload, ports.surroundings)
            case Http():
                return await run_http(handler, event, payload, ports.surroundings.environment)
            case McpTool():
                return await run_mcp_tool(handler, event, payload, ports.call_tool)
            case Prompt():
                return await run_prompt(handler, payload, ports.ask)
            case Agent():
                return await run_agent_hook(handler, payload, ports.run_agent)
            case Remind(text=text):
                return Ruling(context=(text,))
            case PythonHook():
                return combine(event, [await handler.run(self.occasion)])
            case _:
                assert_never(handler)
