"""`mainspring plugin`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.clock import now
from mainspring.edges.cli.agent_files.skill_report import Consent, print_report, require_consent
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, YesOption
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    confirm,
    plural,
    print_list,
    print_note,
    print_result,
)
from mainspring.runtime.agent_folder import plugin_installation
from mainspring.runtime.agent_folder.plugin import Plugin
from mainspring.runtime.agent_folder.plugin_installation import PluginCandidate, PluginContents
from mainspring.runtime.agent_folder.plugins import installed_plugins
from mainspring.runtime.definition_files.scopes import Scope
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.installer import staging_folder
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPins, TrustStatus

app = command_group()

PluginName = Annotated[
    str, typer.Argument(metavar="NAME", help="The plugin's name, as `plugin ls` lists it.")
]
ProjectOption = Annotated[
    bool,
    typer.Option("--project", help="Use the project's .mainspring/plugins, not the user's."),
]

_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}


class PluginView(Struct, frozen=True, kw_only=True):
    name: str
    version: str | None
    description: str
    kind: str
    scope: Scope
    place: str
    standing: TrustStatus
    """Whether its current files are trusted."""
    skills: Sequence[str]
    agents: Sequence[str]
    commands: Sequence[str]
    hooks: int
    mcp_servers: Sequence[str]
    findings: Sequence[str]


@command(app)
async def install(  # parameters: the options of the command
    settings: Settings,
    *,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, or a git repository as URL or URL#REF; a plugin or a marketplace.",
        ),
    ],
    plugin: Annotated[
        str | None,
        typer.Option(
            "--plugin", metavar="NAME", help="Which plugin, if the marketplace has several."
        ),
    ] = None,
    project: ProjectOption = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the plugin of the same name.")
    ] = False,
    consent: Consent,
    json: JsonOption = False,
) -> int:
    """Scan, install and trust a plugin. Shows its contents and what is suspicious, and asks first.
    A scan cannot prove that a plugin is safe."""
    home = Path(settings.home)
    scope: Scope = "project" if project else "user"
    place = plugin_installation.place_of(Path(settings.folder), home, scope)
    with staging_folder(place, now=now()) as folder:
        staging = Path(folder)
        candidate = await to_thread.run_sync(
            lambda: plugin_installation.fetch(source, staging, name=plugin)
        )
        installer.check_not_installed(place, candidate.plugin.name, replaces=replace)
        _print_candidate(Screen(settings, stderr=True), candidate)
        question = f"Install {candidate.plugin.name}, and trust its current files?"
        if not require_consent(settings, candidate.package.scan_report, consent, question):
            return 1
        root = await to_thread.run_sync(
            lambda: installer.install(candidate.package, staging, place, replaces=replace)
        )
        installed = plugin_installation.read_installed(root, scope)
        pins = TrustPins(home / PINS_FILE)
        installer.trust(candidate.package, root, pins, now())
    view = await _plugin_view(installed, pins)
    where = (f" in {installed.display_path}", "dim")
    return print_result(
        settings, view, ("installed ", "green"), (installed.name, "bold"), where, json=json
    )


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List the plugins of the user and of this project."""
    installed = await to_thread.run_sync(
        installed_plugins, Path(settings.folder), Path(settings.home)
    )
    pins = TrustPins(Path(settings.home) / PINS_FILE)
    return print_list(
        settings,
        [await _plugin_view(plugin, pins) for plugin in installed.plugins],
        json=json,
        heads=["NAME", "VERSION", "SCOPE", "TRUST", "CONTAINS", "FINDINGS"],
        row=_plugin_row,
        empty="no plugin is installed",
    )


def _plugin_row(view: PluginView) -> list[StyledText]:
    return [
        (view.name, "bold"),
        (view.version or "", ""),
        (view.scope, ""),
        (view.standing, "" if view.standing == "trusted" else "yellow"),
        (_contents_text(view), "dim"),
        (str(len(view.findings) or ""), "yellow"),
    ]


