"""Mainspring's own tools, made for one session."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from mainspring.capabilities.monty.python import Interprets, python
from mainspring.capabilities.tools.artifact import artifact
from mainspring.capabilities.tools.files import file_tools
from mainspring.capabilities.tools.services import service_tools
from mainspring.capabilities.tools.shell import bash
from mainspring.capabilities.tools.think import think
from mainspring.capabilities.tools.todo import todo
from mainspring.core.content import BlobSource
from mainspring.core.facts import NetworkRequested
from mainspring.core.hands import Workspace
from mainspring.core.lazy import LazyModule
from mainspring.core.tool import Tool
from mainspring.harness.permissions.bash import judge
from mainspring.runtime.kit import Opening
from mainspring.wiring.environment import Environment
from mainspring.wiring.hands import Hands
from mainspring.wiring.wish import WebFetchLimits

if TYPE_CHECKING:
    from mainspring.wiring import network
else:
    network = LazyModule("mainspring.wiring.network")

ALL = "*"
NAMES = frozenset(
    (
        *("read", "write", "edit", "glob", "grep", "artifact", "todo", "think"),
        *("bash", "python", "service_start", "service_output", "service_stop", "web_fetch"),
    )
)
"""What they are called, whether or not a session has them."""


@lru_cache(maxsize=256)
def judged(command: str) -> tuple[bool, bool]:
    """Whether a command only reads, and whether it destroys."""
    verdict = judge(command)
    return verdict.read_only, verdict.destructive


def workspace_tools(workspace: Workspace, earlier: Mapping[str, int]) -> list[Tool]:
    """They know what the session has read, so they last as long as it does in this process.
    `earlier`: see `SessionFiles`."""
    found = shutil.which("rg")
    # one that the session could have put there itself is not run
    is_foreign = found is not None and Path(found).resolve().is_relative_to(workspace.root)
    return file_tools(workspace, ripgrep=None if is_foreign else found, earlier=earlier)


def built_in_tools(
    opening: Opening,
    workspace: Workspace,
    on_files: Sequence[Tool],
    hands: Hands | None,
    workers: Interprets | None,
) -> dict[str, Tool]:
    """By name; without isolation there is none that runs programs."""

    async def keep(content: bytes, media_type: str) -> BlobSource:
        return await opening.writer.put_blob(content, media_type=media_type)

    tools = [*on_files, artifact(workspace, keep), todo(), think()]
    if workers is not None:
        tools.append(python(workers, hands, workspace))
    if hands is not None:
        tools += [bash(hands, judge=judged, resumed=opening.thread.gear.shell_was_used)]
        tools += service_tools(hands.services, judge=judged)
    return {tool.spec.name: tool for tool in tools}


def web_tools(
    opening: Opening,
    environment: Environment,
    limits: WebFetchLimits,
    audit: Callable[[NetworkRequested], None],
) -> dict[str, Tool]:
    """What reaches hosts from outside of the sandbox; none without rules that say which."""
    if environment.rules is None:
        return {}
    fetch = network.WebFetch(environment.rules, audit)
    session_id = opening.writer.session_id
    fetching = network.fetching(fetch, limits, log=opening.log, session_id=session_id)
    return {fetching.spec.name: fetching}


def wanted_of(tools: dict[str, Tool], names: Sequence[str]) -> dict[str, Tool]:
    """Those that an agent may use."""
    if ALL in names:
        return tools
    return {name: tool for name, tool in tools.items() if name in names}
