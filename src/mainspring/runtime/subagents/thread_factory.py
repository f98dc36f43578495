"""Builds the context of each thread of a session: the agent derived from its subagent type, its
tools, its permission mode, its limits.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput
from mainspring.core.events import ThreadCreated, ThreadMessageReceived
from mainspring.core.hook import HookEvent, HookResult
from mainspring.core.tool import Call, Tool, Traits
from mainspring.harness.authorizer import Authorizer, Decision
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.limits import Limits
from mainspring.harness.nested_budgets import BudgetTier
from mainspring.harness.permissions.policy import Mode, parse_mode, stricter_mode
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.harness.state.thread import Thread
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.harness.stop_reasons import Continue, Ended
from mainspring.harness.thread_context import ThreadContext
from mainspring.runtime.agent import Agent
from mainspring.runtime.session.session_context import (
    Models,
    SessionContext,
    ThreadSpec,
    build_thread_context,
)
from mainspring.runtime.session.toolbox import SetupRequest, Toolbox, toolbox_without_tools
from mainspring.runtime.skills.skill_body import preload_facts, preloaded_text
from mainspring.runtime.subagent import GENERAL, Subagent

if TYPE_CHECKING:
    from mainspring.runtime.subagents.supervisor import SubagentSupervisor


_RUNNING_TOOLS = frozenset(("bash", "python", "service_start"))
_NOTHING_RAN = (
    "You have not run anything, so you have shown nothing. Run the work or its tests and give the"
    " commands with what they printed; if that is impossible here, say so with VERDICT: PARTIAL."
)


@dataclass(frozen=True, slots=True)
class MustRunAuthorizer:
    authorizer: Authorizer

    async def authorize(self, call: Call, tool: Tool, traits: Traits) -> Decision:
        return await self.authorizer.authorize(call, tool, traits)

    def still_forbidden(self, call: Call, traits: Traits) -> Decision | None:
        return self.authorizer.still_forbidden(call, traits)

    async def run_hooks(self, thread: Thread, hook_event: HookEvent) -> HookResult:
        return await self.authorizer.run_hooks(thread, hook_event)

    async def after_round(self, thread: Thread) -> Ended | None:
        return await self.authorizer.after_round(thread)

    async def before_stop(self, thread: Thread) -> Continue | Ended | None:
        if not any(
            canonical_name(name) in _RUNNING_TOOLS for name, _ in thread.session_state.calls
        ):
            return Continue("stop_hook_feedback", _NOTHING_RAN)
        return await self.authorizer.before_stop(thread)

    async def before_compact(self, thread: Thread) -> None:
        await self.authorizer.before_compact(thread)


ALL_TOOLS = "*"
_CALLABLE_NAMES = re.compile(r"(?:Agent|Task)\(([^)]*)\)")


def derive_agent(kind: Subagent, parent: Agent, birth: ThreadCreated, models: Models) -> Agent:
    wanted = None if parent.has_one_model else birth.model or kind.model
    told = (kind.prompt, parent.instructions if kind.reads_instructions else "")
    cast = replace(
        parent,
        name=kind.name,
        description=kind.description,
        instructions="\n\n".join(filter(None, told)),
        model=parent.model if wanted is None else models.related(wanted, parent.model),
        tools=[tool for tool in parent.tools if may_use_tool(kind, tool.spec.name)],
        client_tools=[spec for spec in parent.client_tools if may_use_tool(kind, spec.name)],
        limits=Limits(max_turns=kind.max_turns, max_cost_usd=_parse_usd(kind.max_cost_usd)),
        effort=kind.effort or parent.effort,
        subagents=callable_subagents(kind, parent.subagents),
        skills=parent.skills if may_use_tool(kind, "skill") else (),
        is_coordinator=False,
    )
    own = kind.own
    if own is None:
        return cast
    return replace(cast, built_ins=own.built_ins, client_tools=own.client_tools, skills=own.skills)


def may_use_tool(kind: Subagent, tool: str) -> bool:
    """Whether a subagent may use a tool of its parent's."""
    if _is_listed(kind.disallowed_tools, tool):
        return False
    return kind.tools is None or ALL_TOOLS in kind.tools or _is_listed(kind.tools, tool)


def allowed_tools(kind: Subagent, tools: Iterable[Tool]) -> list[Tool]:
    return [tool for tool in tools if may_use_tool(kind, tool.spec.name)]


def callable_subagents(kind: Subagent, known: Sequence[Subagent]) -> tuple[Subagent, ...]:
    """Whom a subagent may call in its turn: `Agent(a, b)` names them."""
    if not may_use_tool(kind, "agent"):
        return ()
    named = [found[1] for text in kind.tools or () if (found := _CALLABLE_NAMES.fullmatch(text))]
    if not named:
        return tuple(known)
    allowed = {name.strip() for item in named for name in item.split(",")}
    return tuple(item for item in known if item.name in allowed)


def strictest_mode(kinds: Iterable[Subagent]) -> Mode | None:
    """Of the modes that a type and those above it ask for: nobody is freer than who has called
    them. `None`: they ask for nothing."""
    wanted: list[Mode] = [mode for kind in kinds if (mode := _mode_of(kind)) is not None]
    return reduce(stricter_mode, wanted) if wanted else None


def _mode_of(kind: Subagent) -> Mode | None:
    """What cannot be read asks for nothing."""
    try:
        return None if kind.permission_mode is None else parse_mode(kind.permission_mode)
    except InvalidInput:
        return None


def _is_listed(names: Iterable[str], tool: str) -> bool:
    return any(_matches_tool(name, tool) for name in names)