@command(app)
async def show(
    settings: Settings,
    *,
    name: PluginName,
    project: ProjectOption = False,
    json: JsonOption = False,
) -> int:
    """Show the contents of a plugin. Also shows whether it is trusted, and what is suspicious."""
    plugin = await _find_plugin(settings, name, project=project)
    pins = TrustPins(Path(settings.home) / PINS_FILE)
    screen = Screen(settings)
    if json:
        screen.json(await _plugin_view(plugin, pins))
        return 0
    contents = await to_thread.run_sync(plugin_installation.plugin_contents, plugin)
    trust = await to_thread.run_sync(pins.status, plugin.root)
    _print_header(screen, plugin)
    screen.line(("  in ", "dim"), (plugin.display_path, ""), (f", {trust}", "dim"))
    _print_contents(screen, contents, is_trusted=trust == "trusted")
    if trust != "trusted":
        root = shlex.quote(str(plugin.root))
        print_note(settings, f"to trust its current files: mainspring skill scan {root} --trust")
    return 0


@command(app)
async def remove(
    settings: Settings,
    *,
    name: PluginName,
    project: ProjectOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Delete an installed plugin, and revoke its trust."""
    plugin = await _find_plugin(settings, name, project=project)
    if not yes and not confirm(settings, f"Delete {plugin.display_path}?"):
        return 1
    pins = TrustPins(Path(settings.home) / PINS_FILE)
    with staging_folder(plugin.root.parent, now=now()) as staging:
        parts = plugin_installation.trusted_parts(plugin)
        await to_thread.run_sync(
            lambda: installer.remove(plugin.root, Path(staging), pins, parts=parts)
        )
    view = {"removed": name, "scope": plugin.scope}
    scope = (f" of the {plugin.scope}", "dim")
    return print_result(settings, view, ("removed ", ""), (name, "bold"), scope, json=json)


async def _find_plugin(settings: Settings, name: str, *, project: bool) -> Plugin:
    folder, home = Path(settings.folder), Path(settings.home)
    scope: Scope | None = "project" if project else None
    return await to_thread.run_sync(
        lambda: plugin_installation.find_plugin(name, folder, home, scope=scope)
    )


async def _plugin_view(plugin: Plugin, pins: TrustPins) -> PluginView:
    contents = await to_thread.run_sync(plugin_installation.plugin_contents, plugin)
    standing = await to_thread.run_sync(pins.status, plugin.root)
    return PluginView(
        name=plugin.name,
        version=plugin.version,
        description=plugin.description,
        kind=plugin.kind,
        scope=plugin.scope,
        place=plugin.display_path,
        standing=standing,
        skills=contents.skills,
        agents=contents.agents,
        commands=contents.commands,
        hooks=contents.hooks,
        mcp_servers=contents.servers,
        findings=[str(finding) for finding in contents.findings if finding.level != "note"],
    )


def _print_candidate(screen: Screen, candidate: PluginCandidate) -> None:
    """Print the information that the user needs to decide."""
    _print_header(screen, candidate.plugin)
    at = f" at {candidate.package.commit[:12]}" if candidate.package.commit else ""
    screen.line((f"  from {candidate.package.source}{at}", "dim"))
    _print_contents(screen, candidate.contents)
    print_report(screen, candidate.package.scan_report)


def _print_header(screen: Screen, plugin: Plugin) -> None:
    version = f" {plugin.version}" if plugin.version else ""
    description = f": {plugin.description}" if plugin.description else ""
    screen.line((plugin.name, "bold"), (version, ""), (description, "dim"))


def _print_contents(screen: Screen, contents: PluginContents, *, is_trusted: bool = False) -> None:
    for names, noun in _content_kinds(contents):
        if names:
            screen.line((f"  {plural(len(names), noun)}  ", ""), (", ".join(names), "dim"))
    if contents.hooks:
        when = "" if is_trusted else "  once trusted"
        screen.line((f"  {plural(contents.hooks, 'hook')}", ""), (when, "dim"))
    for finding in contents.findings:
        screen.line((f"  {finding.level}  ", _STYLES[finding.level]), (str(finding), ""))


def _content_kinds(contents: PluginContents) -> list[tuple[tuple[str, ...], str]]:
    return [
        (contents.skills, "skill"),
        (contents.agents, "agent"),
        (contents.commands, "command"),
        (contents.servers, "MCP server"),
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
