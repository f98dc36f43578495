"""Builds the context of each thread of a session: agent, tools, permission mode, limits."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from anyio import to_thread
from msgspec import structs

from mainspring.core import clock, ids
from mainspring.core.content import TextBlock
from mainspring.core.envelope import Event
from mainspring.core.errors import BlobNotFound, InvalidInput
from mainspring.core.events import ThreadMessageReceived
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Delta
from mainspring.core.tool import Tool
from mainspring.function_tools.output_types import output_tool
from mainspring.harness.agent_authorizer import AgentAuthorizer
from mainspring.harness.authorizer import Authorizer
from mainspring.harness.budget import BudgetTier
from mainspring.harness.context.history_tools import history_read, history_search
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.policy import Mode, parse_mode, stricter_mode
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.harness.state.thread import OUTPUT_TOOL, Thread
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.harness.thread_context import NamedModel, SiblingThreads, ThreadContext
from mainspring.harness.tool_calls.deduplication import CALL_TYPES, deduplicated
from mainspring.harness.toolbox import Toolbox
from mainspring.runtime.agent import Agent, AgentSubagent, AnyAgent, prefix_of, tools_of
from mainspring.runtime.session_context import (
    Models,
    SessionContext,
    SetupRequest,
    toolbox_without_tools,
)
from mainspring.runtime.skills.skill_body import preload_facts, preloaded_text
from mainspring.runtime.subagent import GENERAL, Subagent

if TYPE_CHECKING:
    from mainspring.retrieval import history
else:
    history = LazyModule("mainspring.retrieval.history")  # used when the history is searched

ALL_TOOLS = "*"
_CALLABLE_NAMES = re.compile(r"(?:Agent|Task)\(([^)]*)\)")
_RUNNING_TOOLS = frozenset(("bash", "python", "service_start"))
_NOTHING_RAN = (
    "You have not run anything, so you have shown nothing. Run the work or its tests and give the"
    " commands with what they printed; if that is impossible here, say so with VERDICT: PARTIAL."
)


def _missing_evidence(thread: Thread) -> str | None:
    names = (canonical_name(name) for name, _ in thread.session_state.calls)
    return None if any(name in _RUNNING_TOOLS for name in names) else _NOTHING_RAN


def derive_agent(subagent: Subagent, parent: Agent, model: str | None, models: Models) -> Agent:
    """`model`: a model that the caller wants instead of the subagent's."""
    model = None if parent.has_one_model else model or subagent.model
    model = parent.model if model is None else models.related(model, parent.model)
    if isinstance(subagent, AgentSubagent):
        return _called_agent(subagent.agent, parent, model)
    instructions = (subagent.prompt, parent.instructions if subagent.reads_instructions else "")
    agent = replace(
        parent,
        name=subagent.name,
        description=subagent.description,
        instructions="\n\n".join(filter(None, instructions)),
        model=model,
        tools=[tool for tool in parent.tools if may_use_tool(subagent, tool.spec.name)],
        client_tools=[spec for spec in parent.client_tools if may_use_tool(subagent, spec.name)],
        limits=Limits(max_turns=subagent.max_turns, max_cost_usd=_parse_usd(subagent.max_cost_usd)),
        effort=subagent.effort or parent.effort,
        subagents=callable_subagents(subagent, parent.subagents),
        skills=parent.skills if may_use_tool(subagent, "skill") else (),
        is_coordinator=False,
        output_type=str,
        checks=(),
        require_evidence=(),
    )
    own = subagent.own
    if own is None:
        return agent
    return replace(
        agent,
        built_ins=own.built_ins,
        client_tools=own.client_tools,
        skills=own.skills,
        mcp_toolsets=own.mcp_toolsets,
    )


