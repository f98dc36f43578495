"""Mainspring's own tools, made for one session."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from mainspring.capabilities.network.fetch import WebFetch
from mainspring.capabilities.tools.artifact import artifact
from mainspring.capabilities.tools.files import file_tools
from mainspring.capabilities.tools.services import service_tools
from mainspring.capabilities.tools.shell import bash
from mainspring.capabilities.tools.think import think
from mainspring.capabilities.tools.todo import todo
from mainspring.capabilities.tools.web import web_fetch
from mainspring.core.content import BlobSource
from mainspring.core.hands import Workspace
from mainspring.core.tool import Tool
from mainspring.harness.permissions.bash import judge
from mainspring.runtime.kit import Opening
from mainspring.wiring.environment import Environment
from mainspring.wiring.hands import Hands

ALL = "*"


def judged(command: str) -> tuple[bool, bool]:
    """Whether a command only reads, and whether it destroys."""
    verdict = judge(command)
    return verdict.read_only, verdict.destructive


def workspace_tools(workspace: Workspace) -> list[Tool]:
    """They know what the session has read, so they last as long as it does in this process."""
    return file_tools(workspace, ripgrep=shutil.which("rg"))


def built_in_tools(
    opening: Opening,
    workspace: Workspace,
    on_files: Sequence[Tool],
    environment: Environment,
    hands: Hands | None,
) -> dict[str, Tool]:
    """By name; without isolation there is none that runs programs."""

    async def keep(content: bytes, media_type: str) -> BlobSource:
        return await opening.writer.put_blob(content, media_type=media_type)

    tools = [*on_files, artifact(workspace, keep), todo(), think()]
    if hands is not None:
        is_resumed = opening.thread.turns > 0
        tools += [bash(hands, judge=judged, resumed=is_resumed)]
        tools += service_tools(hands, judge=judged)
    if environment.rules is not None:
        overheard = [] if hands is None else hands.overheard
        tools.append(web_fetch(WebFetch(environment.rules, overheard.append)))
    return {tool.spec.name: tool for tool in tools}


def wanted_of(tools: dict[str, Tool], names: Sequence[str]) -> dict[str, Tool]:
    """Those that an agent may use."""
    if ALL in names:
        return tools
    return {name: tool for name, tool in tools.items() if name in names}
