"""One permission rule, such as `Bash(npm test *)`: parsing it, and whether it applies to a call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import urlsplit

from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission, RuleText
from mainspring.harness.permissions.call_analysis import AnalyzedCall, bash
from mainspring.harness.permissions.path_rules import (
    PathAccess,
    PatternRoots,
    check_pattern,
    forbids_path,
)
from mainspring.harness.permissions.tool_names import (
    EDIT_TOOLS,
    READ_TOOLS,
    canonical_name,
    claude_code_name,
    tool_family,
)

_NAME = re.compile(r"[A-Za-z_*][\w*.\-]*", re.ASCII)
_PARAMETER = re.compile(r"([A-Za-z_][\w.\-]*):(.+)", re.ASCII | re.DOTALL)
_HOST = re.compile(r"(\*|(\*\.)?[\w\-]+(\.[\w\-]+)*)", re.ASCII)
_LITERAL_SERVER = re.compile(r"mcp__[^*]+?__.*")
_NAME_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "agent": ("subagent_type", "agent", "name"),
    "skill": ("skill", "name", "command"),
}
"""Fields that name the agent or skill of a call."""
FILE_TOOLS = READ_TOOLS | EDIT_TOOLS


@dataclass(frozen=True, slots=True)
class Rule:
    tool: str
    """Mainspring's name for it; may contain `*`."""
    specifier: str | None = None
    text: str = field(default="", compare=False)
    """As it was written."""

    def __str__(self) -> str:
        name = claude_code_name(self.tool)
        return name if self.specifier is None else f"{name}({self.specifier})"


Behavior: TypeAlias = Permission


@lru_cache(maxsize=4096)
def parse_rule(text: str, *, behavior: Behavior | None = None) -> Rule:
    """
    Raises:
        InvalidInput: it is not a rule, or none that can have this behaviour.
    """
    name, opening, rest = text.strip().partition("(")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{text!r}: a rule is Tool or Tool(specifier), and {name!r} is not a tool name"
        )
    if not opening:
        return _check_rule(Rule(canonical_name(name), None, text), behavior)
    if not rest.endswith(")"):
        raise InvalidInput(f"{text!r}: the closing parenthesis is missing at the end")
    specifier = rest[:-1].strip()
    if not specifier:
        raise InvalidInput(
            f"{text!r}: the parentheses are empty; write {name} alone for every call"
        )
    tool = canonical_name(name)
    is_any = specifier == "*" and tool not in FILE_TOOLS
    return _check_rule(Rule(tool, None if is_any else specifier, text), behavior)


def rule_text(rule: RuleText) -> str:
    """A rule of a permission update, as settings have it."""
    if rule.rule_content is None:
        return rule.tool_name
    return f"{rule.tool_name}({rule.rule_content})"


def _check_rule(rule: Rule, behavior: Behavior | None) -> Rule:
    if "*" in rule.tool and behavior == "allow" and not _LITERAL_SERVER.fullmatch(rule.tool):
        raise InvalidInput(f"{rule.text!r}: an allow rule may have * only after mcp__server__")
    if rule.specifier is None:
        return rule
    try:
        _check_specifier(rule, rule.specifier, behavior)
    except InvalidInput as error:
        raise InvalidInput(f"{rule.text!r}: {error}") from error
    return rule


def _check_specifier(rule: Rule, specifier: str, behavior: Behavior | None) -> None:
    if rule.tool in FILE_TOOLS:
        check_pattern(specifier)
    elif rule.tool == "bash" or rule.tool in _NAME_PARAMETERS:
        return
    elif rule.tool == "web_fetch" and specifier.startswith("domain:"):
        if not _HOST.fullmatch(specifier.removeprefix("domain:")):
            raise InvalidInput("domain: must be followed by a host, such as x.com or *.x.com")
    elif not _PARAMETER.fullmatch(specifier):
        kind = "domain:host" if rule.tool == "web_fetch" else "parameter:value"
        raise InvalidInput(f"the parentheses must contain {kind}")
    elif behavior == "allow":
        raise InvalidInput("a parameter:value rule can only deny or ask")


