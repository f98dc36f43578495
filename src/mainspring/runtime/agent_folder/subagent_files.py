"""Reads types of subagents from their files; tolerates mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import cast, get_args

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.model import Effort
from mainspring.harness.permissions.policy import parse_mode
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.frontmatter_fields import (
    Fields,
    Frontmatter,
    first_paragraph,
    read_frontmatter,
    read_text,
)
from mainspring.runtime.definition_files.scopes import (
    PartLocation,
    PartWalk,
    Scopes,
    select_markdown,
)
from mainspring.runtime.subagent import Subagent

_DESCRIPTION_FILE = "agent.json"
_PROMPT_FILE = "AGENTS.md"
_TOOLS_FILE = "tools.json"
_EFFORTS: tuple[Effort, ...] = get_args(Effort)
_MEMORIES = ("user", "project", "local")
_ISOLATIONS = ("worktree", "shared")
MAX_NAME = 64  # characters, as skills have


class SubagentDiscovery(Struct, frozen=True, kw_only=True):
    subagents: tuple[Subagent, ...]
    """By name."""
    findings: tuple[Finding, ...]


def discover_subagents(scopes: Scopes) -> SubagentDiscovery:
    """Search all places in order. Call it in a worker thread."""
    walk = PartWalk(scopes)
    by_name: dict[str, Subagent] = {}
    for place in scopes.places("agents"):
        for file in walk.files(place, _definitions):
            subagent, findings = read_subagent(file, place, scopes.display_path(file))
            walk.findings += findings
            if subagent is not None and subagent.name in by_name:
                walk.shadowed(file, subagent.name, by_name[subagent.name].file)
            elif subagent is not None:
                by_name[subagent.name] = subagent
    subagents = tuple(by_name[name] for name in sorted(by_name))
    return SubagentDiscovery(subagents=subagents, findings=tuple(walk.findings))


def read_subagent(
    file: Path, place: PartLocation, display_path: str
) -> tuple[Subagent | None, list[Finding]]:
    """Read a Markdown file in Claude Code's format, or the `agent.json` of a LangChain deep
    agent."""
    text = read_text(file, display_path)
    if isinstance(text, Finding):
        return None, [text]
    try:
        head = _of_folder(file, text) if file.name == _DESCRIPTION_FILE else read_frontmatter(text)
    except InvalidInput as error:
        return None, [Finding(level="error", file=display_path, what=f"{error}: skipped")]
    fields = Fields(head, display_path)
    if not head.is_there:
        fields.warn("has no readable frontmatter, so it is not a subagent: skipped")
        return None, fields.findings
    if file.name == _DESCRIPTION_FILE and file.with_name(_TOOLS_FILE).exists():
        fields.note(
            f"{_TOOLS_FILE} in its folder has no effect: `tools` lists the tools it may use"
        )
    return _subagent(fields, file, place), fields.findings


def _definitions(names: Sequence[str], depth: int) -> tuple[Sequence[str], bool]:
    if depth > 0 and _DESCRIPTION_FILE in names:
        return [_DESCRIPTION_FILE], False
    return select_markdown(names, depth)


def _of_folder(file: Path, text: str) -> Frontmatter:
    """Raises: InvalidInput."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"not a JSON object: {error}") from error
    prompt = read_text(file.with_name(_PROMPT_FILE), _PROMPT_FILE)
    if isinstance(prompt, Finding) or file.with_name(_PROMPT_FILE).is_symlink():
        raise InvalidInput(f"there is no readable {_PROMPT_FILE} in its folder")
    return Frontmatter(body=prompt, fields={"name": file.parent.name, **fields}, is_there=True)


def _subagent(fields: Fields, file: Path, place: PartLocation) -> Subagent:
    model = fields.text("model")
    return Subagent(
        name=_name(fields, file, place),
        description=_description(fields),
        prompt=fields.frontmatter.body.strip(),
        tools=_tools(fields),
        disallowed_tools=_renamed(fields.words("disallowedTools") or ()),
        model=None if model in ("", "inherit") else model,
        effort=fields.choice("effort", _EFFORTS),
        permission_mode=_mode(fields),
        max_turns=fields.count("maxTurns"),
        max_cost_usd=_cost(fields),
        skills=fields.words("skills") or (),
        mcp_servers=read_servers(fields),
        hooks=fields.mapping("hooks"),
        memory=fields.choice("memory", _MEMORIES),
        is_background=fields.flag("background"),
        isolation="worktree" if fields.choice("isolation", _ISOLATIONS) == "worktree" else "shared",
        initial_prompt=fields.text("initialPrompt"),
        color=fields.text("color") or None,
        scope=place.scope,
        file=str(file),
        extra=fields.extra(),
    )


def _name(fields: Fields, file: Path, place: PartLocation) -> str:
    name = " ".join(fields.text("name").split())[:MAX_NAME]
    if not name:
        fields.warn(f"has no name: named {file.stem}, as its file", fix="give it a `name`")
    elif ":" in name:
        fields.warn(f"the name {name} has a colon, which is for plugins", "name", "use a hyphen")
    name = name or file.stem
    return name if place.plugin is None else f"{place.plugin}:{name}"


def _description(fields: Fields) -> str:
    description = fields.text("description")
    if not description:
        what = "has no description, so agents do not know when to call it: its first lines are used"
        fields.warn(what, fix="say when to call it")
    return description or first_paragraph(fields.frontmatter.body)


def _tools(fields: Fields) -> tuple[str, ...] | None:
    """Some files write `allowedTools`; `*` means all tools of the parent."""
    key = "allowedTools" if fields.value("tools") is None else "tools"
    names = fields.words(key)
    if names is None and fields.value(key) is not None:
        fields.warn("it gets no tools, because the list is not valid", key)
        return ()
    return None if names is None or "*" in names else _renamed(names)


def _renamed(tools: Sequence[str]) -> tuple[str, ...]:
    """`Task` is the old name of `Agent`."""
    return tuple(
        f"Agent{tool[4:]}" if tool == "Task" or tool.startswith("Task(") else tool for tool in tools
    )


def _mode(fields: Fields) -> str | None:
    mode = fields.text("permissionMode")
    try:
        return parse_mode(mode) if mode else None
    except InvalidInput as error:
        return fields.wrong("permissionMode", f"is wrong: {error}", None)


def _cost(fields: Fields) -> str | None:
    amount = fields.text("maxCostUsd")
    try:
        is_valid = not amount or (Decimal(amount).is_finite() and Decimal(amount) > 0)
    except InvalidOperation:
        is_valid = False
    if is_valid:
        return amount or None
    return fields.wrong("maxCostUsd", "must be an amount above 0", None)


def read_servers(fields: Fields) -> tuple[object, ...]:
    """A list of names and inline servers or, as in `.mcp.json`, servers by name."""
    value = fields.value("mcpServers")
    if isinstance(value, list):
        return tuple(cast("list[object]", value))
    if isinstance(value, dict):
        servers = cast("dict[str, object]", value)
        return tuple({name: server} for name, server in servers.items())
    return fields.words("mcpServers") or ()
