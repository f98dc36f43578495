"""The fourth step of a thread's set-up: the tools that it may call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from mainspring.core.events import KnownPayload
from mainspring.core.lazy_module import LazyModule
from mainspring.core.tool import Tool
from mainspring.harness.file_read_history import file_read_times
from mainspring.harness.permissions.policy import Policy, remove_denied
from mainspring.harness.permissions.tool_names import select_tools
from mainspring.harness.toolbox import FindToolChanges
from mainspring.log.lru_cache import LruCache
from mainspring.runtime.agent_folder.folder_instructions import with_path_instructions
from mainspring.runtime.mcp_server import ServerParts
from mainspring.runtime.session.session_paths import has_memories
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.thread_setup.ports import (
    Environment,
    OpenedSandbox,
    ThreadPorts,
    ToolPresentation,
)
from mainspring.runtime.thread_setup.sandbox_plan import ThreadWorkspace
from mainspring.runtime.thread_setup.session_policy import SessionRuntime
from mainspring.runtime.thread_setup.workspace_facts import MAX_CACHED

if TYPE_CHECKING:
    from mainspring.runtime.memory import memory_tools
    from mainspring.runtime.memory.session_memory import SessionMemory
else:
    memory_tools = LazyModule("mainspring.runtime.memory.memory_tools")

_FILE_TOOLS = frozenset(("read", "edit", "write"))


class ThreadTools(Generic[Environment, OpenedSandbox]):
    """The tools of threads, except those of the agent itself and of MCP servers."""

    def __init__(self, ports: ThreadPorts[Environment, OpenedSandbox]) -> None:
        self._ports = ports
        self._files: LruCache[str, list[Tool]] = LruCache(MAX_CACHED)

    async def of_workspace(
        self,
        setup: SetupRequest,
        session: SessionRuntime[Environment],
        workspace: ThreadWorkspace[OpenedSandbox],
        record: Callable[[KnownPayload], None],
    ) -> dict[str, Tool]:
        """The built-in tools that the agent has and no rule denies. `record` gets what happens
        beside their calls."""
        files = await self._file_tools(setup, workspace)
        built_in = self._ports.built_in_tools(
            setup, workspace.tree.workspace, files, workspace.sandbox
        )
        web = self._ports.web_tools(setup, session.environment, record)
        return select_tools(
            remove_denied({**built_in, **web}, session.policy), setup.agent.built_ins
        )

    def of_memory(
        self, setup: SetupRequest, policy: Policy, workspace: Path, memory: SessionMemory | None
    ) -> dict[str, Tool]:
        """The tools for memories and documents."""
        tools: dict[str, Tool] = {} if memory is None else memory_tools.memory_tools(memory)
        own = {} if setup.subagent is None else tools  # its file gives it memory tools
        if (workspace / "knowledge").is_dir():
            tools = tools | self._ports.knowledge_tools(setup, workspace)
        return remove_denied({**select_tools(tools, setup.agent.built_ins), **own}, policy)

    def memory(
        self, setup: SetupRequest, workspace: Path, stack: AsyncExitStack
    ) -> SessionMemory | None:
        if not (
            setup.options.memory
            or setup.subagent_memory
            or has_memories(workspace, self._ports.home)
        ):
            return None
        return self._ports.memory_sources().of_thread(setup, workspace, stack)

    async def _file_tools(
        self, setup: SetupRequest, workspace: ThreadWorkspace[OpenedSandbox]
    ) -> list[Tool]:
        """The tools of the thread's last run, which remember the files that it has read; otherwise
        new ones that take this from the log."""
        session_id, thread_id = setup.writer.session_id, setup.thread.id
        key = f"{session_id}/{thread_id}"
        if (tools := self._files.get(key)) is None:
            earlier = await file_read_times(setup.log, session_id, thread_id)
            tools = self._ports.file_tools(workspace.tree.workspace, earlier)
        self._files.put(key, tools)
        return tools


def add_path_instructions(
    tools: dict[str, Tool], workspace: ThreadWorkspace[OpenedSandbox]
) -> dict[str, Tool]:
    """File tools show the instructions for the files that they open."""
    return tools | {
        name: with_path_instructions(tools[name], workspace.path_instructions)
        for name in _FILE_TOOLS & tools.keys()
    }


def tool_changes(
    servers: ServerParts, policy: Policy, loading: ToolPresentation
) -> FindToolChanges:
    return servers.tool_changes(partial(remove_denied, policy=policy), loading.make_search)
