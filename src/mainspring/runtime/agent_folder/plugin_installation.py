"""Fetches, checks and scans plugins that people install. `packages.installer` installs them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import msgspec

from mainspring.core.errors import InvalidInput, NotFound
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
from mainspring.runtime.definition_files.json_file import (
    JsonObject,
    as_list,
    as_object,
    is_inside,
    read_object,
)
from mainspring.runtime.definition_files.scopes import Scope, Scopes
from mainspring.runtime.packages.installer import PackageCandidate
from mainspring.runtime.packages.package_contents import contents_hash, read_contents
from mainspring.runtime.packages.scan import SEVERITIES, ScanReport, scan
from mainspring.runtime.packages.source_fetching import REPOSITORY, fetch_source, without_login
from mainspring.runtime.skills.skill_discovery import discover

FILE = ".claude-plugin/marketplace.json"
_CATALOG_KEYS = {"source", "category", "tags"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOffer:
    name: str
    url: str = ""
    """The address of a repository, with `#ref`; empty if the plugin is in the marketplace's own
    folder."""
    path: str = "."
    """The path in the repository or folder."""
    manifest: JsonObject
    """The marketplace's entry: the manifest of a plugin that has none of its own."""


def read_offers(root: Path) -> dict[str, JsonObject]:
    """The entries of a marketplace by name; empty if the folder is not a marketplace.

    Raises: InvalidInput.
    """
    file = read_object(root / FILE, FILE, within=root)
    if isinstance(file, Finding):
        raise InvalidInput(str(file))
    if file is None:
        return {}
    base = (as_object(file.fields.get("metadata")) or {}).get("pluginRoot", ".")
    entries = [as_object(entry) for entry in as_list(file.fields.get("plugins")) or ()]
    return {
        name: {**entry, "pluginRoot": base}
        for entry in entries
        if entry is not None and isinstance(name := entry.get("name"), str)
    }


def find_offer(root: Path, name: str | None) -> PluginOffer:
    """The offer with this name, or the only one.

    Raises: InvalidInput.
    """
    offers = read_offers(root)
    if name is None and len(offers) == 1:
        name = next(iter(offers))
    if name is None or name not in offers:
        what = "no plugin has that name" if name else "it offers several plugins: name one of them"
        names = ", ".join(sorted(offers)[:50]) or "nothing"
        raise InvalidInput(f"{name or FILE}: {what}; it offers {names}")
    entry = dict(offers[name])
    base = entry.pop("pluginRoot")
    source = entry.get("source", f"./{name}")
    manifest = {key: value for key, value in entry.items() if key not in _CATALOG_KEYS}
    url, path = _remote(as_object(source) or {}, name) if as_object(source) else ("", source)
    if not url and isinstance(path, str) and isinstance(base, str) and not path.startswith("."):
        path = f"{base}/{path}"
    if not isinstance(path, str) or not path or ".." in PurePosixPath(path).parts:
        raise InvalidInput(f"{name}: the marketplace does not say where it is")
    return PluginOffer(name=name, url=url, path=path, manifest=manifest)


def offer_folder(root: Path, offer: PluginOffer) -> Path:
    """Raises: InvalidInput: it is not a folder of the repository."""
    path = root / offer.path
    if not is_inside(path, root) or not path.is_dir():
        raise InvalidInput(f"{offer.name}: {offer.path} is not a folder of the fetched repository")
    return path


def _remote(source: JsonObject, name: str) -> tuple[str, object]:
    """The repository that an entry names. It is never a local path, since somebody else wrote
    it."""
    kind, path = source.get("source"), source.get("path", ".")
    if kind == "local":
        return "", path
    address = source.get("url")
    if kind == "github":
        address = source.get("repo")
    if kind not in ("github", "url", "git", "git-subdir") or not isinstance(address, str):
        raise InvalidInput(f"{name}: a source of the kind {str(kind)[:50]!r} cannot be fetched")
    if REPOSITORY.fullmatch(address):
        address = f"https://github.com/{address}.git"
    if not address.startswith("https://"):
        raise InvalidInput(f"{name}: a marketplace may only name https:// addresses")
    ref = source.get("sha") or source.get("ref")
    return (f"{address}#{ref}" if isinstance(ref, str) else address), path


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginContents:
    """What a plugin adds to an agent, by name, and the findings about it."""

    skills: tuple[str, ...]
    agents: tuple[str, ...]
    commands: tuple[str, ...]
    hooks: int
    servers: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCandidate:
    """A plugin that is not installed yet, with the findings that a person should read first."""

    plugin: Plugin
    contents: PluginContents
    package: PackageCandidate


def place_of(folder: Path, home: Path, scope: Scope) -> Path:
    """The folder of the plugins of a scope.

    Raises: InvalidInput.
    """
    if scope != "project":
        return home / FOLDER
    if not is_inside(folder / FOLDER, folder):
        raise InvalidInput(f"{folder / FOLDER}: a link that leads out of the project")
    return folder / FOLDER


