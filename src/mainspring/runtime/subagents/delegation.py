"""A tool call that a subagent carries out: spawns the thread, or finds it after a crash, runs it,
and makes its result the result of the call.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.core import ids
from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.events import KnownPayload, ThreadCreated
from mainspring.core.tool import Call, ToolResult, Traits
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.runtime.subagents.supervisor import SubagentSupervisor
from mainspring.runtime.subagents.thread_factory import FORK
from mainspring.runtime.subagents.thread_report import report_result

DELEGATION_TRAITS = Traits(concurrent=True, in_doubt="retry", max_chars=60_000)
_STARTED_MESSAGE = (
    "{name} is at work as {thread_id}. You will get its answer as a message; continue with"
    " something else, or stop and wait. send_message reaches it, stop_agent ends it."
)


async def delegate(
    supervisor: SubagentSupervisor,
    node: ThreadNode,
    created: ThreadCreated,
    prompt: str,
    *facts: KnownPayload,
) -> ToolResult:
    """Run a task in a new thread whose log begins with `facts`; a repeated call uses the same
    thread."""
    child = supervisor.thread_tree.created_by(created.tool_use_id or "")
    if child is None and node.depth >= supervisor.main_agent.max_depth:
        return refuse("Subagents of subagents cannot call others: do it yourself.")
    if child is None and supervisor.is_full:
        return limit_reached(supervisor)
    try:
        child = child or await supervisor.spawn(node, created, prompt, *facts)
    except ToolEnvironmentError as error:
        return refuse(str(error))
    if child.created_event is not None and child.created_event.mode == "background":
        supervisor.start_in_background(child)
        name = created.agent_name
        return ToolResult.text(_STARTED_MESSAGE.format(name=name, thread_id=child.id))
    await supervisor.wait_for(child)
    if call_ids := supervisor.pending_calls_of(child):
        return ToolResult((), waits_for=tuple(call_ids))
    return report_result(child, supervisor.worktrees.describe(child))


def limit_reached(supervisor: SubagentSupervisor) -> ToolResult:
    """The refusal if no further subagent may run."""
    limit = supervisor.main_agent.max_at_once
    return refuse(
        f"{limit} subagents are already running: wait until one has ended, or do it yourself."
    )


def refuse(why: str) -> ToolResult:
    return ToolResult.text(why, ok=False, error="failed")


def new_thread(call: Call, parent: ThreadNode, subagent_type: str) -> ThreadCreated:
    """The thread of a call; a repeated call gets the same id."""
    return ThreadCreated(
        session_thread_id=ids.stable_id(ids.THREAD, call.session_id, call.id),
        agent_name=subagent_type,
        parent_thread_id=parent.id,
        tool_use_id=call.id,
        mode="foreground",
        is_fork=subagent_type == FORK,
        isolation="shared",
    )


def agent_input_schema(properties: Mapping[str, object]) -> dict[str, object]:
    """The schema of an input that names a subagent and has `properties`."""
    to = {
        "type": "string",
        "description": "Its id as you received it; or its type, if only one has that type.",
    }
    return {
        "type": "object",
        "properties": {"to": to, **properties},
        "required": ["to", *properties],
        "additionalProperties": False,
    }


def find_agent(
    supervisor: SubagentSupervisor, node: ThreadNode, tool_input: Mapping[str, object]
) -> ThreadNode | ToolResult:
    """The thread that the input names, or the refusal if there is none."""
    name = str(tool_input.get("to") or "")
    if not name:
        return refuse("The input is not valid:\n- to: missing: name the subagent by id or by type")
    children = supervisor.thread_tree.children(node.id)
    matches = [child for child in children if name in (child.id, child.name)]
    if any(item.is_terminated for item in matches):
        return refuse(f"{name!r} was archived by a user and cannot be reached any more.")
    if len(matches) == 1 or (matches and matches[-1].id == name):
        return matches[-1]
    names = ", ".join(f"{child.id} ({child.name})" for child in children) or "none yet"
    problem = "is ambiguous" if matches else "is not a subagent that you have called"
    return refuse(f"{name!r} {problem}. You have called: {names}.")
