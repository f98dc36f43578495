"""The tools that work on the files of a workspace."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.capabilities.tools.edit import edit_tool
from mainspring.capabilities.tools.glob import glob_tool
from mainspring.capabilities.tools.grep import FindRipgrep, grep_tool
from mainspring.capabilities.tools.read import read_tool
from mainspring.capabilities.tools.session_files import SessionFiles
from mainspring.capabilities.tools.write import write_tool
from mainspring.core.ports import Workspace
from mainspring.core.tool import Tool


def file_tools(
    workspace: Workspace, find_ripgrep: FindRipgrep, *, earlier: Mapping[str, int] | None = None
) -> list[Tool]:
    """`earlier`: see `SessionFiles`."""
    files = SessionFiles(workspace, earlier)
    return [
        edit_tool(files),
        glob_tool(files),
        grep_tool(files, find_ripgrep),
        read_tool(files),
        write_tool(files),
    ]