def fetch(source: str, staging: Path, *, name: str | None = None) -> PluginCandidate:
    """Get a plugin, or the plugin `name` of a marketplace, and scan it. Blocks.

    Raises:
        InvalidInput: there is no plugin, it cannot be fetched or used, or a link leads out of it.
        TooLarge.
    """
    fetched = fetch_source(source, staging / "fetched")
    root, commit = fetched.path, fetched.commit
    is_plugin = any((root / file).is_file() for file in (PORTABLE, *VENDOR_MANIFESTS))
    if (name is not None or not is_plugin) and read_offers(root):
        offer = find_offer(root, name)
        if offer.url:
            fetched = fetch_source(offer.url, staging / "offered")
            root, commit = fetched.path, fetched.commit
        root = offer_folder(root, offer)
        _write_manifest(root, offer.name, offer.manifest)
    elif name is not None:
        raise InvalidInput(
            f"{without_login(source)}: not a marketplace, so {name} cannot be chosen"
        )
    elif not is_plugin:
        last = Path(source.partition("#")[0]).resolve().name.removesuffix(".git")
        root = root.rename(root.with_name(plugin_name(last)))  # the folder's name is the plugin's
    return _candidate(root, source=without_login(source), commit=commit)


def read_installed(root: Path, scope: Scope) -> Plugin:
    """Read a plugin that was just installed. Blocks."""
    return read_plugin(
        root, scope, display_path=f"{'~/' if scope == 'user' else ''}{FOLDER}/{root.name}"
    )


def find_plugin(name: str, folder: Path, home: Path, *, scope: Scope | None = None) -> Plugin:
    """An installed plugin, the user's before the project's.

    Raises: NotFound.
    """
    bases: dict[Scope, tuple[Path, Path | None]] = {
        "user": (home, home),
        "project": (folder, None),
    }
    for candidate_scope, (base, user) in bases.items():
        if scope in (None, candidate_scope):
            for plugin in installed_plugins(base, user).plugins:
                if plugin.name == name and plugin.scope == candidate_scope:
                    return plugin
    raise NotFound("plugin", name)


def plugin_contents(plugin: Plugin) -> PluginContents:
    """What discovery will find in a plugin once it is installed. Blocks."""
    scopes = Scopes(folder=plugin.root / ".nothing", plugins=plugin.places)
    skills = discover(scopes, is_pinned=lambda _: False)
    agents = discover_subagents(scopes)
    prefix = f"{plugin.name}:"
    findings = [*plugin.findings, *skills.findings, *agents.findings]
    of_plugin = [skill for skill in skills.skills if skill.name.startswith(prefix)]
    return PluginContents(
        skills=tuple(item.name for item in of_plugin if item.kind == "skill"),
        commands=tuple(item.name for item in of_plugin if item.kind == "command"),
        agents=tuple(
            subagent.name for subagent in agents.subagents if subagent.name.startswith(prefix)
        ),
        hooks=sum(hooks.count for hooks in plugin.hooks),
        servers=tuple(server.name for server in plugin.servers),
        findings=tuple(_relative(finding, plugin) for finding in findings),
    )


def _candidate(root: Path, *, source: str, commit: str) -> PluginCandidate:
    plugin = read_plugin(root, "user", display_path=".")
    errors = [finding for finding in plugin.findings if finding.level == "error"]
    if plugin.is_rejected:
        raise InvalidInput(f"the plugin cannot be used: {errors[0]}")
    if plugin.is_empty:
        raise InvalidInput(f"{plugin.name}: {_why_empty(plugin, errors)}")
    _check_contents(root)
    parts = [*trusted_parts(plugin)]
    package = PackageCandidate(
        name=plugin.name,
        description=plugin.description,
        folder=root,
        scan_report=_scan(root, parts),
        hashes={path: contents_hash(read_contents(root / path)) for path in parts},
        source=source,
        commit=commit,
    )
    return PluginCandidate(plugin=plugin, contents=plugin_contents(plugin), package=package)


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
        InvalidInput: a link leads out, or an entry is neither a file nor a folder.
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


def trusted_parts(plugin: Plugin) -> Iterator[str]:
    """The paths that are trusted one by one: the whole plugin, each skill and each command."""
    yield "."
    for path in plugin.skills:
        yield path.relative_to(plugin.root).as_posix()
    for place in plugin.commands:
        files = [place] if place.is_file() else sorted(place.rglob("*.md"))
        yield from (file.relative_to(plugin.root).as_posix() for file in files)


def _scan(root: Path, parts: list[str]) -> ScanReport:
    """Skills and commands are scanned as such, and everything else as plain files."""
    whole = scan(root)
    inner_parts = [part for part in parts if part != "."]
    inside = tuple(f"{part}/" for part in inner_parts)
    hits = [
        hit for hit in whole.hits if hit.file not in inner_parts and not hit.file.startswith(inside)
    ]
    for part in inner_parts:
        is_file = (root / part).is_file()
        for hit in scan(root / part).hits:
            file = part if is_file else posixpath.join(part, hit.file)
            hits.append(msgspec.structs.replace(hit, file=file))
    hits.sort(key=lambda hit: (SEVERITIES.index(hit.severity), hit.file, hit.line or 0))
    return msgspec.structs.replace(whole, hits=tuple(hits))


def _write_manifest(root: Path, name: str, manifest: JsonObject) -> None:
    """Give a plugin without a manifest the one that the marketplace has for it."""
    if any((root / file).exists() for file in (PORTABLE, *VENDOR_MANIFESTS)):
        return
    file = root / next(iter(VENDOR_MANIFESTS))
    if not is_inside(file, root):
        raise InvalidInput(f"{name}: a link that leads out of the plugin")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode({**manifest, "name": name}), indent=2))


def _relative(finding: Finding, plugin: Plugin) -> Finding:
    root = plugin.root.as_posix()
    return replace(finding, file=finding.file.replace(root, plugin.display_path, 1))