def _matches_tool(name: str, tool: str) -> bool:
    name = canonical_name(name.partition("(")[0].strip())
    if name.startswith("mcp__"):
        whole = name.removesuffix("*").rstrip("_")
        return tool == name or tool.startswith(f"{whole}__") or whole == "mcp"
    return name == tool


def _parse_usd(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None


FORK = "fork"
"""The name of a subagent that begins with all that its parent has read and said."""

_FORK_SUBAGENT = Subagent(name=FORK, description="", prompt="")

ExtraTools = Callable[["SubagentSupervisor", ThreadNode, Agent], Sequence[Tool]]
"""What a thread can do besides: call others, bring up skills."""


@dataclass(slots=True, kw_only=True)
class ThreadFactory:
    session_context: SessionContext
    agent: Agent
    """The main thread's."""
    toolbox: Toolbox
    extra_tools: ExtraTools
    _agents: dict[str, Agent] = field(default_factory=dict[str, Agent], init=False)
    _prefixes: dict[str, PromptPrefix] = field(default_factory=dict[str, PromptPrefix], init=False)

    def main_context(self, supervisor: SubagentSupervisor) -> ThreadContext:
        member = self.session_context.event_sink.thread_tree.main
        spec = ThreadSpec(
            node=member,
            agent=self.agent,
            toolbox=self.toolbox,
            tools=self.extra_tools(supervisor, member, self.agent),
            siblings=supervisor,
        )
        return self._remember_prefix(member, build_thread_context(self.session_context, spec))

    @asynccontextmanager
    async def open_context(
        self, node: ThreadNode, supervisor: SubagentSupervisor
    ) -> AsyncGenerator[ThreadContext, None]:
        agent, kind = self.agent_of(node), self.subagent_of(node)
        is_first = node.thread.turns == 0 and not node.thread.running
        if kind.skills:
            text = await to_thread.run_sync(preloaded_text, kind.skills, self.agent.skills)
            agent = replace(agent, instructions="\n\n".join((agent.instructions, text)))
        async with self._toolbox_for(node, agent) as toolbox:
            spec = ThreadSpec(
                node=node,
                agent=agent,
                toolbox=replace(
                    toolbox,
                    tools=allowed_tools(self._tool_owner(node), toolbox.tools),
                    client_tools=(),
                ),
                tools=self.extra_tools(supervisor, node, agent),
                siblings=supervisor,
                parent_tiers=self._parent_tiers(node),
                prompt_prefix=self._prefixes.get(node.parent_id or "")
                if kind.name == FORK
                else None,
            )
            context = build_thread_context(self.session_context, spec)
            context.is_watched = True
            context.note(*toolbox.facts)
            if is_first:
                context.note(*preload_facts(kind.skills, self.agent.skills))
            if kind.must_run_something:
                context.authorizer = MustRunAuthorizer(context.authorizer)
            yield self._remember_prefix(node, context)

    def agent_of(self, node: ThreadNode) -> Agent:
        """Who a thread is, by its type and by who has called it."""
        if node.created_event is None or node.parent_id is None:
            return self.agent
        if node.id not in self._agents:
            parent = self.agent_of(
                self.session_context.event_sink.thread_tree.nodes[node.parent_id]
            )
            kind = self.subagent_of(node)
            if kind.name == FORK:
                self._agents[node.id] = replace(parent, limits=Limits())
            else:
                cast = derive_agent(kind, parent, node.created_event, self.session_context.models)
                self._agents[node.id] = cast
        return self._agents[node.id]

    def subagent_of(self, node: ThreadNode) -> Subagent:
        """The type of a thread that is not the main one."""
        if node.name == FORK:
            return _FORK_SUBAGENT
        known = {kind.name: kind for kind in self.agent.subagents}
        return known.get(node.name or "", GENERAL)

    def task_of(self, node: ThreadNode, parent: ThreadNode, prompt: str) -> ThreadMessageReceived:
        """The first thing that a thread reads."""
        kind = self.subagent_of(node)
        text = "\n\n".join(filter(None, (kind.initial_prompt, prompt)))
        return ThreadMessageReceived(
            from_session_thread_id=parent.id,
            from_agent_name=parent.name,
            content=(TextBlock(text),),
        )

    def _parent_tiers(self, node: ThreadNode) -> list[BudgetTier]:
        chain = list(self.session_context.event_sink.thread_tree.with_ancestors(node))[1:]
        return [BudgetTier(item.spend_account, self.agent_of(item).limits) for item in chain]

    def _tool_owner(self, node: ThreadNode) -> Subagent:
        """Whose tools a thread has: those of a fork are its parent's, whoever that is."""
        chain = self.session_context.event_sink.thread_tree.with_ancestors(node)
        called = (item for item in chain if item.created_event is not None)
        return next(
            (kind for kind in map(self.subagent_of, called) if kind.name != FORK), _FORK_SUBAGENT
        )

    def _toolbox_for(self, node: ThreadNode, agent: Agent) -> AbstractAsyncContextManager[Toolbox]:
        chain = list(self.session_context.event_sink.thread_tree.with_ancestors(node))
        worktree = next((item.worktree for item in chain if item.worktree is not None), None)
        opening = SetupRequest(
            agent=agent,
            thread=node.thread,
            writer=self.session_context.event_sink.writer,
            log=self.session_context.log,
            mode=strictest_mode(
                self.subagent_of(item) for item in chain if item.created_event is not None
            ),
            subagent=node.name,
            workspace=None if worktree is None else Path(worktree.path),
        )
        toolbox_factory = self.toolbox.for_thread or toolbox_without_tools(self.toolbox.authorizer)
        return toolbox_factory(opening)

    def _remember_prefix(self, node: ThreadNode, context: ThreadContext) -> ThreadContext:
        """What stands before its messages: forks of it begin with the same bytes."""
        self._prefixes[node.id] = context.prompt_prefix
        return context
