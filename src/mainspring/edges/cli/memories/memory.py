"""`mainspring memory`: the memories of an agent and of the user, which are files with versions."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.sender import local_user
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, LimitOption
from mainspring.edges.cli.render.printing import (
    Screen,
    local_time,
    plural,
    print_list,
    print_note,
    print_result,
)
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_versions import Change, NoteVersion
from mainspring.runtime.memory.note import (
    INDEX_FILE,
    NOTE_TYPES,
    age_in_words,
    content_hash,
    note_path,
    parse_note,
)
from mainspring.runtime.memory.search.memory_index import MemoryHit, note_time
from mainspring.runtime.memory.search.past_sessions import SESSION, PastMessage, search_sessions_of
from mainspring.wiring.memory import index_files, memory_folders
from mainspring.wiring.stores import has_store

app = command_group()

ScopeOption = Annotated[
    str,
    typer.Option("--scope", help="Whose memories: agent (memory/ here), user (yours) or team."),
]
PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="The path, as `memory ls` shows it.")
]
_TYPES_HELP = "One of user, feedback, project, reference, procedure, episode."
ReasonOption = Annotated[str, typer.Option("--reason", help="The reason, for the history.")]


class MemoryView(Struct, frozen=True, kw_only=True):
    scope: str
    path: str
    name: str
    type: str
    description: str
    updated: str
    trust: str


class MemoryHitView(Struct, frozen=True, kw_only=True):
    scope: str
    path: str
    line: int
    hash: str
    name: str
    text: str
    age: str
    trust: str
    score: float
    parts: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to remember; - reads standard input.")
    ]
    name: Annotated[
        str, typer.Option("--name", help="A short name, which is also the name of the file.")
    ]
    description: Annotated[
        str, typer.Option("--description", help="One line about when this is useful.")
    ] = ""
    type: Annotated[str, typer.Option("--type", help=_TYPES_HELP)] = "reference"


@command(app)
async def ls(settings: Settings, *, scope: ScopeOption = "", json: JsonOption = False) -> int:
    """List memories."""
    views = await to_thread.run_sync(_views, scoped_folders(settings, scope))
    return print_list(
        settings,
        views,
        json=json,
        heads=["SCOPE", "PATH", "TYPE", "UPDATED", "DESCRIPTION"],
        row=lambda view: [
            (view.scope, "dim"),
            (view.path, "bold"),
            (view.type, ""),
            (view.updated or "-", "dim"),
            (view.description or view.name, ""),
        ],
        empty="there are no memories here",
    )


@command(app)
async def show(settings: Settings, *, path: PathArgument, scope: ScopeOption = "") -> int:
    """Print the file of a memory."""
    _, folder = find_memory(settings, path, scope)
    Screen(settings).text(folder.content(path).decode("utf-8", "replace"))
    return 0


@command(app)
async def search(
    settings: Settings,
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A question, or words.")],
    scope: Annotated[
        str,
        typer.Option("--scope", help="Only agent, user or team; or session: past conversations."),
    ] = "",
    limit: LimitOption = 10,
    json: JsonOption = False,
) -> int:
    """Search memories and past conversations. Shows the line, and why each was ranked."""
    folders = {} if scope == SESSION else scoped_folders(settings, scope)
    past: list[PastMessage] = []
    if scope in ("", SESSION) and has_store(settings):
        async with open_existing_log(settings) as log:
            past = await search_sessions_of(log, local_user(settings.user).id, query)

    def work() -> list[MemoryHit]:
        with closing(index_files(settings).open(folders)) as index:
            hits = index.search(query, list(folders), limit, past)
            problems.append(index.problem)
        return hits

    problems: list[str | None] = []
    hits = await to_thread.run_sync(work)
    if problems[0]:
        print_note(settings, f"searched by words only: {problems[0]}")
    return print_list(
        settings,
        [_hit_view(hit) for hit in hits],
        json=json,
        heads=["SCORE", "PATH", "TEXT", "AGE"],
        row=lambda view: [
            (f"{view.score:.1f}", "dim"),
            (_place(view), "bold"),
            (" ".join(view.text.split())[:200], ""),
            (view.age, "dim"),
        ],
        empty="no memory or past conversation matches",
    )


@command(app)
async def add(
    settings: Settings,
    *,
    memory: NewMemory,
    scope: ScopeOption = "agent",
    reason: ReasonOption = "added by hand",
    json: JsonOption = False,
) -> int:
    """Remember something."""
    if memory.type not in NOTE_TYPES:
        raise InvalidInput(
            f"{memory.type!r} is not a type of memory; use one of {', '.join(NOTE_TYPES)}"
        )
    text = sys.stdin.read() if memory.text == "-" else memory.text
    note = replace(
        parse_note(note_path(memory.type, memory.name), ""),
        body=text,
        name=memory.name,
        description=memory.description,
        type=memory.type,
    )
    (folder,) = scoped_folders(settings, scope).values()
    if folder.root.is_dir() and not folder.is_present:
        raise InvalidInput(
            f"{folder.root} has files that are not memories: move them elsewhere, or create an"
            f" empty {INDEX_FILE} there if its Markdown files are memories"
        )
    version = await to_thread.run_sync(
        lambda: folder.save(note, change_by_hand(settings, reason), expected="")
    )
    return print_version(settings, version, "remembered", json=json)


@command(app)
async def edit(
    settings: Settings,
    *,
    path: PathArgument,
    scope: ScopeOption = "",
    reason: ReasonOption = "edited by hand",
    json: JsonOption = False,
) -> int:
    """Change a memory in your editor. $EDITOR is used; piped standard input replaces the memory."""
    _, folder = find_memory(settings, path, scope)
    before = folder.content(path)
    if sys.stdin.isatty():
        text = await to_thread.run_sync(_edit_text, settings, before.decode("utf-8", "replace"))
    else:
        text = sys.stdin.read()
    version = await to_thread.run_sync(
        lambda: folder.write(
            path, text, change_by_hand(settings, reason), expected=content_hash(before)
        )
    )
    return print_version(settings, version, "changed", json=json)


@command(app)
async def history(
    settings: Settings,
    *,
    path: Annotated[str, typer.Argument(metavar="[PATH]")] = "",
    scope: ScopeOption = "",
    diff: Annotated[bool, typer.Option("--diff", help="Show what each version changed.")] = False,
    json: JsonOption = False,
) -> int:
    """List versions, newest first: who wrote them, and why."""
    screen = Screen(settings)
    for folder in scoped_folders(settings, scope).values():
        versions = await to_thread.run_sync(folder.history, path or None)
        for version in versions:
            if json:
                screen.json(version)
                continue
            screen.line(
                (version.id[-12:], "bold"),
                (f"  {local_time(version.time)}  ", "dim"),
                (f"{version.operation} {version.path}", ""),
                (f"  {version.author.kind} {version.author.id}: {version.reason}", "dim"),
            )
            if diff:
                screen.text(await to_thread.run_sync(_diff, folder, version))
    return 0


@command(app)
async def revert(
    settings: Settings,
    *,
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="As `memory history` shows it.")
    ],
    scope: ScopeOption = "",
    reason: ReasonOption = "",
    json: JsonOption = False,
) -> int:
    """Undo one version, and list the sessions that have read it."""
    for folder in scoped_folders(settings, scope).values():
        matches = await to_thread.run_sync(folder.find_versions, version)
        if len(matches) > 1:
            raise InvalidInput(f"{version} matches {len(matches)} versions: give more of it")
        for match in matches:
            why = reason or f"reverts {match.id[-12:]}"
            readers = folder.readers(match)
            restored = await to_thread.run_sync(folder.revert, match, change_by_hand(settings, why))
            print_version(settings, restored, "reverted", json=json)
            if not json:
                print_note(settings, _readers_note(readers))
            return 0
    raise NotFound("memory version", version)


def scoped_folders(settings: Settings, scope: str) -> dict[str, MemoryFolder]:
    folders = memory_folders(settings)
    if not scope:
        return folders
    if scope not in folders:
        raise InvalidInput(f"{scope!r} is not a scope here: {', '.join(folders)}")
    return {scope: folders[scope]}


def find_memory(settings: Settings, path: str, scope: str) -> tuple[str, MemoryFolder]:
    for name, folder in scoped_folders(settings, scope).items():
        try:
            folder.content(path)
        except NotFound:
            continue
        return name, folder
    raise NotFound("memory", path)


def change_by_hand(settings: Settings, reason: str) -> Change:
    return Change(author=local_user(settings.user), reason=reason)


def _views(folders: dict[str, MemoryFolder]) -> list[MemoryView]:
    fields = ("path", "name", "type", "description", "updated", "trust")
    return [
        MemoryView(scope=scope, **{field: getattr(note, field) for field in fields})
        for scope, folder in folders.items()
        for note in map(folder.read, folder.paths())
        if note.path != INDEX_FILE
    ]


def _hit_view(hit: MemoryHit) -> MemoryHitView:
    time = note_time(hit.note)
    return MemoryHitView(
        scope=hit.scope,
        path=hit.note.path,
        line=hit.line,
        hash=hit.hash,
        name=hit.note.name,
        text=hit.text,
        age="" if time is None else age_in_words(time, clock.now()),
        trust=hit.note.trust,
        score=round(hit.score, 3),
        parts={name: round(value, 3) for name, value in hit.parts.items()},
    )


def _place(view: MemoryHitView) -> str:
    return f"{view.path} {view.line}" if view.scope == SESSION else f"{view.path}:{view.line}"


def print_version(settings: Settings, version: NoteVersion, verb: str, *, json: bool) -> int:
    text = (f"{verb} ", "green"), (version.path, "bold"), (f"  version {version.id[-12:]}", "dim")
    return print_result(settings, version, *text, json=json)


def _readers_note(readers: list[str]) -> str:
    if not readers:
        return "no session has read this version"
    return f"read by {plural(len(readers), 'session')}: {', '.join(readers)}"


def _diff(folder: MemoryFolder, version: NoteVersion) -> str:
    try:
        return f"{folder.diff(version)}\n"
    except NotFound as error:
        return f"({error})\n"


def _edit_text(settings: Settings, text: str) -> str:
    editor = settings.environment.get("EDITOR") or "vi"
    with tempfile.NamedTemporaryFile("w+", suffix=".md") as file:
        file.write(text)
        file.flush()
        subprocess.run([*editor.split(), file.name], check=True)
        return Path(file.name).read_text()