def _called_agent(agent: AnyAgent, parent: Agent, model: str) -> Agent:
    """A Python agent as a subagent. The caller's hooks apply to it, too."""
    hooks = [
        replace(hook, event="SubagentStop") if hook.event == "Stop" else hook
        for hook in agent.hooks
    ]
    return replace(
        agent,
        model=model,
        hooks=(*parent.hooks, *hooks),
        max_depth=parent.max_depth,
        max_at_once=parent.max_at_once,
        has_one_model=parent.has_one_model,
    )


def may_use_tool(subagent: Subagent, tool: str) -> bool:
    """Whether a subagent may use a tool of its parent."""
    if _is_listed(subagent.disallowed_tools, tool):
        return False
    return subagent.tools is None or ALL_TOOLS in subagent.tools or _is_listed(subagent.tools, tool)


def allowed_tools(subagent: Subagent, tools: Iterable[Tool]) -> list[Tool]:
    """The tools a subagent may use: those it lists, its memory tools and its own servers' tools."""
    unlisted, servers = structs.replace(subagent, tools=None), subagent.server_names

    def rules(tool: Tool) -> Subagent:
        is_needed = (tool.origin.server if tool.origin else None) in servers
        is_needed |= bool(servers) and tool.spec.name == "tool_search"
        is_needed |= subagent.memory is not None and tool.spec.name.startswith("memory_")
        return unlisted if is_needed else subagent

    return [tool for tool in tools if may_use_tool(rules(tool), tool.spec.name)]


def callable_subagents(
    subagent: Subagent, all_subagents: Sequence[Subagent]
) -> tuple[Subagent, ...]:
    """The subagents that a subagent may call in turn: `Agent(a, b)` names them."""
    if not may_use_tool(subagent, "agent"):
        return ()
    names = [
        match[1] for text in subagent.tools or () if (match := _CALLABLE_NAMES.fullmatch(text))
    ]
    if not names:
        return tuple(all_subagents)
    allowed = {name.strip() for item in names for name in item.split(",")}
    return tuple(item for item in all_subagents if item.name in allowed)


def strictest_mode(subagents: Iterable[Subagent]) -> Mode | None:
    """The strictest permission mode of a type and its callers, so that no subagent may do more than
    its caller. `None` if none of them sets a mode."""
    modes: list[Mode] = [mode for subagent in subagents if (mode := _mode_of(subagent)) is not None]
    return reduce(stricter_mode, modes) if modes else None


def _mode_of(subagent: Subagent) -> Mode | None:
    """An invalid mode counts as none."""
    try:
        return None if subagent.permission_mode is None else parse_mode(subagent.permission_mode)
    except InvalidInput:
        return None


def _is_listed(names: Iterable[str], tool: str) -> bool:
    return any(_matches_tool(name, tool) for name in names)


def _matches_tool(name: str, tool: str) -> bool:
    name = canonical_name(name.partition("(")[0].strip())
    if name.startswith("mcp__"):
        return tool == name or tool.startswith(f"{name.removesuffix('*').rstrip('_')}__")
    return name == tool


