"""The rule that "always allow" adds for a call: narrow, and shown before it is added."""

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
    """`None` if no rule that is narrow enough would cover it."""
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
    except (ValueError, InvalidInput):  # an address of numbers, or none at all
        return None
    return rule


def _folder(name: str, args: Mapping[str, object]) -> RuleText | None:
    """The folder that a file is in, or that is searched, and what is below it."""
    path = args.get("file_path") or args.get("path")
    if not isinstance(path, str) or not path:
        return None
    folder = (path if name in ("glob", "grep") else posixpath.dirname(path)).rstrip("/")
    if path.startswith("/") and not folder:
        return None  # all there is
    literal = escape_path(folder or ".")
    whole = f"/{literal}/**" if literal.startswith("/") else f"{literal}/**"
    return RuleText(tool_name="Edit" if name in EDIT_TOOLS else "Read", rule_content=whole)


def rule_update(rule: RuleText) -> PermissionUpdate:
    """The update that adds it to a session."""
    return PermissionUpdate(type="addRules", rules=(rule,), behavior="allow")
