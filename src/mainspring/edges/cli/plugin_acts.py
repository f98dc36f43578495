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
from mainspring.edges.cli.printing import Screen, plural
from mainspring.edges.cli.skill_report import Consent, confirm, print_report, require_consent
from mainspring.runtime.agent_folder import plugin_installation
from mainspring.runtime.agent_folder.plugin import Plugin
from mainspring.runtime.agent_folder.plugin_installation import PluginCandidate, PluginContents
from mainspring.runtime.agent_folder.plugins import installed_plugins
from mainspring.runtime.definition_files.scopes import Scope
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.installer import staging_folder
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPins, TrustStatus

_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInstallOptions:
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
    standing: TrustStatus
    """Whether somebody has vouched for it as it is."""
    skills: Sequence[str]
    agents: Sequence[str]
    commands: Sequence[str]
    hooks: int
    mcp_servers: Sequence[str]
    findings: Sequence[str]


async def install(
    settings: Settings,
    *,
    source: str,
    chosen: str | None,
    plugin_install_options: PluginInstallOptions,
) -> int:
    home = Path(settings.home)
    scope: Scope = "project" if plugin_install_options.project else "user"
    place = plugin_installation.place_of(Path(settings.folder), home, scope)
    notes = Screen(settings, stderr=True)
    with staging_folder(place, now=now()) as made:
        staging = Path(made)
        candidate = await to_thread.run_sync(
            lambda: plugin_installation.fetch(source, staging, name=chosen)
        )
        installer.check_not_installed(
            place, candidate.plugin.name, replaces=plugin_install_options.replace
        )
        _print_candidate(notes, candidate)
        question = f"Install {candidate.plugin.name}, and trust it as it is?"
        if not require_consent(
            settings, candidate.package.scan_report, plugin_install_options.consent, question
        ):
            return 1
        root = await to_thread.run_sync(
            lambda: installer.install(
                candidate.package, staging, place, replaces=plugin_install_options.replace
            )
        )
        plugin = plugin_installation.read_installed(root, scope)
        pins = TrustPins(home / PINS_FILE)
        installer.trust(candidate.package, root, pins, now())
    screen = Screen(settings)
    if plugin_install_options.json:
        screen.json(msgspec.json.encode(await _plugin_view(plugin, pins)))
    else:
        screen.line(("installed ", "green"), (plugin.name, "bold"), (f" in {plugin.shown}", "dim"))
    return 0


async def ls(settings: Settings, *, json: bool) -> int:
    found = await to_thread.run_sync(installed_plugins, Path(settings.folder), Path(settings.home))
    pins = TrustPins(Path(settings.home) / PINS_FILE)
    views = [await _plugin_view(plugin, pins) for plugin in found.plugins]
    screen = Screen(settings)
    if json:
        for view in views:
            screen.json(msgspec.json.encode(view))
        return 0
    if not views:
        Screen(settings, stderr=True).paragraph(("no plugin is installed", "dim"))
        return 0
    screen.table(
        ["NAME", "VERSION", "SCOPE", "TRUST", "BRINGS", "ODD"],
        [
            [
                (view.name, "bold"),
                (view.version or "", ""),
                (view.scope, ""),
                (view.standing, "" if view.standing == "trusted" else "yellow"),
                (_contents_text(view), "dim"),
                (str(len(view.findings) or ""), "yellow"),
            ]
            for view in views
        ],
    )
    return 0


async def show(settings: Settings, *, name: str, project: bool, json: bool) -> int:
    plugin = await _find_plugin(settings, name, project=project)
    pins = TrustPins(Path(settings.home) / PINS_FILE)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(await _plugin_view(plugin, pins)))
        return 0
    brought = await to_thread.run_sync(plugin_installation.plugin_contents, plugin)
    standing = await to_thread.run_sync(pins.status, plugin.root)
    _print_header(screen, plugin)
    screen.line(("  in ", "dim"), (plugin.shown, ""), (f", {standing}", "dim"))
    _print_contents(screen, brought, is_trusted=standing == "trusted")
    if standing != "trusted":
        how = (
            f"trust it as it is now: mainspring skill scan {shlex.quote(str(plugin.root))} --trust"
        )
        Screen(settings, stderr=True).paragraph((how, "dim"))
    return 0