def _parse_usd(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None


FORK = "fork"
"""The subagent type whose context begins with that of its parent."""

_FORK_SUBAGENT = Subagent(name=FORK, description="", prompt="")

ExtraTools: TypeAlias = Callable[[ThreadNode, Agent], Sequence[Tool]]
"""The tools that every thread has besides its toolbox: to call subagents and skills."""


@dataclass(slots=True, kw_only=True)
class ThreadFactory:
    session_context: SessionContext
    extra_tools: ExtraTools
    siblings: SiblingThreads
    _agents: dict[str, Agent] = field(default_factory=dict[str, Agent], init=False)
    _prefixes: dict[str, PromptPrefix] = field(default_factory=dict[str, PromptPrefix], init=False)

    def main_context(self, emit: Callable[[Delta], None]) -> ThreadContext:
        """Raises: InvalidInput: two tools have the same name."""
        session = self.session_context
        context = self._context(session.event_sink.thread_tree.main, session.agent, session.toolbox)
        context.emit = emit
        return context

    @asynccontextmanager
    async def open_context(self, node: ThreadNode) -> AsyncGenerator[ThreadContext, None]:
        """
        Raises:
            InvalidInput: two tools have the same name.
            ToolEnvironmentError: it has no sandbox or no folder to work in.
        """
        agent, subagent = self.agent_of(node), self.subagent_of(node)
        skills = self.session_context.agent.skills
        is_first = node.thread.turns == 0 and not node.thread.running
        if subagent.skills:
            text = await to_thread.run_sync(preloaded_text, subagent.skills, skills)
            agent = replace(agent, instructions="\n\n".join((agent.instructions, text)))
        async with self._open_toolbox(node, agent) as toolbox:
            toolbox = replace(
                toolbox,
                tools=allowed_tools(self._tool_owner(node), toolbox.tools),
                client_tools=(),
            )
            if subagent.must_run_something:
                toolbox = replace(toolbox, stop_objection=_missing_evidence)
            context = self._context(node, agent, toolbox)
            context.note(*toolbox.facts)
            if is_first:
                context.note(*preload_facts(subagent.skills, skills))
            yield context

    def _context(self, node: ThreadNode, agent: Agent, toolbox: Toolbox) -> ThreadContext:
        session = self.session_context
        models = session.models
        if agent.is_coordinator:  # it delegates and has no tools of its own
            agent = replace(agent, tools=(), client_tools=())
            toolbox = replace(toolbox, tools=(), client_tools=(), deferred=frozenset(), aliases={})
        tools = tools_of(
            replace(
                agent, tools=[item for item in agent.tools if item.spec.name not in toolbox.denied]
            ),
            *toolbox.tools,
            *(() if agent.is_coordinator else _history_tools(session)),
            *(() if agent.output is None else (output_tool(OUTPUT_TOOL, agent.output),)),
            *self.extra_tools(node, agent),
        )
        client_tools = [*agent.client_tools, *toolbox.client_tools]

        def open_model(name: str) -> NamedModel:
            name = models.related(name, agent.model)
            return NamedModel(name, models.open(name), models.facts(name))

        prompt_prefix = toolbox.prompt_prefix
        if node.name == FORK:  # so that its prompt starts with the same bytes as its parent's
            prompt_prefix = self._prefixes.get(node.parent_id or "")
        if prompt_prefix is None:
            specs = [tool.spec for name, tool in tools.items() if name not in toolbox.deferred]
            prompt_prefix = prefix_of(
                agent, [*specs, *client_tools], environment=toolbox.environment
            )
        context = ThreadContext(
            event_sink=session.event_sink,
            thread=node.thread,
            model=models.open(agent.model),
            facts=models.facts(agent.model),
            prompt_prefix=prompt_prefix,
            toolbox=replace(
                toolbox,
                tools=[deduplicated(tool, self._read_calls, clock.now) for tool in tools.values()],
                client_tools=client_tools,
                authorizer=self._authorizer(agent, toolbox),
            ),
            tiers=[
                BudgetTier(item.spend_account, self.agent_of(item).limits)
                for item in session.event_sink.thread_tree.with_ancestors(node)
            ],
            budget=session.budget,
            new_id=ids.new_id,
            price=models.cost,
            siblings=self.siblings,
            open_model=open_model,
            deps=session.deps,
        )
        if loaded := node.thread.session_state.loaded_tools:
            context.load(loaded)
        self._prefixes[node.id] = context.prompt_prefix
        return context

    def _authorizer(self, agent: Agent, toolbox: Toolbox) -> Authorizer:
        """The authorizer with the agent's own hooks, output type and checks, if it has any."""
        has_checks = agent.hooks or agent.checks or agent.require_evidence
        if not has_checks and agent.output is None:
            return toolbox.authorizer
        return AgentAuthorizer(
            inner=toolbox.authorizer,
            hooks=agent.hooks,
            output_retries=None if agent.output is None else agent.output_retries,
            checks=agent.checks,
            evidence=agent.require_evidence,
            read_calls=self._read_calls,
            pending_facts=toolbox.pending_facts,
        )

    async def _read_calls(self) -> list[Event]:
        session = self.session_context
        session_id = session.event_sink.writer.session_id
        return await session.log.read(session_id, types=CALL_TYPES)

    def agent_of(self, node: ThreadNode) -> Agent:
        """The agent of a thread, derived from its subagent type and its parent's agent."""
        if node.created_event is None or node.parent_id is None:
            return self.session_context.agent
        if node.id not in self._agents:
            parent = self.agent_of(
                self.session_context.event_sink.thread_tree.nodes[node.parent_id]
            )
            subagent = self.subagent_of(node)
            self._agents[node.id] = (
                replace(parent, limits=Limits(), output_type=str, checks=(), require_evidence=())
                if subagent.name == FORK
                else derive_agent(
                    subagent, parent, node.created_event.model, self.session_context.models
                )
            )
        return self._agents[node.id]

    def subagent_of(self, node: ThreadNode) -> Subagent:
        """The subagent type of a thread that is not the main one."""
        if node.name == FORK:
            return _FORK_SUBAGENT
        if node.created_event is not None and node.created_event.mode == "handoff":
            parent = self.session_context.event_sink.thread_tree.nodes[node.parent_id or ""]
            by_name = {item.name: item for item in self.agent_of(parent).handoffs}
            return by_name.get(node.name or "", GENERAL)
        by_name = {item.name: item for item in self.session_context.agent.subagents}
        return by_name.get(node.name or "", GENERAL)

    def task_of(self, node: ThreadNode, parent: ThreadNode, prompt: str) -> ThreadMessageReceived:
        """The first message of a thread."""
        text = "\n\n".join(filter(None, (self.subagent_of(node).initial_prompt, prompt)))
        return ThreadMessageReceived(
            from_session_thread_id=parent.id,
            from_agent_name=parent.name,
            content=(TextBlock(text),),
        )

    def _tool_owner(self, node: ThreadNode) -> Subagent:
        """The subagent type whose tools a thread has: a fork has those of its parent."""
        return next(
            (item for item in self._subagent_chain(node) if item.name != FORK), _FORK_SUBAGENT
        )

    def _subagent_chain(self, node: ThreadNode) -> list[Subagent]:
        """The subagent types of a thread and of those above it, without the main thread."""
        nodes = self.session_context.event_sink.thread_tree.with_ancestors(node)
        return [self.subagent_of(item) for item in nodes if item.created_event is not None]

    def _open_toolbox(self, node: ThreadNode, agent: Agent) -> AbstractAsyncContextManager[Toolbox]:
        session = self.session_context
        nodes = session.event_sink.thread_tree.with_ancestors(node)
        worktree = next((item.worktree for item in nodes if item.worktree is not None), None)
        request = SetupRequest(
            agent=agent,
            thread=node.thread,
            writer=session.event_sink.writer,
            log=session.log,
            mode=strictest_mode(self._subagent_chain(node)),
            subagent=node.name,
            subagent_memory=self.subagent_of(node).memory,
            workspace=None if worktree is None else Path(worktree.path),
            options=session.options,
        )
        without_tools = toolbox_without_tools(session.toolbox.authorizer)
        return (session.toolbox.for_thread or without_tools)(request)


def _history_tools(session: SessionContext) -> tuple[Tool, ...]:
    """Tools to find and read what a compaction or a size limit has removed from the context."""
    log, own_id = session.log, session.event_sink.writer.session_id

    async def read_blob(digest: str) -> bytes:
        """Reads only blobs of this session and of the sessions it was forked from."""
        for segment in await log.lineage(own_id):
            if digest in await log.store.blobs(segment.session_id):
                return await log.blob(digest)
        raise BlobNotFound(digest)

    return (
        history_search(
            lambda query, limit: history.search_history(log, query, session_id=own_id, limit=limit)
        ),
        history_read(read_blob),
    )
