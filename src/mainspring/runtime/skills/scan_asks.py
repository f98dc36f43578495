"""What a skill asks for in its head, and files that it brings which steer more than itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import cast

from mainspring.runtime.folder.frontmatter import Fields, read_head
from mainspring.runtime.skills.hidden_text import visible
from mainspring.runtime.skills.scan_rule import Found, Severity

_WHOLE_SHELL = re.compile(r"(?:Bash|shell|\*)(?:\(\s*(?:\*|:\*)?\s*\))?", re.IGNORECASE)
_AS_GOOD_AS = re.compile(
    r"Bash\(\s*(?:sudo|su|env|xargs|ssh|(?:ba|z|da|k)?sh|python[\d.]*|node|perl|ruby|php|eval|curl"
    r"|wget|npx|uvx|docker|find|awk)\b[^)]{0,20}\*\s*\)",
    re.IGNORECASE,
)
_STEERING = {
    **dict.fromkeys(("hooks.json", ".mcp.json", "mcp.json"), "starts programs of its own"),
    **dict.fromkeys(("settings.json", "settings.local.json"), "changes what agents may do"),
    **dict.fromkeys(("claude.md", "agents.md", "soul.md"), "instructs agents without being asked"),
    **dict.fromkeys((".npmrc", ".gitmodules", ".envrc", "conftest.py"), "steers other programs"),
}


def asks_of(text: str) -> Iterator[Found]:
    """Of the text of a SKILL.md or of a command."""
    fields = Fields(read_head(text), "")

    def ask(rule: str, severity: Severity, key: str, what: str, why: str) -> Found:
        return Found(rule, "permissions", severity, fields.line(key), visible(what), why)

    tools = defaultdict[tuple[str, Severity, str], list[str]](list)
    for tool in fields.words("allowed-tools") or ():
        tools[_judged(tool)].append(tool)
    for (rule, severity, why), named in tools.items():
        yield ask(rule, severity, "allowed-tools", ", ".join(named), why)
    if hooks := fields.mapping("hooks"):
        why = "It runs commands by itself while it is in use."
        yield ask("hooks", "caution", "hooks", ", ".join(hooks), why)
    if not fields.flag("user-invocable", default=True):
        yield ask("model-only", "note", "user-invocable", "", "Only the model can call it.")
    if fields.flag("disable-model-invocation"):
        why = "Only a person can call it; the model does not see it."
        yield ask("person-only", "note", "disable-model-invocation", "", why)
    for key in filter(fields.value, ("permissionMode", "permissions", "mcpServers")):
        why = "It wants to change what agents may do or reach; here that counts for nothing."
        yield ask("permission-mode", "caution", key, f"{key}: {fields.value(key)}", why)


def hook_commands(text: str) -> list[tuple[int, str]]:
    """Whatever stands in the hooks of a head, each text with the line of those hooks."""
    fields = Fields(read_head(text), "")
    line = fields.line("hooks") or 1
    return [(line, said) for said in _texts(fields.value("hooks"))]


def _texts(value: object) -> Iterator[str]:
    match value:
        case str(text):
            yield text
        case dict():
            for each in cast("dict[str, object]", value).values():
                yield from _texts(each)
        case list():
            for each in cast("list[object]", value):
                yield from _texts(each)
        case _:
            pass


def steering_file(path: str) -> Found | None:
    name = PurePosixPath(path).name.lower()
    if name not in _STEERING:
        return None
    why = f"A file that {_STEERING[name]}."
    return Found("brings-settings", "permissions", "caution", None, name, why)


def _judged(tool: str) -> tuple[str, Severity, str]:
    if _WHOLE_SHELL.fullmatch(tool):
        return "any-command", "caution", "Trusted, it may run any command and nobody is asked."
    if _AS_GOOD_AS.match(tool):
        return "any-command", "caution", "Such a command can run any other, and nobody is asked."
    return "allowed-tool", "note", "Trusted, it may use this and nobody is asked."
