"""What the threads of a session share (`SessionContext`), and how the context of one thread is
built from its agent, its toolbox, its model and its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Protocol

from mainspring.core.errors import BlobNotFound
from mainspring.core.events import Usage
from mainspring.core.model import Delta, Model
from mainspring.core.model_facts import ModelFacts
from mainspring.core.tool import Tool
from mainspring.harness.budget import Budget
from mainspring.harness.context.history_tools import history_read, history_search
from mainspring.harness.context.request_builder import PromptPrefix
from mainspring.harness.event_sink import EventSink
from mainspring.harness.nested_budgets import BudgetTier
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.harness.thread_context import (
    NamedModel,
    NoSiblings,
    SiblingThreads,
    ThreadContext,
    ignore_delta,
)
from mainspring.log.search import search
from mainspring.log.session_log import SessionLog
from mainspring.runtime.agent import Agent, prefix_of, tools_of
from mainspring.runtime.session.toolbox import Toolbox


class Models(Protocol):
    def open(self, name: str) -> Model: ...

    def put(self, name: str, model: Model) -> None: ...

    def resolve(self, name: str) -> str: ...

    def facts(self, name: str) -> ModelFacts: ...

    def cost(self, name: str, usage: Usage) -> Decimal: ...

    def related(self, wanted: str, to: str) -> str:
        """What `sonnet`, `small` or a full name means to a user of the model `to`; `to` itself, if
        there is no such model to be had."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContext:
    """What the desks of one session have in common."""

    log: SessionLog
    models: Models
    event_sink: EventSink
    budget: Budget
    new_id: Callable[[str], str]

    @property
    def session_id(self) -> str:
        return self.event_sink.writer.session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpec:
    """Who works at a desk, and with what."""

    node: ThreadNode
    agent: Agent
    toolbox: Toolbox
    tools: Sequence[Tool] = ()
    """Besides those of the agent and of its kit."""
    siblings: SiblingThreads = field(default_factory=NoSiblings)
    parent_tiers: Sequence[BudgetTier] = ()
    prompt_prefix: PromptPrefix | None = None
    """Another thread's, which this one begins with, byte for byte."""
    emit: Callable[[Delta], None] = ignore_delta


def build_thread_context(session_context: SessionContext, thread_spec: ThreadSpec) -> ThreadContext:
    """
    Raises:
        InvalidInput: two tools have the same name.
    """
    agent, toolbox = thread_spec.agent, thread_spec.toolbox
    if agent.is_coordinator:
        agent, toolbox = replace(agent, tools=(), client_tools=()), _without_tools(toolbox)
    brought = [tool for tool in agent.tools if tool.spec.name not in toolbox.denied]
    tools = tools_of(
        replace(agent, tools=brought),
        *toolbox.tools,
        *_history_tools(session_context, agent),
        *thread_spec.tools,
    )
    client_tools = [*agent.client_tools, *toolbox.client_tools]
    at_once = [tool.spec for name, tool in tools.items() if name not in toolbox.deferred]
    environment = toolbox.environment

    def open_model(wanted: str) -> NamedModel:
        name = session_context.models.related(wanted, agent.model)
        return NamedModel(
            name, session_context.models.open(name), session_context.models.facts(name)
        )

    context = ThreadContext(
        event_sink=session_context.event_sink,
        thread=thread_spec.node.thread,
        model=session_context.models.open(agent.model),
        facts=session_context.models.facts(agent.model),
        prompt_prefix=thread_spec.prompt_prefix
        or prefix_of(agent, [*at_once, *client_tools], environment=environment),
        tools=tools,
        custom_tools=frozenset(spec.name for spec in client_tools),
        deferred=toolbox.deferred,
        aliases=toolbox.aliases,
        sandbox_info=toolbox.sandbox_info,
        snapshots=toolbox.snapshots,
        pending_facts=toolbox.pending_facts,
        limits=agent.limits,
        parent_tiers=thread_spec.parent_tiers,
        authorizer=toolbox.authorizer,
        budget=session_context.budget,
        new_id=session_context.new_id,
        price=session_context.models.cost,
        emit=thread_spec.emit,
        siblings=thread_spec.siblings,
        subagent=thread_spec.node.name,
        open_model=open_model,
        before_idle=toolbox.before_idle,
    )
    context.load(thread_spec.node.thread.session_state.loaded_tools)
    return context


def _without_tools(toolbox: Toolbox) -> Toolbox:
    """Who coordinates does nothing itself."""
    return replace(toolbox, tools=(), client_tools=(), deferred=frozenset(), aliases={})


def _history_tools(session_context: SessionContext, agent: Agent) -> tuple[Tool, ...]:
    """What finds and reads again what a compaction or a cap took out of sight."""
    if agent.is_coordinator:
        return ()
    log, session_id = session_context.log, session_context.session_id

    async def kept(digest: str) -> bytes:
        """A blob of this session's; those of others are not to be had."""
        for segment in await log.lineage(session_id):
            if digest in await log.store.blobs(segment.session_id):
                return await log.blob(digest)
        raise BlobNotFound(digest)

    return (
        history_search(lambda query, limit: search(log, query, session_id=session_id, limit=limit)),
        history_read(kept),
    )