async def remove(
    settings: Settings, *, name: str, project: bool, is_agreed: bool, json: bool
) -> int:
    plugin = await _find_plugin(settings, name, project=project)
    if not is_agreed and not confirm(settings, f"Delete {plugin.shown}?"):
        return 1
    pins = TrustPins(Path(settings.home) / PINS_FILE)
    with staging_folder(plugin.root.parent, now=now()) as staging:
        parts = plugin_installation.trusted_parts(plugin)
        await to_thread.run_sync(
            lambda: installer.remove(plugin.root, Path(staging), pins, parts=parts)
        )
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode({"removed": name, "scope": plugin.scope}))
    else:
        screen.line(("removed ", ""), (name, "bold"), (f" of the {plugin.scope}", "dim"))
    return 0


async def _find_plugin(settings: Settings, name: str, *, project: bool) -> Plugin:
    folder, home = Path(settings.folder), Path(settings.home)
    scope: Scope | None = "project" if project else None
    return await to_thread.run_sync(
        lambda: plugin_installation.find_plugin(name, folder, home, scope=scope)
    )


async def _plugin_view(plugin: Plugin, trust_pins: TrustPins) -> PluginView:
    brought = await to_thread.run_sync(plugin_installation.plugin_contents, plugin)
    standing = await to_thread.run_sync(trust_pins.status, plugin.root)
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
        findings=[str(finding) for finding in brought.findings if finding.level != "note"],
    )


def _print_candidate(screen: Screen, plugin_candidate: PluginCandidate) -> None:
    """What there is to know before somebody agrees."""
    _print_header(screen, plugin_candidate.plugin)
    at = f" at {plugin_candidate.package.commit[:12]}" if plugin_candidate.package.commit else ""
    screen.line((f"  from {plugin_candidate.package.source}{at}", "dim"))
    _print_contents(screen, plugin_candidate.contents)
    print_report(screen, plugin_candidate.package.scan_report)


def _print_header(screen: Screen, plugin: Plugin) -> None:
    version = f" {plugin.version}" if plugin.version else ""
    description = f": {plugin.description}" if plugin.description else ""
    screen.line((plugin.name, "bold"), (version, ""), (description, "dim"))


def _print_contents(
    screen: Screen, plugin_contents: PluginContents, *, is_trusted: bool = False
) -> None:
    for names, noun in _content_kinds(plugin_contents):
        if names:
            screen.line((f"  {plural(len(names), noun)}  ", ""), (", ".join(names), "dim"))
    if plugin_contents.servers:
        screen.line(("    described, not connected in this version", "dim"))
    if plugin_contents.hooks:
        when = "" if is_trusted else "  once trusted"
        screen.line((f"  {plural(plugin_contents.hooks, 'hook')}", ""), (when, "dim"))
    for finding in plugin_contents.findings:
        screen.line((f"  {finding.level}  ", _STYLES[finding.level]), (str(finding), ""))


def _content_kinds(plugin_contents: PluginContents) -> list[tuple[tuple[str, ...], str]]:
    return [
        (plugin_contents.skills, "skill"),
        (plugin_contents.agents, "agent"),
        (plugin_contents.commands, "command"),
        (plugin_contents.servers, "MCP server"),
    ]


def _contents_text(view: PluginView) -> str:
    counts = {
        "skill": len(view.skills),
        "agent": len(view.agents),
        "command": len(view.commands),
        "hook": view.hooks,
        "MCP server": len(view.mcp_servers),
    }
    return ", ".join(plural(number, noun) for noun, number in counts.items() if number)
