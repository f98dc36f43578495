"""Sessions with all that real ones have: settings, sandbox, log. Only the model is scripted."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import anyio
from tests.abilities import store_beside
from tests.environ import boundary

from mainspring.capabilities.providers.scripted import Scripted, ScriptStep, says
from mainspring.config import Settings, read_settings
from mainspring.core.content import TextBlock, plain_text
from mainspring.core.events import (
    AgentMcpToolResult,
    AgentToolResult,
    PermissionUpdate,
    RuleText,
    ToolCallAuthorized,
)
from mainspring.core.model import Request, ToolResultBlock, User
from mainspring.core.tool import Tool
from mainspring.harness.permissions.policy import Mode
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.session.session import Runtime, Session
from mainspring.wiring.runtime_assembly import open_runtime

P = TypeVar("P")
MODEL = "anthropic:claude-sonnet-5"
"""One that has a price."""
DONE = says("done")
SECONDS = 60


def at_work(tools: Sequence[Tool] = ()) -> Agent:
    return Agent(name="hand", model=MODEL, built_ins=("*",), tools=tools)


@dataclass
class Play:
    """A session that is under way, and what its model was asked."""

    runtime: Runtime
    session: Session
    model: Scripted

    async def run(self, message: str | None = None) -> RunResult:
        if message is not None:
            await self.session.send(message)
        with anyio.fail_after(SECONDS):
            result = await self.session.run()
        assert result is not None, "there was nothing to be done"
        return result

    async def events(self, kind: type[P]) -> list[P]:
        return [e.payload for e in await self.session.events() if isinstance(e.payload, kind)]

    async def results(self) -> list[str]:
        """What came of its calls, in the order of their asking."""
        told = {entry.tool_use_id: entry.content for entry in await self.events(AgentToolResult)}
        for item in await self.events(AgentMcpToolResult):
            told[item.mcp_tool_use_id] = item.content
        events = await self.session.events()
        return [plain_text(told[event.id]) for event in events if event.id in told]

    async def decisions(self) -> list[tuple[str, str, str | None]]:
        """What was decided about calls, by which gate, by which rule."""
        return [(e.decision, e.gate, e.rule) for e in await self.events(ToolCallAuthorized)]

    async def asked(self) -> ToolCallAuthorized:
        """The newest question."""
        return [e for e in await self.events(ToolCallAuthorized) if e.decision == "ask"][-1]

    async def allow(self, result: RunResult) -> RunResult:
        for call_id in result.waiting_for:
            await self.session.answer(call_id, "allow")
        return await self.run()

    async def deny(self, result: RunResult, why: str) -> RunResult:
        for call_id in result.waiting_for:
            await self.session.answer(call_id, "deny", message=why)
        return await self.run()


@dataclass
class Scene:
    home: Path
    workspace: Path
    outside: Path
    warnings: list[str] = field(default_factory=list[str])

    def user(self, **settings: object) -> None:
        """What the user has in their own settings."""
        self.write(self.home / ".claude/settings.json", json.dumps(settings))

    def project(self, **settings: object) -> None:
        self.write(self.workspace / ".claude/settings.json", json.dumps(settings))

    def write(self, path: Path | str, text: str = "") -> Path:
        """A file of the project, unless the path is absolute."""
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def read(self, path: str) -> str:
        return (self.workspace / path).read_text()

    def settings(self, environ: Mapping[str, str] | None = None) -> Settings:
        return read_settings(
            folder=self.workspace,
            environ={
                **boundary(),
                **store_beside(self.workspace),
                **(environ or {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}),
            },
        )

    @asynccontextmanager
    async def runtime(
        self, mode: Mode | None = None, environ: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Runtime]:
        settings = self.settings(environ)
        options = RunOptions(workspace=self.workspace, mode=mode, warn=self.warnings.append)
        async with open_runtime(settings, options=options) as runtime:
            yield runtime

    @asynccontextmanager
    async def play(
        self,
        *steps: ScriptStep,
        mode: Mode | None = None,
        tools: Sequence[Tool] = (),
        environ: Mapping[str, str] | None = None,
        go_on: str | None = None,
    ) -> AsyncGenerator[Play]:
        """A new session, or the one to `go_on` with, in a process of its own as it were."""
        async with self.runtime(mode, environ) as runtime:
            yield await begin(runtime, *steps, tools=tools, go_on=go_on)


async def begin(
    runtime: Runtime, *steps: ScriptStep, tools: Sequence[Tool] = (), go_on: str | None = None
) -> Play:
    model = Scripted(*steps, otherwise=DONE)
    runtime.models.put(MODEL, model)
    agent = at_work(tools)
    if go_on is None:
        session = await runtime.start(agent, "do it")
    else:
        session = await runtime.resume(agent, go_on)
    return Play(runtime, session, model)


def rule(text: str) -> RuleText:
    tool, _, content = text.removesuffix(")").partition("(")
    return RuleText(tool_name=tool, rule_content=content or None)


def leave(text: str, **limits: object) -> PermissionUpdate:
    return PermissionUpdate(
        type="addRules",
        behavior="allow",
        rules=(rule(text),),
        **limits,  # pyright: ignore[reportArgumentType] (fields of an update, by name)
    )


def read_by_model(requests: Sequence[Request]) -> str:
    """Every word of what a model was sent."""
    return "\n".join(map(repr, requests))


def read_results(request: Request) -> list[str]:
    """Results of calls that are in a request, in order."""
    return [
        plain_text(part.content)
        for message in request.messages
        if isinstance(message, User)
        for part in message.content
        if isinstance(part, ToolResultBlock)
    ]


def spoken(request: Request) -> str:
    """What the user, or we, said to the model."""
    return "\n".join(
        part.text
        for message in request.messages
        if isinstance(message, User)
        for part in message.content
        if isinstance(part, TextBlock)
    )