def is_about(rule: Rule, tool: str) -> bool:
    """Whether a rule names a tool, whatever its specifier."""
    if "*" in rule.tool:
        return fnmatchcase(tool, rule.tool)
    if rule.tool.startswith("mcp__") and "__" not in rule.tool.removeprefix("mcp__"):
        return tool.startswith(f"{rule.tool}__")
    return tool in tool_family(rule.tool)


def forbids(
    rule: Rule, analyzed_call: AnalyzedCall, pattern_roots: PatternRoots, behavior: Behavior
) -> bool:
    """Whether a deny or ask rule covers any part of a call."""
    specifier = rule.specifier
    if specifier is None:
        return is_about(rule, analyzed_call.tool)
    if analyzed_call.command is not None and rule.tool == "bash":
        is_match = bash.rule_matches(specifier, analyzed_call.command, behavior=behavior)
        return is_match or _has_parameter(specifier, analyzed_call)
    if rule.tool in FILE_TOOLS and any(
        forbids_path(specifier, touched, pattern_roots)
        for touched in _relevant_paths(rule, analyzed_call)
    ):
        return True
    return is_about(rule, analyzed_call.tool) and (
        _matches_name(rule, specifier, analyzed_call) or _has_parameter(specifier, analyzed_call)
    )


def permits(rule: Rule, analyzed_call: AnalyzedCall) -> bool:
    """Whether an allow rule covers the whole call. Rules for files and commands apply together, so
    `decide` combines them."""
    if rule.specifier is None:
        return is_about(rule, analyzed_call.tool)
    return is_about(rule, analyzed_call.tool) and _matches_name(rule, rule.specifier, analyzed_call)


def _relevant_paths(rule: Rule, analyzed_call: AnalyzedCall) -> list[PathAccess]:
    """The paths of a call that a file rule covers."""
    if analyzed_call.tool in tool_family(rule.tool) or (
        analyzed_call.tool == "artifact" and rule.tool in READ_TOOLS
    ):
        return list(analyzed_call.paths)
    if analyzed_call.command is None:
        return []
    if rule.tool in READ_TOOLS:
        return list(analyzed_call.paths)  # a command may also show what it changes: `cp .env b`
    return [touched for touched in analyzed_call.paths if touched.access == "write"]


def _matches_name(rule: Rule, specifier: str, analyzed_call: AnalyzedCall) -> bool:
    """`WebFetch(domain:x)`, `Agent(x)`, `Skill(x)`."""
    if rule.tool == "web_fetch" and specifier.startswith("domain:"):
        return _is_host(specifier.removeprefix("domain:"), _host(analyzed_call))
    names = [analyzed_call.input.get(key) for key in _NAME_PARAMETERS.get(rule.tool, ())]
    prefix = re.sub(r"(:| )\*$", "", specifier)
    return any(
        name == specifier or (prefix != specifier and _has_prefix(name, prefix)) for name in names
    )


def _has_prefix(name: object, prefix: str) -> bool:
    return isinstance(name, str) and (
        name == prefix or name.startswith((f"{prefix} ", f"{prefix}:"))
    )


def _host(analyzed_call: AnalyzedCall) -> str:
    try:
        host = urlsplit(str(analyzed_call.input.get("url", ""))).hostname or ""
    except ValueError:
        return ""
    return host.rstrip(".").casefold()


def _is_host(pattern: str, host: str) -> bool:
    pattern = pattern.casefold()
    if pattern == "*":
        return bool(host)
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and host != pattern[1:]
    return host == pattern


def _has_parameter(specifier: str, analyzed_call: AnalyzedCall) -> bool:
    found = _PARAMETER.fullmatch(specifier)
    if found is None or found[1] not in analyzed_call.input:
        return False
    given = analyzed_call.input[found[1]]
    return _matches_wildcards(
        given if isinstance(given, str) else json.dumps(given, default=str), found[2]
    )


def _matches_wildcards(text: str, pattern: str) -> bool:
    """`*` matches anything; no other character is special."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == first
    if not text.startswith(first) or not text.endswith(rest[-1]):
        return False
    at = len(first)
    for part in rest[:-1]:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at <= len(text) - len(rest[-1])
