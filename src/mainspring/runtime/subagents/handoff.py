"""Handoffs: an agent gives the conversation to another agent, which gets all of it and continues it
in its own thread. The thread that hands off ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from mainspring.core.content import TextBlock
from mainspring.core.events import ThreadHandedOff
from mainspring.core.model import Delta, ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.harness.stop_reasons import Ended
from mainspring.harness.thread_context import ThreadContext
from mainspring.log.task_groups import retry_unavailable, run_in_background
from mainspring.runtime.agent import Agent
from mainspring.runtime.subagent import Subagent
from mainspring.runtime.subagents.delegation import new_thread, refuse
from mainspring.runtime.subagents.skill_tool import skill_tools
from mainspring.runtime.subagents.subagent_tools import subagent_tools
from mainspring.runtime.subagents.supervisor import SubagentSupervisor

_TASK = "{caller} has handed this conversation to you. {note}Continue it: the user reads you now."
_TRAITS = Traits(in_doubt="retry")


def thread_tools(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> list[Tool]:
    """The tools of every thread besides those of its agent and its toolbox. Only the thread that
    talks to the user can hand its conversation over."""
    targets = agent.handoffs if node is supervisor.thread_tree.active else ()
    return [
        *subagent_tools(supervisor, node, agent),
        *skill_tools(supervisor, node, agent),
        *(_handoff_tool(supervisor, node, agent, target) for target in targets),
    ]


def _handoff_tool(
    supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent, target: Subagent
) -> Tool:
    async def run(call: Call) -> ToolResult:
        created = replace(new_thread(call, node, target.name), mode="handoff", is_fork=True)
        receiver = supervisor.thread_tree.handed_to(node)
        if receiver is not None and receiver.id != created.session_thread_id:
            return refuse(f"The conversation was already handed to {receiver.name}.")
        note = str(call.input.get("note", "")).strip()
        task = _TASK.format(caller=agent.name, note=f"{note}\n" if note else "")
        child = await supervisor.spawn(node, created, task)
        fact = ThreadHandedOff(
            to_session_thread_id=child.id, to_agent_name=target.name, tool_use_id=call.id
        )
        text = f"{target.name} continues the conversation."
        return ToolResult((TextBlock(text),), facts=(fact,))

    note = {"type": "string", "description": "What it should know besides the conversation."}
    return Tool(
        spec=ToolSpec(
            name=f"transfer_to_{re.sub(r'[^a-zA-Z0-9_-]', '_', target.name)}"[:64],
            description=(
                f"Hand this conversation to {target.name}, who continues it; then you are done."
                f" {target.description}"
            ),
            input_schema={
                "type": "object",
                "properties": {"note": note},
                "required": [],
                "additionalProperties": False,
            },
        ),
        run=run,
        traits=lambda _: _TRAITS,
    )


async def run_conversation(
    supervisor: SubagentSupervisor, main: ThreadContext, emit: Callable[[Delta], None]
) -> Ended | None:
    """Run the main thread, then each thread that the conversation is handed to.

    After a crash in the middle of a handoff, the main thread first records that it is done."""
    thread_tree = supervisor.thread_tree
    run_end = await supervisor.run(main)
    node = thread_tree.handed_to(thread_tree.main)
    while node is not None:
        async with supervisor.thread_factory.open_context(node) as context:
            context.emit = emit
            # clients send interrupts to the main thread, even after a handoff
            watch = partial(main.writer.watch_interrupts, main.thread.id, context.interrupt)
            async with run_in_background(partial(retry_unavailable, watch)):
                run_end = await supervisor.run(context) or run_end
        node = thread_tree.handed_to(node)
    return run_end
