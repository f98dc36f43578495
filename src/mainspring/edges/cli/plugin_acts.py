"""What `mainspring plugin` does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.clock import now
from mainspring.edges.cli.render import Screen, counted
from mainspring.edges.cli.skill_report import Consent, agreed, print_report, require_consent
from mainspring.runtime.folder import plugin_keeping
from mainspring.runtime.folder.plugin import Plugin
from mainspring.runtime.folder.plugin_keeping import Brought, Candidate
from mainspring.runtime.folder.plugins import installed
from mainspring.runtime.folder.scopes import Scope
from mainspring.runtime.folder.workbench import workbench
from mainspring.runtime.skills.pins import PINS_FILE, Pins, Standing

_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    project: bool
    replace: bool
    consent: Consent
    json: bool


class PluginView(Struct, frozen=True, kw_only=True):
    name: str
    version: str | None
    description: str
    kind: str
    scope: Scope
    place: str
    standing: Standing
    """Whether somebody has vouched for it as it is."""
    skills: Sequence[str]
    agents: Sequence[str]
    commands: Sequence[str]
    hooks: int
    mcp_servers: Sequence[str]
    findings: Sequence[str]


async def install(settings: Settings, *, source: str, chosen: str | None, how: How) -> int:
    home = Path(settings.home)
    scope: Scope = "project" if how.project else "user"
    place = plugin_keeping.place_of(Path(settings.folder), home, scope)
    notes = Screen(settings, stderr=True)
    with workbench(place, now=now()) as made:
        bench = Path(made)
        candidate = await to_thread.run_sync(
            lambda: plugin_keeping.fetch(source, bench, name=chosen)
        )
        plugin_keeping.check_free(place, candidate.plugin.name, replaces=how.replace)
        _explain(notes, candidate)
        question = f"Install {candidate.plugin.name}, and trust it as it is?"
        if not require_consent(settings, candidate.report, how.consent, question):
            return 1
        kept = await to_thread.run_sync(
            lambda: plugin_keeping.keep(candidate, bench, place, scope, replaces=how.replace)
        )
        pins = Pins(home / PINS_FILE)
        plugin_keeping.vouch(candidate, kept, pins, now())
    screen = Screen(settings)
    if how.json:
        screen.json(msgspec.json.encode(await _view(kept, pins)))
    else:
        screen.line(("installed ", "green"), (kept.name, "bold"), (f" in {kept.shown}", "dim"))
    return 0


async def ls(settings: Settings, *, json: bool) -> int:
    found = await to_thread.run_sync(installed, Path(settings.folder), Path(settings.home))
    pins = Pins(Path(settings.home) / PINS_FILE)
    views = [await _view(plugin, pins) for plugin in found.plugins]
    screen = Screen(settings)
    if json:
        for view in views:
            screen.json(msgspec.json.encode(view))
        return 0
    if not views:
        Screen(settings, stderr=True).whole(("no plugin is installed", "dim"))
        return 0
    screen.table(
        ["NAME", "VERSION", "SCOPE", "TRUST", "BRINGS", "ODD"],
        [
            [
                (view.name, "bold"),
                (view.version or "", ""),
                (view.scope, ""),
                (view.standing, "" if view.standing == "trusted" else "yellow"),
                (_brings(view), "dim"),
                (str(len(view.findings) or ""), "yellow"),
            ]
            for view in views
        ],
    )
    return 0


async def show(settings: Settings, *, name: str, project: bool, json: bool) -> int:
    plugin = await _found(settings, name, project=project)
    pins = Pins(Path(settings.home) / PINS_FILE)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(await _view(plugin, pins)))
        return 0
    brought = await to_thread.run_sync(plugin_keeping.brought, plugin)
    standing = await to_thread.run_sync(pins.standing, plugin.root)
    _introduce(screen, plugin)
    screen.line(("  in ", "dim"), (plugin.shown, ""), (f", {standing}", "dim"))
    _list(screen, brought, is_trusted=standing == "trusted")
    if standing != "trusted":
        how = (
            f"trust it as it is now: mainspring skill scan {shlex.quote(str(plugin.root))} --trust"
        )
        Screen(settings, stderr=True).whole((how, "dim"))
    return 0


async def remove(
    settings: Settings, *, name: str, project: bool, is_agreed: bool, json: bool
) -> int:
    plugin = await _found(settings, name, project=project)
    if not is_agreed and not agreed(settings, f"Delete {plugin.shown}?"):
        return 1
    pins = Pins(Path(settings.home) / PINS_FILE)
    with workbench(plugin.root.parent, now=now()) as bench:
        await to_thread.run_sync(plugin_keeping.remove, plugin, Path(bench), pins)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"removed": name, "scope": plugin.scope}))
    else:
        screen.line(("removed ", ""), (name, "bold"), (f" of the {plugin.scope}", "dim"))
    return 0


async def _found(settings: Settings, name: str, *, project: bool) -> Plugin:
    folder, home = Path(settings.folder), Path(settings.home)
    scope: Scope | None = "project" if project else None
    return await to_thread.run_sync(lambda: plugin_keeping.found(name, folder, home, scope=scope))


async def _view(plugin: Plugin, pins: Pins) -> PluginView:
    brought = await to_thread.run_sync(plugin_keeping.brought, plugin)
    standing = await to_thread.run_sync(pins.standing, plugin.root)
    return PluginView(
        name=plugin.name,
        version=plugin.version,
        description=plugin.description,
        kind=plugin.kind,
        scope=plugin.scope,
        place=plugin.shown,
        standing=standing,
        skills=brought.skills,
        agents=brought.agents,
        commands=brought.commands,
        hooks=brought.hooks,
        mcp_servers=brought.servers,
        findings=[str(each) for each in brought.findings if each.level != "note"],
    )


def _explain(screen: Screen, candidate: Candidate) -> None:
    """What there is to know before somebody agrees."""
    _introduce(screen, candidate.plugin)
    at = f" at {candidate.commit[:12]}" if candidate.commit else ""
    screen.line((f"  from {candidate.source}{at}", "dim"))
    _list(screen, candidate.brought)
    print_report(screen, candidate.report)


def _introduce(screen: Screen, plugin: Plugin) -> None:
    version = f" {plugin.version}" if plugin.version else ""
    description = f": {plugin.description}" if plugin.description else ""
    screen.line((plugin.name, "bold"), (version, ""), (description, "dim"))


def _list(screen: Screen, brought: Brought, *, is_trusted: bool = False) -> None:
    for names, noun in _nouns(brought):
        if names:
            screen.line((f"  {counted(len(names), noun)}  ", ""), (", ".join(names), "dim"))
    if brought.servers:
        screen.line(("    described, not connected in this version", "dim"))
    if brought.hooks:
        when = "" if is_trusted else "  once trusted"
        screen.line((f"  {counted(brought.hooks, 'hook')}", ""), (when, "dim"))
    for finding in brought.findings:
        screen.line((f"  {finding.level}  ", _STYLES[finding.level]), (str(finding), ""))


def _nouns(brought: Brought) -> list[tuple[tuple[str, ...], str]]:
    return [
        (brought.skills, "skill"),
        (brought.agents, "agent"),
        (brought.commands, "command"),
        (brought.servers, "MCP server"),
    ]


def _brings(view: PluginView) -> str:
    counts = {
        "skill": len(view.skills),
        "agent": len(view.agents),
        "command": len(view.commands),
        "hook": view.hooks,
        "MCP server": len(view.mcp_servers),
    }
    return ", ".join(counted(number, noun) for noun, number in counts.items() if number)
