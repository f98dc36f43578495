"""The rule that "always allow" would add for a call: narrow, and said before it is added."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from urllib.parse import urlsplit

from mainspring.core.events import PermissionUpdate, RuleText
from mainspring.harness.permissions.bash import suggest
from mainspring.harness.permissions.judged import SHELLS
from mainspring.harness.permissions.names import EDITING, READING, ours, theirs


def always(tool: str, given: Mapping[str, object]) -> RuleText | None:
    """`None` if no rule that is narrow enough would cover it."""
    name = ours(tool)
    if name in SHELLS:
        return _command(str(given.get("command", "")))
    if name in EDITING or name in READING:
        return _folder(name, given)
    if name in ("web_fetch", "web_search"):
        host = urlsplit(str(given.get("url", ""))).hostname
        return RuleText(tool_name=theirs(name), rule_content=f"domain:{host}") if host else None
    return RuleText(tool_name=theirs(name))


def _command(command: str) -> RuleText | None:
    pattern = suggest(command)
    return None if pattern is None else RuleText(tool_name="Bash", rule_content=pattern)


def _folder(name: str, given: Mapping[str, object]) -> RuleText | None:
    """The folder that a file is in, and what is below it."""
    path = given.get("file_path") or given.get("path")
    if not isinstance(path, str) or not path:
        return None
    folder = posixpath.dirname(path)
    tool = "Edit" if name in EDITING else "Read"
    whole = f"/{folder.rstrip('/')}/**" if folder.startswith("/") else f"{folder or '.'}/**"
    return RuleText(tool_name=tool, rule_content=whole)


def update_of(rule: RuleText) -> PermissionUpdate:
    """The update that adds it to a session."""
    return PermissionUpdate(type="addRules", rules=(rule,), behavior="allow")
