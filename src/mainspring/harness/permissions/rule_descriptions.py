"""Descriptions of rules and modes in plain words, for people and for the model."""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.harness.permissions.policy import Mode, PolicyRule, rule_of
from mainspring.harness.permissions.rule import FILE_TOOLS, Rule
from mainspring.harness.permissions.tool_names import READ_TOOLS, claude_code_name, tool_family

MODE_DESCRIPTIONS: Mapping[Mode, str] = {
    "default": "reads in the workspace are allowed; anything else needs a rule or approval",
    "acceptEdits": "like default, and edits in the workspace are allowed",
    "plan": "no changes: everything but reading is denied",
    "auto": "like acceptEdits, and a model decides the rest",
    "dontAsk": "nobody is asked: calls that need approval are denied",
    "bypassPermissions": "in a sandbox, everything is allowed that no rule denies or asks about",
    "bubble": "like default, and the parent session is asked",
}
_PLANNING = (
    " Read what you need to know. When the plan is complete, present it: what to do, in which"
    " order, and how to check it. Use the tool exit_plan_mode for that if you have it; otherwise"
    " end your turn with the plan. The user then approves it or asks for changes."
)
_VERBS = {"allow": "allows", "ask": "asks about", "deny": "denies"}


def mode_notice(mode: Mode) -> str:
    """The message to the model when a session's mode changes."""
    more = _PLANNING if mode == "plan" else ""
    return f"The permission mode is now {mode}: {MODE_DESCRIPTIONS[mode]}.{more}"


def describe_rule(entry: PolicyRule) -> str:
    rule = rule_of(entry)
    if rule is None:
        return "invalid rule"
    return f"{_VERBS[entry.behavior]} {_subject(rule, entry)}"


def _subject(rule: Rule, entry: PolicyRule) -> str:
    specifier = rule.specifier
    if specifier is None:
        if "*" in rule.tool:
            return f"every tool called {rule.tool}"
        if rule.tool.startswith("mcp__") and "__" not in rule.tool.removeprefix("mcp__"):
            return f"every tool of the MCP server {rule.tool.removeprefix('mcp__')}"
        names = sorted(claude_code_name(tool) for tool in tool_family(rule.tool))
        return f"every call of {', '.join(names)}"
    if rule.tool == "bash":
        is_allow = entry.behavior == "allow"
        subject = "commands whose parts all match" if is_allow else "commands with a part matching"
        return f"{subject} `{specifier}`"
    if rule.tool in FILE_TOOLS:
        does = "reading" if rule.tool in READ_TOOLS else "changing"
        return f"{does} {specifier} {_describe_path(specifier, entry)}".rstrip()
    if rule.tool == "web_fetch" and specifier.startswith("domain:"):
        return f"fetching from {specifier.removeprefix('domain:')}"
    if rule.tool in ("agent", "skill"):
        return f"the {rule.tool} {specifier}"
    name, _, value = specifier.partition(":")
    return f"calls of {claude_code_name(rule.tool)} whose {name} is {value}"


def _describe_path(specifier: str, entry: PolicyRule) -> str:
    if specifier.startswith(("//", "~/")):
        return ""
    if specifier.startswith("/"):
        return f"in {entry.folder}"
    return "in the workspace"
