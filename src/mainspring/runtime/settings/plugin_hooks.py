"""Hooks of installed plugins and of skills; they run only if somebody has trusted them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct, field

from mainspring.core.errors import MainspringError
from mainspring.core.hook import HookFolder, HookSettings
from mainspring.harness.permissions.policy import Scope
from mainspring.runtime.agent_folder.plugin import Plugin
from mainspring.runtime.agent_folder.plugins import installed_plugins
from mainspring.runtime.packages.package_contents import read_contents
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPins
from mainspring.runtime.skills.skill import Skill

_TRUSTED_SCOPE: Scope = "user"
"""Trusting a skill means trusting its hooks, wherever it is. Only hooks of a project's plugin need
trust in the project, too."""


class TrustedHooks(Struct, frozen=True):
    settings: tuple[HookSettings, ...] = ()
    roots: tuple[str, ...] = ()
    """Folders of the plugins and skills that they belong to."""
    scripts: Mapping[str, str] = field(default_factory=dict[str, str])
    """All files of these, by absolute path: the trusted hash."""


def trusted_plugin_hooks(home: Path, folder: Path, disabled: Collection[str] = ()) -> TrustedHooks:
    """The hooks of the user's plugins and of the folder's, in order of discovery."""
    plugins = installed_plugins(folder, None if folder == home else home)
    with_hooks = [
        plugin for plugin in plugins.plugins if plugin.hooks and plugin.name not in disabled
    ]
    if not with_hooks:
        return TrustedHooks()
    pins = TrustPins(home / PINS_FILE)
    vouched = {plugin.root: pins.trusted_contents(plugin.root) for plugin in with_hooks}
    trusted = [plugin for plugin in with_hooks if vouched[plugin.root] is not None]
    return TrustedHooks(
        settings=tuple(hooks for plugin in trusted for hooks in _hooks_of_plugin(plugin)),
        roots=tuple(str(plugin.root) for plugin in trusted),
        scripts={
            str(plugin.root / item.path): hashlib.sha256(item.content).hexdigest()
            for plugin in trusted
            for item in vouched[plugin.root] or ()
            if item.link is None and not item.is_special
        },
    )


def trusted_skill_hooks(home: Path, folder: Path, skills: Iterable[Skill]) -> TrustedHooks:
    """The hooks of trusted skills; they run while their skill is used."""
    with_hooks = [skill for skill in skills if skill.hooks and skill.is_trusted and skill.file]
    if not with_hooks:
        return TrustedHooks()
    pins = TrustPins(home / PINS_FILE)
    plugins = installed_plugins(folder, None if folder == home else home).plugins
    brought: list[HookSettings] = []
    files: dict[str, str] = {}
    for skill in with_hooks:
        owner = next((p for p in plugins if Path(skill.file).is_relative_to(p.root)), None)
        place = Path(skill.folder if skill.kind == "skill" else skill.file)
        contents = _skill_contents(skill, pins, owner.root if owner else place)
        if not contents:
            continue
        own = HookFolder(
            name=skill.name,
            root=skill.folder,
            kind="skill",
            plugin=owner.name if owner else None,
        )
        places = {"${CLAUDE_SKILL_DIR}": skill.folder}
        said = cast("dict[str, object]", _expand_paths(skill.hooks, places))
        settled = HookSettings(
            scope=owner.scope if owner else _TRUSTED_SCOPE,
            source=skill.file,
            hooks=said,
            folder=own,
        )
        brought.append(settled)
        files |= contents
    roots = tuple(item.folder.root for item in brought if item.folder is not None)
    return TrustedHooks(settings=tuple(brought), roots=roots, scripts=files)


def _skill_contents(skill: Skill, pins: TrustPins, place: Path) -> dict[str, str]:
    """The hashes of its files by absolute path, if the skill is still what was trusted. The user's
    own skills need no approval: the hashes of their files as they are now."""
    is_pinned = pins.of(place) is not None
    if not is_pinned and skill.scope == "project":
        return {}
    try:
        contents = (pins.trusted_contents(place) if is_pinned else read_contents(place)) or ()
    except MainspringError:
        return {}
    base = place if place.is_dir() else place.parent
    hashes = {
        str(base / item.path): hashlib.sha256(item.content).hexdigest()
        for item in contents
        if item.link is None and not item.is_special
    }
    return hashes if hashes.get(skill.file) == skill.hash else {}


def _hooks_of_plugin(plugin: Plugin) -> Iterator[HookSettings]:
    places = {
        "${CLAUDE_PLUGIN_ROOT}": str(plugin.root),
        "${CLAUDE_PLUGIN_DATA}": str(plugin.data),
        "${PLUGIN_ROOT}": str(plugin.root),
        "${PLUGIN_DATA}": str(plugin.data),
    }
    folder = HookFolder(
        name=plugin.name, plugin=plugin.name, root=str(plugin.root), data=str(plugin.data)
    )
    for hook in plugin.hooks:
        said = cast("dict[str, object]", _expand_paths(hook.hooks, places))
        yield HookSettings(scope=plugin.scope, source=hook.file, hooks=said, folder=folder)


def _expand_paths(said: object, places: dict[str, str]) -> object:
    """Replace the variables for the folders of a plugin or skill in all texts."""
    if isinstance(said, str):
        for name, place in places.items():
            said = said.replace(name, place)
        return said
    if isinstance(said, dict):
        entries = cast("dict[str, object]", said)
        return {key: _expand_paths(value, places) for key, value in entries.items()}
    if isinstance(said, list):
        return [_expand_paths(item, places) for item in cast("list[object]", said)]
    return said
