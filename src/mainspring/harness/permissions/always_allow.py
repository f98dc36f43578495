"""The narrow rule that "always allow" adds for a call; people see it before it is added."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from urllib.parse import urlsplit

from mainspring.core.errors import InvalidInput
from mainspring.core.events import PermissionUpdate, RuleText
from mainspring.harness.permissions.call_analysis import bash
from mainspring.harness.permissions.path_rules import escape_path
from mainspring.harness.permissions.rule import parse_rule, rule_text
from mainspring.harness.permissions.tool_names import (
    EDIT_TOOLS,
    READ_TOOLS,
    SHELL_TOOLS,
    canonical_name,
    claude_code_name,
)


def always_allow_rule(tool: str, args: Mapping[str, object]) -> RuleText | None:
    """The narrowest rule that covers the call; `None` if no narrow rule does."""
    name = canonical_name(tool)
    if name in SHELL_TOOLS:
        pattern = bash.suggest_rule(str(args.get("command", "")))
        return None if pattern is None else RuleText(tool_name="Bash", rule_content=pattern)
    if name in EDIT_TOOLS or name in READ_TOOLS:
        return _folder(name, args)
    if name == "web_fetch":
        return _host(str(args.get("url", "")))
    return RuleText(tool_name=claude_code_name(name))


def _host(url: str) -> RuleText | None:
    try:
        host = urlsplit(url).hostname
        rule = RuleText(tool_name="WebFetch", rule_content=f"domain:{host or ''}")
        parse_rule(rule_text(rule), behavior="allow")
    except (ValueError, InvalidInput):  # a numeric address, or no host
        return None
    return rule


def _folder(name: str, args: Mapping[str, object]) -> RuleText | None:
    """A rule for the folder of the file, or the searched folder, and everything below it."""
    path = args.get("file_path") or args.get("path")
    if not isinstance(path, str) or not path:
        return None
    folder = (path if name in ("glob", "grep") else posixpath.dirname(path)).rstrip("/")
    if path.startswith("/") and not folder:
        return None  # it would cover the whole disk
    literal = escape_path(folder or ".")
    pattern = f"/{literal}/**" if literal.startswith("/") else f"{literal}/**"
    return RuleText(tool_name="Edit" if name in EDIT_TOOLS else "Read", rule_content=pattern)


def rule_update(rule: RuleText) -> PermissionUpdate:
    """The update that adds the rule to a session."""
    return PermissionUpdate(type="addRules", rules=(rule,), behavior="allow")
