"""What becomes of each part of an agent's folder: honoured, not honoured and why, or wrong.

Settings and hooks are not ours to read: whoever can, adds a `Part`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mainspring.core.errors import InvalidInput
from mainspring.runtime.agent import Agent
from mainspring.runtime.crew.subagent import Subagent
from mainspring.runtime.folder import manifest, marketplace
from mainspring.runtime.folder.finding import Finding
from mainspring.runtime.folder.instruction_checks import check_instructions
from mainspring.runtime.folder.mcp_file import McpServer, McpServers
from mainspring.runtime.folder.output_style import output_styles
from mainspring.runtime.folder.plugins import Installed, Plugin
from mainspring.runtime.folder.reading import AgentFolder
from mainspring.runtime.folder.scopes import Place, Scopes
from mainspring.runtime.folder.walking import Walk
from mainspring.runtime.skills.discovery import IsPinned, manifests
from mainspring.runtime.skills.skill import Skill

_LONGEST = 80
_LATER = "it is read and kept, and honoured in a later version"
_FOREIGN = {
    "agent.json": "LangChain's description of an agent; agent.yaml is ours",
    "tools.json": "LangChain's list of tools; agent.yaml has `tools`, .mcp.json has servers",
    "root_agent.yaml": "ADK's description of an agent; agent.yaml is ours",
}
_IN_CLAUDE = frozenset(
    (
        *("agents", "skills", "commands", "rules", "CLAUDE.md"),
        *("settings.json", "settings.local.json", "hooks", "output-styles"),
    )
)
_NOT_IN_CLAUDE = {
    "agent-memory": "subagents have no memory of their own",
    "agent-memory-local": "subagents have no memory of their own",
    "worktrees": "Claude Code's own worktrees",
    "plugins": "plugins are installed with `mainspring plugin install`",
    "workflows": "workflows are not run in this version",
    "scheduled_tasks.json": _LATER,
}
_UNKNOWN = "nothing reads it"
_UNTRUSTED = "nobody has vouched for it as it is; `mainspring skill scan {} --trust` does"


@dataclass(frozen=True, slots=True)
class Ignored:
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    name: str
    honoured: tuple[str, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.honoured or self.ignored or self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    parts: tuple[Part, ...]

    @property
    def problems(self) -> list[Finding]:
        """Errors first; what is only good to know is none."""
        every = [finding for part in self.parts for finding in part.findings]
        return [*_of(every, "error"), *_of(every, "warning")]

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.problems)

    @property
    def warnings(self) -> int:
        return len(self.problems) - self.errors


PLANNED = "schedule and outcome"


def check_folder(
    folder: Path,
    found: AgentFolder,
    *,
    plugins: Installed,
    servers: McpServers,
    is_pinned: IsPinned,
) -> list[Part]:
    """All parts but permissions and hooks."""
    skills = [each for each in found.agent.skills if each.kind == "skill"]
    commands = [each for each in found.agent.skills if each.kind == "command"]
    of_commands = [each for each in found.found["skills"] if "commands/" in each.file]
    of_skills = [each for each in found.found["skills"] if each not in of_commands]
    return [
        _manifest(folder, found),
        _instructions(found),
        _skills("skills", skills, of_skills),
        _skills("commands", commands, of_commands),
        _subagents(found, plugins),
        _styles(folder),
        _servers(servers),
        _plugins(plugins, found.agent, is_pinned),
        _planned(found.manifest),
        _offered(folder, skills),
        Part(name="other files", ignored=tuple(_others(folder))),
    ]


def _of(findings: Iterable[Finding], level: str) -> list[Finding]:
    return [finding for finding in findings if finding.level == level]


def _manifest(folder: Path, found: AgentFolder) -> Part:
    agent, said = found.agent, found.manifest
    honoured: list[str] = []
    if (folder / manifest.FILE).is_file():
        model = said.model or "whichever there is"
        tools = "all" if "*" in said.tools else ", ".join(said.tools) or "none"
        honoured = [f"name {agent.name}", f"model {model}", f"tools {tools}"]
        honoured += [f"{len(said.rules)} rules that always hold"] if said.rules else []
        honoured += ["it only coordinates others"] if said.is_coordinator else []
    return Part(name="agent", honoured=tuple(honoured), findings=found.found["manifest"])


def _instructions(found: AgentFolder) -> Part:
    told = found.told.instructions
    sections = [f"{each.source} ({each.scope})" for each in told.sections]
    rules = [f"{each.source}: for {', '.join(each.globs)}" for each in told.scoped]
    return Part(
        name="instructions",
        honoured=(*dict.fromkeys((*sections, *rules)),),
        findings=(*found.found["instructions"], *check_instructions(told.sections)),
    )


def _skills(name: str, skills: Iterable[Skill], findings: Iterable[Finding]) -> Part:
    known = list(skills)
    return Part(
        name=name,
        honoured=tuple(_told(each.name, each.description) for each in known),
        ignored=tuple(ignored for each in known for ignored in _powers(each)),
        findings=tuple(findings),
    )


def _powers(skill: Skill) -> Iterator[Ignored]:
    powers = {"allowed-tools": skill.allowed_tools, "hooks": skill.hooks}
    for name, said in powers.items():
        if said and not skill.is_trusted:
            yield Ignored(f"{skill.name}: {name}", _UNTRUSTED.format(skill.name))


def _subagents(found: AgentFolder, plugins: Installed) -> Part:
    callable_ = [each for each in found.agent.subagents if each.file]
    built_in = [each.name for each in found.agent.subagents if not each.file]
    own = (f"built in: {', '.join(built_in)}",) if built_in else ()
    return Part(
        name="subagents",
        honoured=(*(_told(each.name, each.description) for each in callable_), *own),
        ignored=tuple(ignored for each in callable_ for ignored in _unheard(each, plugins)),
        findings=found.found["subagents"],
    )


def _unheard(subagent: Subagent, plugins: Installed) -> Iterator[Ignored]:
    is_plugins = any(Path(subagent.file).is_relative_to(each.root) for each in plugins.plugins)
    if subagent.memory:
        yield Ignored(f"{subagent.name}: memory", "subagents have no memory of their own")
    if subagent.mcp_servers:
        yield Ignored(f"{subagent.name}: mcpServers", "MCP servers are not connected yet")
    if subagent.hooks and is_plugins:
        yield Ignored(f"{subagent.name}: hooks", "hooks of a plugin stand in its hooks/hooks.json")


def _styles(folder: Path) -> Part:
    styles = [each for each in output_styles(Scopes(folder=folder)) if each.file]
    names = tuple(_told(each.name, each.description) for each in styles)
    return Part(name="output styles", honoured=names)


def _servers(found: McpServers) -> Part:
    why = "it is read; MCP servers are not connected yet"
    return Part(
        name="MCP servers",
        ignored=tuple(Ignored(_server(each), why) for each in found.servers),
        findings=tuple(each for each in found.findings if each.level != "note"),
    )


def _server(server: McpServer) -> str:
    """Without arguments, headers and addresses: they may hold secrets."""
    return f"{server.name} ({server.transport}, {server.file})"


def _plugins(found: Installed, agent: Agent, is_pinned: IsPinned) -> Part:
    used = [each for each in found.plugins if not each.is_rejected]
    idle = [each for each in used if each.hooks and not is_pinned(each.root)]
    return Part(
        name="plugins",
        honoured=tuple(_plugin(each, agent) for each in used),
        ignored=tuple(
            Ignored(f"{each.name}: hooks", _UNTRUSTED.format(each.root)) for each in idle
        ),
        findings=found.findings,
    )


def _plugin(plugin: Plugin, agent: Agent) -> str:
    """With what of it the agent has; what is broken was left out."""
    prefix = f"{plugin.name}:"
    kinds = [each.kind for each in agent.skills if each.name.startswith(prefix)]
    counts = {
        "skill": kinds.count("skill"),
        "agent": sum(each.name.startswith(prefix) for each in agent.subagents),
        "command": kinds.count("command"),
        "hook": sum(each.count for each in plugin.hooks),
        "MCP server": len(plugin.servers),
    }
    brings = ", ".join(
        f"{number} {noun}{'s' if number > 1 else ''}" for noun, number in counts.items() if number
    )
    return f"{plugin.name} {plugin.version or ''}".strip() + f": {brings or 'nothing'}"


def _planned(said: manifest.Manifest) -> Part:
    """What holds in the service only, and what waits for a version that does it."""
    honoured: tuple[str, ...] = ()
    waiting: tuple[Ignored, ...] = ()
    if said.schedule is not None:
        where = "runs in `mainspring serve` from here, once this folder is trusted"
        honoured = (f"schedule {said.schedule.cron} {said.schedule.timezone}: {where}",)
    if said.outcome is not None:
        waiting = (Ignored(f"outcome {_cut(said.outcome.description)}", _LATER),)
    return Part(name=PLANNED, honoured=honoured, ignored=waiting)


def _offered(folder: Path, skills: Iterable[Skill]) -> Part:
    """What a folder has for others to install: it is not part of the agent that stands there."""
    offers: list[str] = []
    findings: list[Finding] = []
    try:
        if plugins := sorted(marketplace.offers(folder)):
            names = _cut(", ".join(plugins))
            how = "`mainspring plugin install . --plugin NAME`"
            number = "1 plugin" if len(plugins) == 1 else f"{len(plugins)} plugins"
            offers.append(f"a marketplace of {number} ({names}): {how}")
    except InvalidInput as error:
        findings.append(Finding(level="error", file=marketplace.FILE, what=str(error)))
    own = {os.path.realpath(skill.file) for skill in skills}
    walk = Walk(Scopes(folder=folder))
    files = walk.files(Place(folder, "project"), manifests)
    # A skill may be linked into several folders: it is one all the same.
    if unused := {os.path.realpath(file) for file in files} - own:
        how = "`mainspring skill install . --all` installs them, `skill check` looks at them"
        verb = "is" if len(unused) == 1 else "are"
        offers.append(f"{len(unused)} SKILL.md that {verb} not part of this agent: {how}")
    return Part(name="offered to others", honoured=tuple(offers), findings=tuple(findings))


def _others(folder: Path) -> Iterator[Ignored]:
    for name, why in _FOREIGN.items():
        if (folder / name).is_file():
            yield Ignored(name, f"not read: {why}")
    for name in _names(folder / ".claude"):
        if name not in _IN_CLAUDE:
            yield Ignored(f".claude/{name}", _NOT_IN_CLAUDE.get(name, _UNKNOWN))


def _names(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _told(name: str, description: str) -> str:
    return f"{name}: {_cut(description)}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
