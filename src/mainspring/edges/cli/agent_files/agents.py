"""`mainspring agents`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import AgentFolderOption, JsonOption
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    diff_style,
    pad,
    print_list,
    print_note,
)
from mainspring.harness.limits import Limits
from mainspring.runtime.agent_folder.agent_files import content_hash
from mainspring.runtime.agent_folder.agent_loader import AgentFolder, find_agent_folders, read_agent
from mainspring.runtime.agent_folder.folder_versions import diff_versions, list_versions
from mainspring.runtime.agent_folder.folder_versions import rollback as roll_back
from mainspring.runtime.agent_folder.manifest import FILE, read_manifest
from mainspring.runtime.session.pinned_agent import AgentDefinition, definition_of
from mainspring.runtime.versions import Version
from mainspring.wiring.agent_selection import agent_selection

app = command_group()

_MAX_NAMES = 20  # in an error message


class AgentView(Struct, frozen=True, kw_only=True):
    name: str
    folder: str
    description: str
    model: str
    version: int | None
    hash: str
    is_changed: bool
    """Whether its files differ from that version."""


class AgentDetailView(Struct, frozen=True, kw_only=True):
    folder: str
    definition: AgentDefinition
    version: int | None
    hash: str
    is_changed: bool
    instruction_files: tuple[str, ...]


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List the agents in this folder and below."""
    top = Path(settings.folder)
    views = await to_thread.run_sync(
        lambda: [_agent_view(folder, top) for folder in find_agent_folders(top)]
    )
    return print_list(
        settings,
        views,
        json=json,
        heads=["NAME", "FOLDER", "VERSION", "MODEL", "DESCRIPTION"],
        row=_agent_row,
        empty="there is no agent here; `mainspring init` creates one",
    )


def _agent_row(view: AgentView) -> list[StyledText]:
    return [
        (view.name, "bold"),
        (view.folder, ""),
        _version_text(view.version, is_changed=view.is_changed),
        (view.model or "-", ""),
        (view.description, "dim"),
    ]


def _agent_view(folder: Path, top: Path) -> AgentView:
    manifest = read_manifest(folder / FILE)
    last, digest = _last_version(folder), content_hash(folder)
    return AgentView(
        name=manifest.name or folder.resolve().name,
        folder=folder.relative_to(top).as_posix(),
        description=manifest.description,
        model=manifest.model,
        version=None if last is None else last.number,
        hash=digest,
        is_changed=last is None or last.hash != digest,
    )


def _last_version(folder: Path) -> Version | None:
    versions = list_versions(folder)
    return versions[-1] if versions else None


def _version_text(number: int | None, *, is_changed: bool) -> StyledText:
    if number is None:
        return "-", "dim"
    return (f"{number}, changed since", "yellow") if is_changed else (str(number), "")


