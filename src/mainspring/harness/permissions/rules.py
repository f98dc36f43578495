"""One permission rule, `Bash(npm test *)`: reading it, and whether it speaks for a call."""

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
from mainspring.harness.permissions import bash
from mainspring.harness.permissions.judged import Judged
from mainspring.harness.permissions.names import EDITING, READING, family, ours, theirs
from mainspring.harness.permissions.paths import Roots, Touched, check_pattern, is_hit

_NAME = re.compile(r"[A-Za-z_*][\w*.\-]*", re.ASCII)
_PARAMETER = re.compile(r"([A-Za-z_][\w.\-]*):(.+)", re.ASCII | re.DOTALL)
_HOST = re.compile(r"(\*|(\*\.)?[\w\-]+(\.[\w\-]+)*)", re.ASCII)
_LITERAL_SERVER = re.compile(r"mcp__[^*]+?__.*")
_NAMED_BY: Mapping[str, tuple[str, ...]] = {
    "agent": ("subagent_type", "agent", "name"),
    "skill": ("skill", "name", "command"),
}
"""Fields that say which agent or skill a call is about."""
ON_FILES = READING | EDITING


@dataclass(frozen=True, slots=True)
class Rule:
    tool: str
    """By our name; may have `*` in it."""
    specifier: str | None = None
    text: str = field(default="", compare=False)
    """As it was written."""

    def __str__(self) -> str:
        name = theirs(self.tool)
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
        raise InvalidInput(f"{text!r}: a rule is Tool or Tool(what), and {name!r} names no tool")
    if not opening:
        return _checked(Rule(ours(name), None, text), behavior)
    if not rest.endswith(")"):
        raise InvalidInput(f"{text!r}: the parenthesis is not closed at the end")
    specifier = rest[:-1].strip()
    if not specifier:
        raise InvalidInput(f"{text!r}: nothing stands in the parentheses; {name} alone means any")
    tool = ours(name)
    is_any = specifier == "*" and tool not in ON_FILES
    return _checked(Rule(tool, None if is_any else specifier, text), behavior)


def written(rule: RuleText) -> str:
    """A rule of a permission update, as settings have it."""
    if rule.rule_content is None:
        return rule.tool_name
    return f"{rule.tool_name}({rule.rule_content})"


def _checked(rule: Rule, behavior: Behavior | None) -> Rule:
    if "*" in rule.tool and behavior == "allow" and not _LITERAL_SERVER.fullmatch(rule.tool):
        raise InvalidInput(f"{rule.text!r}: in allow, * may only stand after mcp__server__")
    if rule.specifier is None:
        return rule
    try:
        _check_specifier(rule, rule.specifier, behavior)
    except InvalidInput as error:
        raise InvalidInput(f"{rule.text!r}: {error}") from error
    return rule


def _check_specifier(rule: Rule, specifier: str, behavior: Behavior | None) -> None:
    if rule.tool in ON_FILES:
        check_pattern(specifier)
    elif rule.tool == "bash" or rule.tool in _NAMED_BY:
        return
    elif rule.tool == "web_fetch" and specifier.startswith("domain:"):
        if not _HOST.fullmatch(specifier.removeprefix("domain:")):
            raise InvalidInput("after domain: comes a host, x.com or *.x.com")
    elif not _PARAMETER.fullmatch(specifier):
        kind = "domain:host" if rule.tool == "web_fetch" else "parameter:value"
        raise InvalidInput(f"what is in the parentheses must be {kind}")
    elif behavior == "allow":
        raise InvalidInput("parameter:value can only deny or ask")


def is_about(rule: Rule, tool: str) -> bool:
    """Whether a rule names a tool, whatever it says about its calls."""
    if "*" in rule.tool:
        return fnmatchcase(tool, rule.tool)
    if rule.tool.startswith("mcp__") and "__" not in rule.tool.removeprefix("mcp__"):
        return tool.startswith(f"{rule.tool}__")
    return tool in family(rule.tool)


def forbids(rule: Rule, judged: Judged, roots: Roots, behavior: Behavior) -> bool:
    """Whether a rule that denies or asks speaks for any part of a call."""
    specifier = rule.specifier
    if specifier is None:
        return is_about(rule, judged.tool)
    if judged.command is not None and rule.tool == "bash":
        is_match = bash.matches(specifier, judged.command, behavior=behavior)
        return is_match or _has_parameter(specifier, judged)
    if rule.tool in ON_FILES and any(
        is_hit(specifier, touched, roots) for touched in _seen(rule, judged)
    ):
        return True
    return is_about(rule, judged.tool) and (
        _is_called(rule, specifier, judged) or _has_parameter(specifier, judged)
    )


def permits(rule: Rule, judged: Judged) -> bool:
    """Whether a rule that allows speaks for the whole of a call. Rules on files and on commands
    are read together, so not here."""
    if rule.specifier is None:
        return is_about(rule, judged.tool)
    return is_about(rule, judged.tool) and _is_called(rule, rule.specifier, judged)


def _seen(rule: Rule, judged: Judged) -> list[Touched]:
    """The paths of a call that a rule on files has a say in."""
    if judged.tool in family(rule.tool) or (judged.tool == "artifact" and rule.tool in READING):
        return list(judged.paths)
    if judged.command is None:
        return []
    if rule.tool in READING:
        return list(judged.paths)  # what a command changes it may show, too: `cp .env b`
    return [touched for touched in judged.paths if touched.access == "write"]


def _is_called(rule: Rule, specifier: str, judged: Judged) -> bool:
    """`WebFetch(domain:x)`, `Agent(x)`, `Skill(x)`."""
    if rule.tool == "web_fetch" and specifier.startswith("domain:"):
        return _is_host(specifier.removeprefix("domain:"), _host(judged))
    names = [judged.input.get(key) for key in _NAMED_BY.get(rule.tool, ())]
    prefix = re.sub(r"(:| )\*$", "", specifier)
    return any(
        name == specifier or (prefix != specifier and _begins(name, prefix)) for name in names
    )


def _begins(name: object, prefix: str) -> bool:
    return isinstance(name, str) and (
        name == prefix or name.startswith((f"{prefix} ", f"{prefix}:"))
    )


def _host(judged: Judged) -> str:
    try:
        host = urlsplit(str(judged.input.get("url", ""))).hostname or ""
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


def _has_parameter(specifier: str, judged: Judged) -> bool:
    found = _PARAMETER.fullmatch(specifier)
    if found is None or found[1] not in judged.input:
        return False
    given = judged.input[found[1]]
    return _is_like(given if isinstance(given, str) else json.dumps(given, default=str), found[2])


def _is_like(text: str, pattern: str) -> bool:
    """`*` stands for anything; nothing else is special."""
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
