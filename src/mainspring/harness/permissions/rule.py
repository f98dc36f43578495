"""One permission rule, such as `Bash(npm test *)`: parsing it, and whether it applies to a call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
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
from mainspring.retrieval.globs import matches_parts

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
    """Mainspring's name of the tool; may contain `*`."""
    specifier: str | None = None
    text: str = field(default="", compare=False)
    """As it was written."""

    def __str__(self) -> str:
        name = claude_code_name(self.tool)
        return name if self.specifier is None else f"{name}({self.specifier})"


@lru_cache(maxsize=4096)
def parse_rule(text: str, *, behavior: Permission | None = None) -> Rule:
    """
    Raises:
        InvalidInput: it is not a rule, or cannot have this behavior.
    """
    name, opening, remainder = text.strip().partition("(")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{text!r}: a rule is Tool or Tool(specifier), and {name!r} is not a tool name"
        )
    if not opening:
        return _check_rule(Rule(canonical_name(name), None, text), behavior)
    if not remainder.endswith(")"):
        raise InvalidInput(f"{text!r}: the closing parenthesis is missing at the end")
    specifier = remainder[:-1].strip()
    if not specifier:
        raise InvalidInput(
            f"{text!r}: the parentheses are empty; write {name} alone for every call"
        )
    tool = canonical_name(name)
    is_any = specifier == "*" and tool not in FILE_TOOLS
    return _check_rule(Rule(tool, None if is_any else specifier, text), behavior)


def rule_text(rule: RuleText) -> str:
    """A rule of a permission update, as written in settings."""
    if rule.rule_content is None:
        return rule.tool_name
    return f"{rule.tool_name}({rule.rule_content})"


def _check_rule(rule: Rule, behavior: Permission | None) -> Rule:
    if "*" in rule.tool and behavior == "allow" and not _LITERAL_SERVER.fullmatch(rule.tool):
        raise InvalidInput(f"{rule.text!r}: an allow rule may have * only after mcp__server__")
    if rule.specifier is None:
        return rule
    try:
        _check_specifier(rule, rule.specifier, behavior)
    except InvalidInput as error:
        raise InvalidInput(f"{rule.text!r}: {error}") from error
    return rule


def _check_specifier(rule: Rule, specifier: str, behavior: Permission | None) -> None:
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


def forbids(rule: Rule, call: AnalyzedCall, roots: PatternRoots, behavior: Permission) -> bool:
    """Whether a deny or ask rule covers any part of a call."""
    specifier = rule.specifier
    if specifier is None:
        return is_about(rule, call.tool)
    if call.command is not None and rule.tool == "bash":
        is_match = bash.rule_matches(specifier, call.command, behavior=behavior)
        return is_match or _has_parameter(specifier, call)
    if rule.tool in FILE_TOOLS and any(
        forbids_path(specifier, access, roots) for access in _relevant_paths(rule, call)
    ):
        return True
    is_named = _matches_name(rule, specifier, call) or _has_parameter(specifier, call)
    return is_about(rule, call.tool) and is_named


def permits(rule: Rule, call: AnalyzedCall) -> bool:
    """Whether an allow rule covers the whole call. Rules for files and commands apply together, so
    `decide` combines them."""
    if rule.specifier is None:
        return is_about(rule, call.tool)
    return is_about(rule, call.tool) and _matches_name(rule, rule.specifier, call)


def _relevant_paths(rule: Rule, call: AnalyzedCall) -> list[PathAccess]:
    """The paths of a call that a file rule covers."""
    if call.tool in tool_family(rule.tool) or (call.tool == "artifact" and rule.tool in READ_TOOLS):
        return list(call.paths)
    if call.command is None:
        return []
    if rule.tool in READ_TOOLS:
        return list(call.paths)  # a command may also show what it changes: `cp .env b`
    return [path for path in call.paths if path.access == "write"]


def _matches_name(rule: Rule, specifier: str, call: AnalyzedCall) -> bool:
    """`WebFetch(domain:x)`, `Agent(x)`, `Skill(x)`."""
    if rule.tool == "web_fetch" and specifier.startswith("domain:"):
        return _is_host(specifier.removeprefix("domain:"), _host(call))
    names = [call.input.get(key) for key in _NAME_PARAMETERS.get(rule.tool, ())]
    prefix = re.sub(r"(:| )\*$", "", specifier)
    if prefix == specifier:
        return specifier in names
    return any(name == specifier or _has_prefix(name, prefix) for name in names)


def _has_prefix(name: object, prefix: str) -> bool:
    starts = (f"{prefix} ", f"{prefix}:")
    return isinstance(name, str) and (name == prefix or name.startswith(starts))


def _host(call: AnalyzedCall) -> str:
    try:
        host = urlsplit(str(call.input.get("url", ""))).hostname or ""
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


def _has_parameter(specifier: str, call: AnalyzedCall) -> bool:
    parameter = _PARAMETER.fullmatch(specifier)
    if parameter is None or parameter[1] not in call.input:
        return False
    value = call.input[parameter[1]]
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return matches_parts(parameter[2].split("*"), text)