@command(app)
async def show(
    settings: Settings,
    *,
    folder: Annotated[
        str | None,
        typer.Argument(metavar="[DIR]", help="The agent's folder. [default: this folder]"),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show an agent as it would run. Lists all its parts, including those of wider scopes, and its
    version."""
    loaded, view = await to_thread.run_sync(_load_agent, settings, folder)
    screen = Screen(settings)
    if json:
        screen.json(view)
        return 0
    words, style = _version_text(view.version, is_changed=view.is_changed)
    version = "none yet; a session saves the first one" if view.version is None else words
    _print_field(screen, "name", loaded.agent.name, "bold")
    _print_field(screen, "version", f"{version}; files {view.hash[:12]}", style)
    for name, value in _detail_rows(loaded, view.instruction_files):
        _print_field(screen, name, value)
    for warning in loaded.warnings:
        print_note(settings, f"warning: {warning}", "yellow")
    return 0


def _load_agent(settings: Settings, folder: str | None) -> tuple[AgentFolder, AgentDetailView]:
    scopes = agent_selection(settings).scopes(folder)
    loaded = read_agent(scopes, is_pinned=agent_selection(settings).is_pinned)
    last, digest = _last_version(scopes.folder), content_hash(scopes.folder)
    sources = (section.source for section in loaded.instructions.instructions.sections)
    return loaded, AgentDetailView(
        folder=str(scopes.folder),
        definition=definition_of(loaded.agent),
        version=None if last is None else last.number,
        hash=digest,
        is_changed=last is None or last.hash != digest,
        instruction_files=tuple(dict.fromkeys(sources)),
    )


def _detail_rows(loaded: AgentFolder, sources: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    agent = loaded.agent
    yield "description", agent.description
    yield "model", agent.model or "the default model"
    yield "effort", "" if agent.effort == "none" else agent.effort
    yield "tools", "all" if "*" in agent.built_ins else ", ".join(agent.built_ins) or "none"
    yield "coordinator", "yes: it only calls subagents" if agent.is_coordinator else ""
    yield "instructions", ", ".join(sources)
    yield from (("rule", rule) for rule in agent.rules)
    yield "limits", ", ".join(_limit_texts(agent.limits))
    yield "subagents", ", ".join(subagent.name for subagent in agent.subagents)
    skills = [skill.name for skill in agent.skills if skill.kind == "skill"]
    commands = [f"/{skill.name}" for skill in agent.skills if skill.kind == "command"]
    yield "skills", _shorten_names(skills)
    yield "commands", _shorten_names(commands)
    if (schedule := loaded.agent_manifest.schedule) is not None:
        yield "schedule", f"{schedule.cron} {schedule.timezone} (in `mainspring serve`)"
    if (outcome := loaded.agent_manifest.outcome) is not None:
        yield "outcome", outcome.description or outcome.rubric


def _limit_texts(limits: Limits) -> Iterator[str]:
    for name in limits.__dataclass_fields__:
        if (value := getattr(limits, name)) is not None:
            yield f"{name} {value}"


def _shorten_names(names: list[str]) -> str:
    remaining = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + remaining


def _print_field(screen: Screen, name: str, value: str, style: str = "") -> None:
    if value:
        screen.paragraph(pad((name, "dim"), 14), (value, style))


@command(app)
async def diff(
    settings: Settings,
    *,
    before: Annotated[
        int | None,
        typer.Argument(metavar="[A]", help="The older version. [default: the last]", min=1),
    ] = None,
    after: Annotated[
        int | None,
        typer.Argument(
            metavar="[B]", help="The newer version. [default: the current files]", min=1
        ),
    ] = None,
    agent: AgentFolderOption = None,
) -> int:
    """Show what changed between two versions. A version is saved whenever a session starts with
    changed files."""
    folder = agent_selection(settings).scopes(agent).folder
    if before is None and (last := _last_version(folder)) is not None:
        before = last.number
    if before is None:
        raise InvalidInput("there are no versions yet; a session saves the first one")
    changes = await to_thread.run_sync(diff_versions, folder, before, after)
    screen = Screen(settings)
    for change in changes:
        for line in change.text.splitlines():
            screen.paragraph((line, diff_style(line)))
    if not changes:
        end = "the current files" if after is None else f"version {after}"
        print_note(settings, f"no difference between version {before} and {end}")
    return 0


@command(app)
async def rollback(
    settings: Settings,
    *,
    version: Annotated[int, typer.Argument(metavar="VERSION", min=1)],
    agent: AgentFolderOption = None,
) -> int:
    """Restore an agent's files from a version. The current files are saved as a version first, so
    that you can undo this in the same way."""
    folder = agent_selection(settings).scopes(agent).folder
    versions = list_versions(folder)
    restored = await to_thread.run_sync(roll_back, folder, version, clock.now)
    screen = Screen(settings)
    if versions and restored == versions[-1]:
        screen.line((f"the files are already those of version {version}", ""))
        return 0
    has_saved = restored.number - (versions[-1].number if versions else 0) > 1
    new = f", now version {restored.number}"
    screen.line(("back to ", "green"), (f"version {version}", "bold"), (new, ""))
    if has_saved:
        print_note(settings, f"the previous files are saved as version {restored.number - 1}")
    return 0
