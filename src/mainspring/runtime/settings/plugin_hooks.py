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
"""Trust in a skill includes its hooks, wherever it is. Only hooks of a project's plugin also need
trust in the project."""


class TrustedHooks(Struct, frozen=True):
    settings: tuple[HookSettings, ...] = ()
    roots: tuple[str, ...] = ()
    """Folders of the plugins and skills that they belong to."""
    scripts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The trusted hashes of all their files, by absolute path."""


def trusted_plugin_hooks(home: Path, folder: Path, disabled: Collection[str] = ()) -> TrustedHooks:
    """The hooks of the user's plugins and of the folder's, in order of discovery."""
    plugins = installed_plugins(folder, None if folder == home else home)
    with_hooks = [
        plugin for plugin in plugins.plugins if plugin.hooks and plugin.name not in disabled
    ]
    if not with_hooks:
        return TrustedHooks()
    pins = TrustPins(home / PINS_FILE)
    contents = {plugin.root: pins.trusted_contents(plugin.root) for plugin in with_hooks}
    trusted = [plugin for plugin in with_hooks if contents[plugin.root] is not None]
    return TrustedHooks(
        settings=tuple(hooks for plugin in trusted for hooks in _hooks_of_plugin(plugin)),
        roots=tuple(str(plugin.root) for plugin in trusted),
        scripts={
            str(plugin.root / item.path): hashlib.sha256(item.content).hexdigest()
            for plugin in trusted
            for item in contents[plugin.root] or ()
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
    settings: list[HookSettings] = []
    files: dict[str, str] = {}
    for skill in with_hooks:
        owner = next((p for p in plugins if Path(skill.file).is_relative_to(p.root)), None)
        place = Path(skill.folder if skill.kind == "skill" else skill.file)
        contents = _skill_contents(skill, pins, owner.root if owner else place)
        if not contents:
            continue
        hook_folder = HookFolder(
            name=skill.name,
            root=skill.folder,
            kind="skill",
            plugin=owner.name if owner else None,
        )
        places = {"${CLAUDE_SKILL_DIR}": skill.folder}
        hooks = cast("dict[str, object]", _expand_paths(skill.hooks, places))
        settled = HookSettings(
            scope=owner.scope if owner else _TRUSTED_SCOPE,
            source=skill.file,
            hooks=hooks,
            folder=hook_folder,
        )
        settings.append(settled)
        files |= contents
    roots = tuple(item.folder.root for item in settings if item.folder is not None)
    return TrustedHooks(settings=tuple(settings), roots=roots, scripts=files)


def _skill_contents(skill: Skill, pins: TrustPins, place: Path) -> dict[str, str]:
    """The hashes of a skill's files by absolute path; empty if the skill has changed since it was
    trusted. The user's own skills need no trust, so their current files count."""
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
        hooks = cast("dict[str, object]", _expand_paths(hook.hooks, places))
        yield HookSettings(scope=plugin.scope, source=hook.file, hooks=hooks, folder=folder)


def _expand_paths(value: object, places: dict[str, str]) -> object:
    """Replace the variables for the folders of a plugin or skill in all texts."""
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace(name, place)
        return value
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        return {key: _expand_paths(item, places) for key, item in entries.items()}
    if isinstance(value, list):
        return [_expand_paths(item, places) for item in cast("list[object]", value)]
    return value
