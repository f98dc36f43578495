"""Validates an agent's folder: which parts are supported, what is ignored and why, and what is
wrong. Settings and hooks are reported by their own readers as further parts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mainspring.core.errors import InvalidInput
from mainspring.harness.context.instructions import Section
from mainspring.runtime.agent import Agent
from mainspring.runtime.agent_folder import manifest, plugin_installation
from mainspring.runtime.agent_folder.agent_loader import AgentFolder
from mainspring.runtime.agent_folder.mcp_file import McpServers, inline_servers
from mainspring.runtime.agent_folder.output_styles import output_styles
from mainspring.runtime.agent_folder.plugins import InstalledPlugins, Plugin
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import PartLocation, PartWalk, Scopes
from mainspring.runtime.mcp_server import McpServer
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_discovery import IsPinned, select_manifests
from mainspring.runtime.subagent import Subagent

MAX_INSTRUCTION_CHARS = 40_000  # about 10,000 tokens; longer ones are a finding
_RULE_LINE = re.compile(
    r"^[\s>*+\-\d.)]*(?:\*\*)?"
    r"(?P<verb>always|must|never|do not|don't|must not|avoid|prefer)\b[\s:*]*(?P<rest>.{3,200})$",
    re.IGNORECASE,
)
_NEGATIVE = frozenset(("never", "do not", "don't", "must not", "avoid"))
_NOT_A_WORD = re.compile(r"[^\w/.+#-]+")
_FILLER_WORDS = frozenset(("use", "using", "the", "a", "an", "to", "any", "all", "be"))


def check_instructions(sections: Sequence[Section]) -> Iterator[Finding]:
    first: dict[tuple[frozenset[str], bool], tuple[Section, int]] = {}
    for section in sections:
        if len(section.text) > MAX_INSTRUCTION_CHARS:
            yield Finding(
                level="warning",
                file=section.source,
                what=f"has {len(section.text):,} characters, all of them in every request",
                fix="move rules about certain files into rules with `paths`, or into skills",
            )
        for line, (topic, is_negative) in _instruction_rules(section.text):
            opposite = first.get((topic, not is_negative))
            first.setdefault((topic, is_negative), (section, line))
            if opposite is not None:
                other, other_line = opposite
                yield Finding(
                    level="warning",
                    file=section.source,
                    line=line,
                    what=f"contradicts {other.source}:{other_line}",
                    fix="keep one of the two, or say when each applies",
                )


def _instruction_rules(text: str) -> Iterator[tuple[int, tuple[frozenset[str], bool]]]:
    """Lines such as "Never use tabs": their subject, and whether they forbid it."""
    for number, line in enumerate(text.splitlines(), 1):
        rule = _RULE_LINE.match(line)
        if rule is None:
            continue
        words = frozenset(word.strip(".").lower() for word in _NOT_A_WORD.split(rule["rest"]))
        topic = words - _FILLER_WORDS - {""}
        if topic:
            yield number, (topic, rule["verb"].lower() in _NEGATIVE)


_MAX_LABEL_CHARS = 80  # of a part in the report
_NOT_YET_SUPPORTED = "it is read and kept, but not supported yet"
_FOREIGN = {
    "agent.json": "LangChain's description of an agent; agent.yaml is ours",
    "tools.json": "LangChain's list of tools; agent.yaml has `tools`, .mcp.json has servers",
    "root_agent.yaml": "ADK's description of an agent; agent.yaml is ours",
}
_CLAUDE_ENTRIES = frozenset(
    (
        *("agents", "skills", "commands", "rules", "CLAUDE.md"),
        *("settings.json", "settings.local.json", "hooks", "output-styles"),
        *("agent-memory", "agent-memory-local"),
    )
)
_UNSUPPORTED_CLAUDE_ENTRIES = {
    "worktrees": "Claude Code's own worktrees",
    "plugins": "plugins are installed with `mainspring plugin install`",
    "workflows": "workflows are not run in this version",
    "scheduled_tasks.json": _NOT_YET_SUPPORTED,
}
_UNKNOWN = "nothing reads it"
SERVERS_PART = "MCP servers"
SUBAGENTS_PART = "subagents"
_UNTRUSTED = "not trusted in its current state; `mainspring skill scan {} --trust` trusts it"


@dataclass(frozen=True, slots=True)
class IgnoredItem:
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    name: str
    supported: tuple[str, ...] = ()
    ignored: tuple[IgnoredItem, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.supported or self.ignored or self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReport:
    parts: tuple[PartReport, ...]

    @property
    def problems(self) -> list[Finding]:
        """Errors first, then warnings; notes are not problems."""
        findings = [finding for part in self.parts for finding in part.findings]
        return [*_with_level(findings, "error"), *_with_level(findings, "warning")]

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.problems)

    @property
    def warnings(self) -> int:
        return len(self.problems) - self.errors


PLANNED = "schedule, outcome, slo and grade"


def check_folder(
    folder: Path,
    loaded: AgentFolder,
    *,
    plugins: InstalledPlugins,
    servers: McpServers,
    is_pinned: IsPinned,
) -> list[PartReport]:
    """All parts except permissions and hooks."""
    skills = [skill for skill in loaded.agent.skills if skill.kind == "skill"]
    commands = [skill for skill in loaded.agent.skills if skill.kind == "command"]
    of_commands = [item for item in loaded.findings_by_source["skills"] if "commands/" in item.file]
    of_skills = [item for item in loaded.findings_by_source["skills"] if item not in of_commands]
    return [
        _manifest(folder, loaded),
        _instructions(loaded),
        _skills("skills", skills, of_skills),
        _skills("commands", commands, of_commands),
        _subagents(loaded, plugins),
        _styles(folder),
        _servers(servers),
        _plugins(plugins, loaded.agent, is_pinned),
        _service_only(loaded.agent_manifest),
        _marketplace(folder, skills),
        PartReport(name="other files", ignored=tuple(_unread_files(folder))),
    ]


def _with_level(findings: Iterable[Finding], level: str) -> list[Finding]:
    return [finding for finding in findings if finding.level == level]


def _manifest(folder: Path, loaded: AgentFolder) -> PartReport:
    agent, settings = loaded.agent, loaded.agent_manifest
    supported: list[str] = []
    if (folder / manifest.FILE).is_file():
        model = settings.model or "any available"
        tools = "all" if "*" in settings.tools else ", ".join(settings.tools) or "none"
        supported = [f"name {agent.name}", f"model {model}", f"tools {tools}"]
        supported += [f"{len(settings.rules)} rules that always apply"] if settings.rules else []
        names = [name for check in settings.checks for name in check.names]
        supported += [f"checks of its answer: {', '.join(names)}"] if names else []
        evidence = ", ".join(settings.require_evidence)
        supported += [f"evidence that it needs: {evidence}"] if evidence else []
        supported += [f"reads {', '.join(settings.resources)}"] if settings.resources else []
        supported += ["its own input as a tool"] if settings.input_schema else []
        supported += _memory_words(settings.memory)
        supported += ["it only coordinates subagents"] if settings.is_coordinator else []
    return PartReport(
        name="agent", supported=tuple(supported), findings=loaded.findings_by_source["manifest"]
    )


def _memory_words(memory: manifest.ManifestMemory) -> list[str]:
    learning = memory.learning
    by_model = f"a model learns, for at most ${learning.max_usd} a session"
    learns = {"rules": [], "off": ["it does not learn by itself"], "model": [by_model]}
    return [*([f"memory {memory.mode}"] if memory.mode != "on" else []), *learns[learning.by]]


def _instructions(loaded: AgentFolder) -> PartReport:
    instructions = loaded.instructions.instructions
    sections = [f"{section.source} ({section.scope})" for section in instructions.sections]
    rules = [f"{item.source}: for {', '.join(item.globs)}" for item in instructions.scoped]
    return PartReport(
        name="instructions",
        supported=(*dict.fromkeys((*sections, *rules)),),
        findings=(
            *loaded.findings_by_source["instructions"],
            *check_instructions(instructions.sections),
        ),
    )


def _skills(name: str, skills: Iterable[Skill], findings: Iterable[Finding]) -> PartReport:
    items = list(skills)
    return PartReport(
        name=name,
        supported=tuple(_label(item.name, item.description) for item in items),
        ignored=tuple(ignored for item in items for ignored in _untrusted_fields(item)),
        findings=tuple(findings),
    )


def _untrusted_fields(skill: Skill) -> Iterator[IgnoredItem]:
    powers = {"allowed-tools": skill.allowed_tools, "hooks": skill.hooks}
    for name, value in powers.items():
        if value and not skill.is_trusted:
            yield IgnoredItem(f"{skill.name}: {name}", _UNTRUSTED.format(skill.name))


def _subagents(loaded: AgentFolder, plugins: InstalledPlugins) -> PartReport:
    callable_ = [subagent for subagent in loaded.agent.subagents if subagent.file]
    built_in = [subagent.name for subagent in loaded.agent.subagents if not subagent.file]
    built_in_line = (f"built in: {', '.join(built_in)}",) if built_in else ()
    return PartReport(
        name=SUBAGENTS_PART,
        supported=(*(_label(item.name, item.description) for item in callable_), *built_in_line),
        ignored=tuple(
            ignored for item in callable_ for ignored in _unsupported_fields(item, plugins)
        ),
        findings=loaded.findings_by_source["subagents"],
    )


def _unsupported_fields(subagent: Subagent, plugins: InstalledPlugins) -> Iterator[IgnoredItem]:
    is_plugins = any(Path(subagent.file).is_relative_to(plugin.root) for plugin in plugins.plugins)
    tables = [
        cast("dict[str, object]", item) for item in subagent.mcp_servers if isinstance(item, dict)
    ]
    for item in tables if not is_plugins else ():
        mcp_servers = inline_servers(item, subagent.file)
        yield from (
            IgnoredItem(f"{subagent.name}: mcpServers", finding.what)
            for finding in mcp_servers.findings
            if finding.level == "error"
        )
    if tables and is_plugins:
        yield IgnoredItem(f"{subagent.name}: mcpServers", "a plugin's servers belong in .mcp.json")
    if subagent.hooks and is_plugins:
        yield IgnoredItem(
            f"{subagent.name}: hooks", "hooks of a plugin belong in its hooks/hooks.json"
        )


def _styles(folder: Path) -> PartReport:
    styles = (style for style in output_styles(Scopes(folder=folder)) if style.file)
    names = tuple(_label(style.name, style.description) for style in styles)
    return PartReport(name="output styles", supported=names)


def _servers(servers: McpServers) -> PartReport:
    return PartReport(
        name=SERVERS_PART,
        supported=tuple(
            server_label(item) for item in servers.servers if item.unused_reason is None
        ),
        ignored=tuple(
            IgnoredItem(server_label(item), item.unused_reason)
            for item in servers.servers
            if item.unused_reason is not None
        ),
        findings=tuple(finding for finding in servers.findings if finding.level != "note"),
    )


def server_label(server: McpServer) -> str:
    """Without arguments, headers and addresses, which may hold secrets."""
    return f"{server.name} ({server.transport}, {server.file})"


def _plugins(installed: InstalledPlugins, agent: Agent, is_pinned: IsPinned) -> PartReport:
    usable = [plugin for plugin in installed.plugins if not plugin.is_rejected]
    idle = [item for item in usable if item.hooks and not is_pinned(item.root)]
    return PartReport(
        name="plugins",
        supported=tuple(_plugin(item, agent) for item in usable),
        ignored=tuple(
            IgnoredItem(f"{item.name}: hooks", _UNTRUSTED.format(item.root)) for item in idle
        ),
        findings=installed.findings,
    )


def _plugin(plugin: Plugin, agent: Agent) -> str:
    """A plugin with the number of its parts that the agent uses."""
    prefix = f"{plugin.name}:"
    kinds = [skill.kind for skill in agent.skills if skill.name.startswith(prefix)]
    counts = {
        "skill": kinds.count("skill"),
        "agent": sum(subagent.name.startswith(prefix) for subagent in agent.subagents),
        "command": kinds.count("command"),
        "hook": sum(hook.count for hook in plugin.hooks),
        "MCP server": len(plugin.servers),
    }
    brings = ", ".join(
        f"{number} {noun}{'s' if number > 1 else ''}" for noun, number in counts.items() if number
    )
    return f"{plugin.name} {plugin.version or ''}".strip() + f": {brings or 'nothing'}"


def _service_only(agent_manifest: manifest.AgentManifest) -> PartReport:
    """Keys that only the service uses, and keys that are not supported yet."""
    supported: tuple[str, ...] = ()
    ignored: tuple[IgnoredItem, ...] = ()
    if agent_manifest.schedule is not None:
        where = "runs in `mainspring serve` from here, once this folder is trusted"
        supported = (
            f"schedule {agent_manifest.schedule.cron} {agent_manifest.schedule.timezone}: {where}",
        )
    if (outcome := agent_manifest.outcome) is not None:
        what = f"outcome {_cut(outcome.description or outcome.rubric)}"
        if outcome.rubric.strip():
            supported = (*supported, f"{what}: new sessions of `mainspring run` are graded")
        else:
            ignored = (IgnoredItem(what, "it has no `rubric` to grade by"),)
    if agent_manifest.slo is not None:
        supported = (*supported, "slo: `mainspring slo` compares it with real sessions")
    if (grade := agent_manifest.grade) is not None:
        what = f"grade {grade.share:.0%} of sessions by evals/{grade.suite}.yaml"
        where = "by `mainspring eval grade`, and in `mainspring serve` once this folder is trusted"
        supported = (*supported, f"{what}: {where}")
    return PartReport(name=PLANNED, supported=supported, ignored=ignored)


def _marketplace(folder: Path, skills: Iterable[Skill]) -> PartReport:
    """The plugins that a folder offers to others: they are not part of the agent."""
    offers: list[str] = []
    findings: list[Finding] = []
    try:
        if plugins := sorted(plugin_installation.read_offers(folder)):
            names = _cut(", ".join(plugins))
            how = "`mainspring plugin install . --plugin NAME`"
            number = "1 plugin" if len(plugins) == 1 else f"{len(plugins)} plugins"
            offers.append(f"a marketplace of {number} ({names}): {how}")
    except InvalidInput as error:
        findings.append(Finding(level="error", file=plugin_installation.FILE, what=str(error)))
    own_files = {os.path.realpath(skill.file) for skill in skills}
    walk = PartWalk(Scopes(folder=folder))
    files = walk.files(PartLocation(folder, "project"), select_manifests)
    # A skill that is linked into several folders counts once.
    if unused := {os.path.realpath(file) for file in files} - own_files:
        how = "`mainspring skill install . --all` installs them, `skill check` looks at them"
        verb = "is" if len(unused) == 1 else "are"
        offers.append(f"{len(unused)} SKILL.md that {verb} not part of this agent: {how}")
    return PartReport(name="offered to others", supported=tuple(offers), findings=tuple(findings))


def _unread_files(folder: Path) -> Iterator[IgnoredItem]:
    for name, reason in _FOREIGN.items():
        if (folder / name).is_file():
            yield IgnoredItem(name, f"not read: {reason}")
    for name in _names(folder / ".claude"):
        if name not in _CLAUDE_ENTRIES:
            yield IgnoredItem(f".claude/{name}", _UNSUPPORTED_CLAUDE_ENTRIES.get(name, _UNKNOWN))


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _label(name: str, description: str) -> str:
    return f"{name}: {_cut(description)}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LABEL_CHARS else f"{line[: _MAX_LABEL_CHARS - 1]}…"
