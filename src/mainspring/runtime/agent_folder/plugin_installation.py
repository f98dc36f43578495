"""Plugins that people install: fetched, scanned, installed, trusted and removed."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec

from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound
from mainspring.runtime.agent_folder import marketplace
from mainspring.runtime.agent_folder.plugin import Plugin, plugin_name
from mainspring.runtime.agent_folder.plugins import (
    FOLDER,
    PORTABLE,
    UNSUPPORTED_KEYS,
    VENDOR_MANIFESTS,
    installed_plugins,
    read_plugin,
)
from mainspring.runtime.agent_folder.subagent_files import discover_subagents
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import JsonObject, is_inside
from mainspring.runtime.definition_files.scopes import Scope, Scopes
from mainspring.runtime.packages.atomic_folder import remove_folder, replace_folder
from mainspring.runtime.packages.folder_contents import contents_hash, read_contents
from mainspring.runtime.packages.scan import SEVERITIES, ScanReport, scan
from mainspring.runtime.packages.source_fetching import fetch_source, without_login
from mainspring.runtime.packages.trust_pins import TrustPin, TrustPins
from mainspring.runtime.skills.skill_discovery import discover


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContents:
    """What a plugin adds to an agent, by name, and what of it is odd or broken."""

    skills: tuple[str, ...]
    agents: tuple[str, ...]
    commands: tuple[str, ...]
    hooks: int
    servers: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCandidate:
    """A plugin that is not installed yet, and what there is to know before it is."""

    plugin: Plugin
    contents: PluginContents
    scan_report: ScanReport
    hashes: dict[str, str]
    """Of the whole and of each skill and command, by path: what is vouched for."""
    source: str
    commit: str


def place_of(folder: Path, home: Path, scope: Scope) -> Path:
    """Where the plugins of a scope stand.

    Raises: InvalidInput.
    """
    if scope != "project":
        return home / FOLDER
    if not is_inside(folder / FOLDER, folder):
        raise InvalidInput(f"{folder / FOLDER}: a link that leads out of the project")
    return folder / FOLDER


def fetch(source: str, sandbox_pool: Path, *, name: str | None = None) -> PluginCandidate:
    """Get a plugin, out of a marketplace if it is one, and look into it. Blocks.

    Raises:
        InvalidInput: there is none, it cannot be had, it may not be used, or it leads elsewhere.
        TooLarge.
    """
    found = fetch_source(source, sandbox_pool / "fetched")
    root, commit = found.path, found.commit
    is_plugin = any((root / file).is_file() for file in (PORTABLE, *VENDOR_MANIFESTS))
    if (name is not None or not is_plugin) and marketplace.read_offers(root):
        offer = marketplace.find_offer(root, name)
        if offer.url:
            more = fetch_source(offer.url, sandbox_pool / "offered")
            root, commit = more.path, more.commit
        root = marketplace.offer_folder(root, offer)
        _write_manifest(root, offer.name, offer.manifest)
    elif name is not None:
        raise InvalidInput(
            f"{without_login(source)}: no marketplace, so there is no {name} to choose"
        )
    elif not is_plugin:
        last = Path(source.partition("#")[0]).resolve().name.removesuffix(".git")
        root = root.rename(root.with_name(plugin_name(last)))  # what it is called by
    return _candidate(root, source=without_login(source), commit=commit)


def check_free(place: Path, name: str, *, replaces: bool) -> None:
    """Raises: AlreadyThere."""
    if not replaces and os.path.lexists(place / name):
        taken = AlreadyExists(f"{name} is installed already")
        taken.add_note("--replace puts this one in its place")
        raise taken


def install(
    plugin_candidate: PluginCandidate,
    sandbox_pool: Path,
    place: Path,
    scope: Scope,
    *,
    replaces: bool = False,
) -> Plugin:
    """Put a plugin in its place, whole or not at all. Blocks.

    Raises:
        AlreadyThere: there is one of that name, and it is not to be replaced.
        InvalidInput: it cannot be written.
    """
    name = plugin_candidate.plugin.name
    check_free(place, name, replaces=replaces)
    replace_folder(plugin_candidate.plugin.root, place / name, sandbox_pool)
    shown = f"{'~/' if scope == 'user' else ''}{FOLDER}/{name}"
    return read_plugin(place / name, scope, shown=shown)


def trust(
    plugin_candidate: PluginCandidate, kept: Plugin, trust_pins: TrustPins, when: datetime
) -> None:
    """Trust a plugin's skills, commands and hooks as they were when they were looked into.

    Raises: InvalidInput.
    """
    for path, digest in plugin_candidate.hashes.items():
        pin = TrustPin(
            hash=digest,
            when=when,
            severity=plugin_candidate.scan_report.severity,
            source=plugin_candidate.source,
            commit=plugin_candidate.commit,
        )
        trust_pins.pin(kept.root / path, pin)


def remove(plugin: Plugin, sandbox_pool: Path, trust_pins: TrustPins) -> None:
    """Take a plugin away, and the trust in it; what it has kept for itself stays. Blocks.

    Raises: InvalidInput.
    """
    for path in _parts(plugin):
        trust_pins.unpin(plugin.root / path)
    remove_folder(plugin.root, sandbox_pool)


def find_plugin(name: str, folder: Path, home: Path, *, scope: Scope | None = None) -> Plugin:
    """An installed plugin, the user's before the project's.

    Raises: NotFound.
    """
    wheres: dict[Scope, tuple[Path, Path | None]] = {
        "user": (home, home),
        "project": (folder, None),
    }
    for each, (base, users) in wheres.items():
        if scope in (None, each):
            for plugin in installed_plugins(base, users).plugins:
                if plugin.name == name and plugin.scope == each:
                    return plugin
    raise NotFound("plugin", name)


def plugin_contents(plugin: Plugin) -> PluginContents:
    """What discovery finds of a plugin once it is installed. Blocks."""
    scopes = Scopes(folder=plugin.root / ".nothing", plugins=plugin.places)
    skills = discover(scopes, is_pinned=lambda _: False)
    agents = discover_subagents(scopes)
    prefix = f"{plugin.name}:"
    odd = [*plugin.findings, *skills.findings, *agents.findings]
    of_plugin = [skill for skill in skills.skills if skill.name.startswith(prefix)]
    return PluginContents(
        skills=tuple(item.name for item in of_plugin if item.kind == "skill"),
        commands=tuple(item.name for item in of_plugin if item.kind == "command"),
        agents=tuple(
            subagent.name for subagent in agents.subagents if subagent.name.startswith(prefix)
        ),
        hooks=sum(hooks.count for hooks in plugin.hooks),
        servers=tuple(server.name for server in plugin.servers),
        findings=tuple(_relative(finding, plugin) for finding in odd),
    )


def _candidate(root: Path, *, source: str, commit: str) -> PluginCandidate:
    plugin = read_plugin(root, "user", shown=".")
    errors = [finding for finding in plugin.findings if finding.level == "error"]
    if plugin.is_rejected:
        raise InvalidInput(f"it cannot be used: {errors[0]}")
    if plugin.is_empty:
        raise InvalidInput(f"{plugin.name}: {_why_empty(plugin, errors)}")
    _check_contents(root)
    parts = [*_parts(plugin)]
    return PluginCandidate(
        plugin=plugin,
        contents=plugin_contents(plugin),
        scan_report=_scan(root, parts),
        hashes={path: contents_hash(read_contents(root / path)) for path in parts},
        source=source,
        commit=commit,
    )


def _why_empty(plugin: Plugin, errors: Sequence[Finding]) -> str:
    if errors:
        return f"nothing in it can be used: {errors[0]}"
    unused = sorted(key for key in plugin.manifest if key in UNSUPPORTED_KEYS)
    if unused:
        return f"it has only {', '.join(unused)}, which Mainspring does not use"
    return "it has no skills, agents, commands, hooks or MCP servers"


def _check_contents(root: Path) -> None:
    """
    Raises:
        InvalidInput: something that leads elsewhere, or is neither a file nor a folder.
        TooLarge.
    """
    for item in read_contents(root):
        if item.is_special:
            raise InvalidInput(f"{item.path}: a pipe, a socket or a device")
        if item.link is None:
            continue
        path = root / item.path
        if os.path.isabs(item.link) or not is_inside(path, root):
            raise InvalidInput(f"{item.path}: a link that leads out of the plugin")


def _parts(plugin: Plugin) -> Iterator[str]:
    """The whole, and what is trusted one by one: each skill and each command."""
    yield "."
    for path in plugin.skills:
        yield path.relative_to(plugin.root).as_posix()
    for place in plugin.commands:
        files = [place] if place.is_file() else sorted(place.rglob("*.md"))
        yield from (file.relative_to(plugin.root).as_posix() for file in files)


def _scan(root: Path, parts: list[str]) -> ScanReport:
    """Skills and commands as what they are, and the rest."""
    whole = scan(root)
    own = [part for part in parts if part != "."]
    inside = tuple(f"{part}/" for part in own)
    hits = [hit for hit in whole.hits if hit.file not in own and not hit.file.startswith(inside)]
    for part in own:
        is_file = (root / part).is_file()
        for hit in scan(root / part).hits:
            file = part if is_file else posixpath.join(part, hit.file)
            hits.append(msgspec.structs.replace(hit, file=file))
    hits.sort(key=lambda hit: (SEVERITIES.index(hit.severity), hit.file, hit.line or 0))
    return msgspec.structs.replace(whole, hits=tuple(hits))


def _write_manifest(root: Path, name: str, said: JsonObject) -> None:
    """A plugin without a manifest is what the marketplace says of it."""
    if any((root / file).exists() for file in (PORTABLE, *VENDOR_MANIFESTS)):
        return
    file = root / next(iter(VENDOR_MANIFESTS))
    if not is_inside(file, root):
        raise InvalidInput(f"{name}: a link that leads out of the plugin")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode({**said, "name": name}), indent=2))


def _relative(finding: Finding, plugin: Plugin) -> Finding:
    root = plugin.root.as_posix()
    return replace(finding, file=finding.file.replace(root, plugin.shown, 1))
