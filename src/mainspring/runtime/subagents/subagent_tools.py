"""The tools for subagents: call one, send it a message, stop it, merge or discard its worktree. A
thread does not see a tool that it may not use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.model import ToolSpec
from mainspring.core.ports import ClosedWorktree
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.harness.state.thread_tree import ThreadNode
from mainspring.runtime.agent import Agent
from mainspring.runtime.subagent import GENERAL, Subagent
from mainspring.runtime.subagents.delegation import (
    DELEGATION_TRAITS,
    agent_input_schema,
    delegate,
    find_agent,
    limit_reached,
    new_thread,
    refuse,
)
from mainspring.runtime.subagents.supervisor import SubagentSupervisor
from mainspring.runtime.subagents.thread_factory import FORK
from mainspring.runtime.subagents.thread_worktrees import ThreadWorktrees, join_paths

_CLOSE_TRAITS = Traits(in_doubt="retry", on_interrupt="block")
_UNKNOWN_PATHS = (".",)
"""The paths to authorize before the changes are known: the whole workspace."""
_MAX_SHOWN_PATHS = 200  # changed by a subagent


def close_worktree_tool(supervisor: SubagentSupervisor, node: ThreadNode) -> Tool:
    tool = _CloseWorktree(supervisor, node)
    return Tool(
        spec=_CLOSE_SPEC,
        run=tool.run,
        traits=lambda _: _CLOSE_TRAITS,
        invalid=_close_input_error,
        objection=tool.objection,
        normalize_input=tool.with_paths,
        preview=tool.preview,
    )


class _CloseWorktree(Struct, frozen=True):
    supervisor: SubagentSupervisor
    node: ThreadNode
    """The thread that closes it."""

    @property
    def worktrees(self) -> ThreadWorktrees:
        return self.supervisor.worktrees

    async def run(self, call: Call) -> ToolResult:
        to = find_agent(self.supervisor, self.node, call.input)
        if isinstance(to, ToolResult):
            return to
        if self.supervisor.is_live(to.id) or self.supervisor.has_others_below(to):
            return refuse(f"{to.name} {to.id} is still running: wait for it, or use stop_agent.")
        is_merge, authorized_paths = _is_merge(call.input), self.worktrees.changed.get(to.id, ())
        try:
            if is_merge and authorized_paths != await self.worktrees.changed_paths(to):
                return refuse(
                    "The worktree has changed in the meantime: call close_worktree again."
                )
            return _closed_result(to, await self.worktrees.close(to, merge=is_merge))
        except ToolEnvironmentError as error:
            return refuse(str(error))

    async def objection(self, call: Call) -> str | None:
        """Look up the changed paths, which the permission check needs; object if that fails."""
        try:
            await self._changed_paths(call.input)
        except ToolEnvironmentError as error:
            return str(error)
        return None

    def with_paths(self, tool_input: Mapping[str, object]) -> Mapping[str, object]:
        """Add the changed paths, which the permission rules judge."""
        to = find_agent(self.supervisor, self.node, tool_input)
        if isinstance(to, ToolResult) or not _is_merge(tool_input):
            return tool_input
        return {**tool_input, "paths": [*self.worktrees.changed.get(to.id, _UNKNOWN_PATHS)]}

    async def preview(self, call: Call) -> str | None:
        try:
            paths = await self._changed_paths(call.input)
        except ToolEnvironmentError as error:
            return str(error)
        if not paths:
            return None
        return f"Merge into the workspace: {join_paths(paths, _MAX_SHOWN_PATHS)}"

    async def _changed_paths(self, tool_input: Mapping[str, object]) -> tuple[str, ...]:
        to = find_agent(self.supervisor, self.node, tool_input)
        if isinstance(to, ToolResult) or not _is_merge(tool_input):
            return ()
        return await self.worktrees.changed_paths(to)


def _is_merge(tool_input: Mapping[str, object]) -> bool:
    return tool_input.get("action") != "discard"


def _close_input_error(tool_input: Mapping[str, object]) -> str | None:
    if tool_input.get("action") not in ("merge", "discard"):
        return "The input is not valid:\n- action: merge or discard"
    return None


def _closed_result(to: ThreadNode, closed: ClosedWorktree | None) -> ToolResult:
    if closed is None:
        return refuse(f"{to.name} {to.id} has no open worktree.")
    match closed.outcome:
        case "merged":
            return ToolResult.text(f"Merged into the workspace, as {closed.commit}.")
        case "discarded":
            return ToolResult.text(f"Discarded{f': {closed.reason}' if closed.reason else ''}.")
        case "kept":
            return refuse(
                f"Not merged, and nothing was changed: {closed.reason} "
                "Commit uncommitted changes, resolve conflicts with git yourself, then close it"
                " again; or discard it."
            )


_CLOSE_SPEC = ToolSpec(
    name="close_worktree",
    description=(
        "Close the git worktree of a subagent that you have called and that has ended: merge its"
        " changes into the workspace's branch, or discard them. If they cannot be merged, you get"
        " the reason, and nothing is lost."
    ),
    input_schema=agent_input_schema({"action": {"type": "string", "enum": ["merge", "discard"]}}),
)


_MESSAGE_TRAITS = Traits(concurrent=True, in_doubt="report")
_MAX_DESCRIPTIONS = 24_000
"""The limit in characters for all types together, because every request contains them."""
_SHORTEST = 40  # characters to which descriptions are cut at most
_ISOLATION: Mapping[str, object] = {
    "type": "string",
    "enum": ["shared", "worktree"],
    "description": (
        "worktree: in a git worktree of its own, which starts at the last commit; you merge it"
        " afterwards."
    ),
}


def subagent_tools(supervisor: SubagentSupervisor, node: ThreadNode, agent: Agent) -> list[Tool]:
    """The tools of a thread for its subagents; none, if it may not call any."""
    is_deep = node.depth >= supervisor.main_agent.max_depth
    is_too_deep = is_deep and node.name != FORK  # a fork has its parent's tools
    if not agent.subagents or is_too_deep:
        return []
    tools = [
        _agent_tool(supervisor, node, agent.subagents),
        _send_message_tool(supervisor, node),
        _stop_tool(supervisor, node),
    ]
    return (
        [*tools, close_worktree_tool(supervisor, node)] if supervisor.worktrees.worktrees else tools
    )


def _agent_tool(
    supervisor: SubagentSupervisor, node: ThreadNode, subagents: Sequence[Subagent]
) -> Tool:
    types = {subagent.name: subagent for subagent in subagents}

    async def run(call: Call) -> ToolResult:
        tool_input = call.input
        name = str(tool_input.get("subagent_type") or _default_type(types))
        subagent = types.get(name, GENERAL)
        is_background = tool_input.get("run_in_background", subagent.is_background)
        isolation = tool_input.get("isolation") or subagent.isolation
        created = replace(
            new_thread(call, node, name),
            mode="background" if is_background else "foreground",
            model=str(tool_input["model"]) if tool_input.get("model") else None,
            isolation="worktree" if isolation == "worktree" else "shared",
            description=str(tool_input.get("description", "")) or None,
        )
        return await delegate(supervisor, node, created, str(tool_input.get("prompt", "")))

    return Tool(
        spec=_agent_spec(
            types,
            is_fork_shown=node.depth == 0,
            has_worktrees=supervisor.worktrees.worktrees is not None,
        ),
        run=run,
        traits=lambda _: DELEGATION_TRAITS,
        invalid=lambda tool_input: _agent_input_error(tool_input, types),
    )


def _default_type(types: Mapping[str, Subagent]) -> str:
    return GENERAL.name if GENERAL.name in types else next(iter(types))


def _agent_input_error(
    tool_input: Mapping[str, object], types: Mapping[str, Subagent]
) -> str | None:
    prompt, subagent = tool_input.get("prompt"), tool_input.get("subagent_type")
    if not isinstance(prompt, str) or not prompt.strip():
        return "The input is not valid:\n- prompt: missing: the subagent knows nothing else"
    if subagent is not None and subagent not in (*types, FORK):
        names = ", ".join((*types, FORK))
        return (
            f"The input is not valid:\n- subagent_type: there is no {subagent}; there are {names}"
        )
    if tool_input.get("isolation") not in (None, "shared", "worktree"):
        return "The input is not valid:\n- isolation: shared or worktree"
    return None


def _agent_spec(
    types: Mapping[str, Subagent], *, is_fork_shown: bool, has_worktrees: bool
) -> ToolSpec:
    names = [*types, FORK] if is_fork_shown else [*types]
    fork = (
        f"\n- {FORK}: yourself, with everything that you have read and said so far, for work that"
        " needs it. Give it only the task."
        if is_fork_shown
        else ""
    )
    return ToolSpec(
        name="agent",
        description=(
            "Give a task to a subagent. It knows nothing but your prompt, and you get only its"
            " last message: say everything that it needs to know, and what you want back. Calls in"
            " one turn run at the same time: give independent tasks to several subagents"
            f" at once.\n\nTypes:\n{_type_list(types.values())}{fork}"
        ),
        input_schema={
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "The task in 3 to 5 words."},
                "prompt": {"type": "string", "description": "The task, complete."},
                "subagent_type": {"type": "string", "enum": names},
                "model": {"type": "string", "description": "A model to use instead of its own."},
                "run_in_background": {
                    "type": "boolean",
                    "description": "Do not wait: its answer comes as a message.",
                },
                **({"isolation": _ISOLATION} if has_worktrees else {}),
            },
            "required": ["description", "prompt"],
            "additionalProperties": False,
        },
    )


def _type_list(subagents: Collection[Subagent]) -> str:
    """A line for each type, with descriptions shortened so that all of them together fit."""
    lengths = [len(subagent.description) for subagent in subagents]
    limit = max(lengths, default=0)
    while sum(min(length, limit) for length in lengths) > _MAX_DESCRIPTIONS and limit > _SHORTEST:
        limit = limit * 9 // 10
    lines: list[str] = []
    for subagent in subagents:
        text = subagent.description
        text = text if len(text) <= limit else f"{text[:limit].rstrip()}…"
        lines.append(f"- {subagent.name}: {text}")
    return "\n".join(lines)


def _send_message_tool(supervisor: SubagentSupervisor, node: ThreadNode) -> Tool:
    async def run(call: Call) -> ToolResult:
        to = find_agent(supervisor, node, call.input)
        if isinstance(to, ToolResult):
            return to
        if supervisor.is_full and not supervisor.is_live(to.id):  # the message would start it
            return limit_reached(supervisor)
        supervisor.send(node, to, str(call.input.get("message", "")))
        return ToolResult.text(f"Sent. {to.name} {to.id} reads it when it has finished its turn.")

    return Tool(
        spec=ToolSpec(
            name="send_message",
            description=(
                "Send a message to a subagent that you have called: more information or a new task."
                " If it has ended, it continues where it stopped. Its answer comes as a message."
            ),
            input_schema=agent_input_schema({"message": {"type": "string"}}),
        ),
        run=run,
        traits=lambda _: _MESSAGE_TRAITS,
    )


def _stop_tool(supervisor: SubagentSupervisor, node: ThreadNode) -> Tool:
    async def run(call: Call) -> ToolResult:
        to = find_agent(supervisor, node, call.input)
        if isinstance(to, ToolResult):
            return to
        await supervisor.stop(to, node)
        return ToolResult.text(f"{to.name} {to.id} has stopped. send_message continues it.")

    return Tool(
        spec=ToolSpec(
            name="stop_agent",
            description="Stop a subagent that you have called, and its own subagents.",
            input_schema=agent_input_schema({}),
        ),
        run=run,
        traits=lambda _: _MESSAGE_TRAITS,
    )
