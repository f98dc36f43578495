"""The rule that "always allow" would add for a call: narrow, and said before it is added."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from urllib.parse import urlsplit

from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdate, RuleText
from mainspring.harness.permissions.bash import suggest
from mainspring.harness.permissions.gitignore import escaped
from mainspring.harness.permissions.names import EDITING, READING, SHELLS, ours, theirs
from mainspring.harness.permissions.rules import parse_rule, written


def always(tool: str, given: Mapping[str, object]) -> RuleText | None:
    """`None` if no rule that is narrow enough would cover it."""
    name = ours(tool)
    if name in SHELLS:
        return _command(str(given.get("command", "")))
    if name in EDITING or name in READING:
        return _folder(name, given)
    if name == "web_fetch":
        return _host(str(given.get("url", "")))
    return RuleText(tool_name=theirs(name))


def _host(url: str) -> RuleText | None:
    try:
        host = urlsplit(url).hostname
        rule = RuleText(tool_name="WebFetch", rule_content=f"domain:{host or ''}")
        parse_rule(written(rule), behavior="allow")
    except (ValueError, InvalidInput):  # an address of numbers, or none at all
        return None
    return rule


def _command(command: str) -> RuleText | None:
    pattern = suggest(command)
    return None if pattern is None else RuleText(tool_name="Bash", rule_content=pattern)


def _folder(name: str, given: Mapping[str, object]) -> RuleText | None:
    """The folder that a file is in, or that is searched, and what is below it."""
    path = given.get("file_path") or given.get("path")
    if not isinstance(path, str) or not path:
        return None
    folder = (path if name in ("glob", "grep") else posixpath.dirname(path)).rstrip("/")
    if path.startswith("/") and not folder:
        return None  # all there is
    literal = escaped(folder or ".")
    whole = f"/{literal}/**" if literal.startswith("/") else f"{literal}/**"
    return RuleText(tool_name="Edit" if name in EDITING else "Read", rule_content=whole)


def update_of(rule: RuleText) -> PermissionUpdate:
    """The update that adds it to a session."""
    return PermissionUpdate(type="addRules", rules=(rule,), behavior="allow")
