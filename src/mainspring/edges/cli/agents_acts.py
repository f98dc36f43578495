"""What `mainspring agents` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.printing import Screen, StyledText, pad
from mainspring.harness.limits import Limits
from mainspring.runtime.agent_folder.agent_loader import AgentFolder, find_agent_folders, read_agent
from mainspring.runtime.agent_folder.definition_listing import content_hash
from mainspring.runtime.agent_folder.folder_versions import Version, list_versions
from mainspring.runtime.agent_folder.folder_versions import diff_versions as diff_of
from mainspring.runtime.agent_folder.folder_versions import rollback as roll_back
from mainspring.runtime.agent_folder.manifest import FILE, read_manifest
from mainspring.runtime.session.pinned_agent import AgentDefinition, definition_of
from mainspring.wiring.agent_selection import pins_of, scopes_of

_MAX_NAMES = 20
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class AgentView(Struct, frozen=True, kw_only=True):
    name: str
    folder: str
    description: str
    model: str
    version: int | None
    hash: str
    is_changed: bool
    """Whether its files are not what they are in that version."""


class AgentDetailView(Struct, frozen=True, kw_only=True):
    folder: str
    definition: AgentDefinition
    version: int | None
    hash: str
    is_changed: bool
    instruction_files: tuple[str, ...]


async def ls(settings: Settings, *, json: bool) -> int:
    top = Path(settings.folder)
    views = await to_thread.run_sync(
        lambda: [_agent_view(folder, top) for folder in find_agent_folders(top)]
    )
    screen = Screen(settings)
    if json:
        for view in views:
            screen.json(msgspec.json.encode(view))
        return 0
    if not views:
        notes = Screen(settings, stderr=True)
        notes.paragraph(("no agent here; `mainspring init` makes one", "dim"))
        return 0
    screen.table(
        ["NAME", "FOLDER", "VERSION", "MODEL", "DESCRIPTION"],
        [
            [
                (view.name, "bold"),
                (view.folder, ""),
                _version_text(view.version, is_changed=view.is_changed),
                (view.model or "-", ""),
                (view.description, "dim"),
            ]
            for view in views
        ],
    )
    return 0


def _agent_view(folder: Path, top: Path) -> AgentView:
    said = read_manifest(folder / FILE)
    last, digest = _last_version(folder), content_hash(folder)
    return AgentView(
        name=said.name or folder.resolve().name,
        folder=folder.relative_to(top).as_posix(),
        description=said.description,
        model=said.model,
        version=None if last is None else last.number,
        hash=digest,
        is_changed=last is None or last.hash != digest,
    )


def _last_version(folder: Path) -> Version | None:
    known = list_versions(folder)
    return known[-1] if known else None


def _version_text(number: int | None, *, is_changed: bool) -> StyledText:
    if number is None:
        return "-", "dim"
    return (f"{number}, changed since", "yellow") if is_changed else (str(number), "")


async def show(settings: Settings, *, folder: str | None, json: bool) -> int:
    """Raises: InvalidInput."""
    found, view = await to_thread.run_sync(_load_agent, settings, folder)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(view))
        return 0
    words, style = _version_text(view.version, is_changed=view.is_changed)
    kept = "none yet: a session keeps the first" if view.version is None else words
    _print_field(screen, "name", found.agent.name, "bold")
    _print_field(screen, "version", f"{kept}; files {view.hash[:12]}", style)
    for name, value in _detail_rows(found, view.instruction_files):
        _print_field(screen, name, value)
    for warning in found.warnings:
        Screen(settings, stderr=True).paragraph((f"warning: {warning}", "yellow"))
    return 0


def _load_agent(settings: Settings, folder: str | None) -> tuple[AgentFolder, AgentDetailView]:
    scopes = scopes_of(settings, folder)
    found = read_agent(scopes, is_pinned=pins_of(settings))
    last, digest = _last_version(scopes.folder), content_hash(scopes.folder)
    sources = (section.source for section in found.instructions.instructions.sections)
    return found, AgentDetailView(
        folder=str(scopes.folder),
        definition=definition_of(found.agent),
        version=None if last is None else last.number,
        hash=digest,
        is_changed=last is None or last.hash != digest,
        instruction_files=tuple(dict.fromkeys(sources)),
    )


def _detail_rows(found: AgentFolder, sources: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    agent = found.agent
    yield "description", agent.description
    yield "model", agent.model or "whichever there is"
    yield "effort", "" if agent.effort == "none" else agent.effort
    yield "tools", "all" if "*" in agent.built_ins else ", ".join(agent.built_ins) or "none"
    yield "coordinator", "yes: it only calls others" if agent.is_coordinator else ""
    yield "instructions", ", ".join(sources)
    yield from (("rule", rule) for rule in agent.rules)
    yield "limits", ", ".join(_limit_texts(agent.limits))
    yield "subagents", ", ".join(subagent.name for subagent in agent.subagents)
    skills = [skill.name for skill in agent.skills if skill.kind == "skill"]
    commands = [f"/{skill.name}" for skill in agent.skills if skill.kind == "command"]
    yield "skills", _shorten_names(skills)
    yield "commands", _shorten_names(commands)
    if (schedule := found.agent_manifest.schedule) is not None:
        yield "schedule", f"{schedule.cron} {schedule.timezone} (in `mainspring serve`)"
    if (outcome := found.agent_manifest.outcome) is not None:
        yield "outcome", f"{outcome.description} (not honoured yet)"


def _limit_texts(limits: Limits) -> Iterator[str]:
    for name in limits.__dataclass_fields__:
        if (value := getattr(limits, name)) is not None:
            yield f"{name} {value}"


def _shorten_names(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _print_field(screen: Screen, name: str, value: str, style: str = "") -> None:
    if value:
        screen.paragraph(pad((name, "dim"), 14), (value, style))


async def diff(
    settings: Settings, *, folder: str | None, before: int | None, after: int | None
) -> int:
    """Raises: InvalidInput."""
    place = scopes_of(settings, folder).folder
    if before is None and (last := _last_version(place)) is not None:
        before = last.number
    if before is None:
        raise InvalidInput("there are no versions yet; a session keeps the first")
    changed = await to_thread.run_sync(diff_of, place, before, after)
    screen = Screen(settings)
    for item in changed:
        for line in item.text.splitlines():
            screen.paragraph((line, _STYLES.get(line[:1], "")))
    if not changed:
        end = "the files now" if after is None else f"version {after}"
        notes = Screen(settings, stderr=True)
        notes.paragraph((f"no difference between version {before} and {end}", "dim"))
    return 0


async def rollback(settings: Settings, *, folder: str | None, number: int) -> int:
    """Raises: InvalidInput."""
    place = scopes_of(settings, folder).folder
    known = list_versions(place)
    made = await to_thread.run_sync(roll_back, place, number, clock.now)
    screen = Screen(settings)
    if known and made == known[-1]:
        screen.line((f"it is as it was in version {number} already", ""))
        return 0
    saved = made.number - (known[-1].number if known else 0) - 1
    screen.line(
        ("back to ", "green"), (f"version {number}", "bold"), (f", now version {made.number}", "")
    )
    if saved:
        note = f"what it was before is kept as version {made.number - 1}"
        Screen(settings, stderr=True).paragraph((note, "dim"))
    return 0
