"""`mainspring memory propose`, `proposals`, `accept`, `reject` and `team`: memories that agents and
people share once a person has agreed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.core.sender import local_user
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.memories.memory import (
    PathArgument,
    ReasonOption,
    ScopeOption,
    change_by_hand,
    find_memory,
    print_version,
    scoped_folders,
)
from mainspring.edges.cli.memories.memory_index import app
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, print_note
from mainspring.files.atomic_file import write_atomic
from mainspring.runtime.knowledge.knowledge_folder import poison
from mainspring.runtime.memory.learning.memory_edits import MemoryEdit, edit_diff
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note import INDEX_FILE
from mainspring.runtime.memory.proposals import (
    Proposal,
    accept,
    find_proposal,
    proposal_of,
    proposals,
    propose,
    reject,
)
from mainspring.runtime.memory.session_memory import TEAM
from mainspring.runtime.memory_setup import AGENT
from mainspring.runtime.session.session_paths import TEAM_MEMORY_FILE, team_memory_place
from mainspring.wiring.memory import memory_folders

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The proposal's id, as `memory proposals` shows it.")
]


class ProposalView(Struct, frozen=True, kw_only=True):
    id: str
    scope: str
    path: str
    trust: str
    proposed_by: str
    reason: str
    time: datetime
    text: str


@command(app, name="propose")
async def propose_(
    settings: Settings,
    *,
    path: PathArgument,
    to: Annotated[
        str,
        typer.Option("--to", metavar="team|FOLDER", help="`team`, or the folder of an agent."),
    ],
    scope: ScopeOption = "",
    reason: ReasonOption = "it may be useful here too",
) -> int:
    """Propose a memory to your team or another agent. It is not used until somebody accepts it."""
    own_scope, folder = find_memory(settings, path, scope)
    if to == own_scope:
        raise InvalidInput(f"{path} is in the memory of the {own_scope} already")
    target = _target(settings, to)
    by = f"{local_user(settings.user).id} ({folder.root.parent.name})"
    proposal = proposal_of(folder.read(path), reason=reason, by=by, time=clock.now())
    is_new = await to_thread.run_sync(propose, target, proposal)
    if not is_new:
        print_note(settings, "it exists there, is already proposed, or was decided before")
        return 0
    Screen(settings).line(("proposed ", "green"), (path, "bold"), (f"  {proposal.id[:12]}", "dim"))
    return 0


@command(app, name="proposals")
async def proposals_(
    settings: Settings, *, scope: ScopeOption = "", json: JsonOption = False
) -> int:
    """Show proposed memories as diffs."""
    screen, count = Screen(settings), 0
    for name, folder in scoped_folders(settings, scope).items():
        for item in await to_thread.run_sync(proposals, folder):
            count += 1
            if json:
                screen.json(_view(name, item))
                continue
            screen.line(
                (item.id[:12], "bold"),
                (f"  {name} {item.path}", ""),
                (f"  proposed by {item.proposed_by}: {item.reason}", "dim"),
                ("  written by others, not verified" if item.trust == "foreign" else "", "red"),
            )
            if (warning := poison(item.path, item.text)) != "":
                screen.line((f"looks like a prompt injection: {warning}", "red"))
            for line in _diff(folder, item).splitlines():
                screen.paragraph((line, ""))  # without control characters, which could hide text
    if not count and not json:
        print_note(settings, "nothing is proposed here")
    return 0


@command(app, name="accept")
async def accept_(
    settings: Settings,
    *,
    id: IdArgument,
    scope: ScopeOption = "",
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a memory of the same name.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Accept a proposal as a memory. Text from pages and tools stays marked as untrusted."""
    folder, item = _find(settings, id, scope)
    person = local_user(settings.user)
    version = await to_thread.run_sync(
        lambda: accept(folder, item, person, clock.now(), replace=replace)
    )
    return print_version(settings, version, "accepted", json=json)


@command(app, name="reject")
async def reject_(settings: Settings, *, id: IdArgument, scope: ScopeOption = "") -> int:
    """Reject a proposal. It will not be proposed again."""
    folder, item = _find(settings, id, scope)
    await to_thread.run_sync(reject, folder, item, local_user(settings.user), clock.now())
    Screen(settings).line(("rejected ", "green"), (item.path, "bold"))
    return 0


@command(app)
async def team(
    settings: Settings,
    *,
    folder: Annotated[
        str,
        typer.Argument(metavar="[FOLDER]", help="A folder that the team shares; `off` for none."),
    ] = "",
) -> int:
    """Choose or show the folder of your team's memories."""
    home = Path(settings.home)
    if folder == "off":
        (home / TEAM_MEMORY_FILE).unlink(missing_ok=True)
    elif folder:
        await to_thread.run_sync(_set_team, settings, Path(settings.folder, folder))
    place = team_memory_place(home)
    Screen(settings).line(("off" if place is None else str(place), ""))
    return 0


def _set_team(settings: Settings, folder_name: Path) -> None:
    place = folder_name.resolve()
    if not place.is_dir():
        raise InvalidInput(f"{place} is not a folder: create or clone it first")
    folder = memory_folders(settings, place)[AGENT]
    if not folder.is_present:
        raise InvalidInput(
            f"{place} has files that are not memories: choose an empty folder, or create an"
            f" empty {INDEX_FILE} there if its Markdown files are memories"
        )
    if not folder.text(INDEX_FILE):
        folder.write(INDEX_FILE, "# Memory\n", change_by_hand(settings, "memories of a team"))
    write_atomic(Path(settings.home, TEAM_MEMORY_FILE), f"{place}\n".encode())


def _target(settings: Settings, to: str) -> MemoryFolder:
    folders = memory_folders(settings)
    if to in folders:
        return folders[to]
    if to == TEAM:
        raise InvalidInput("you have no team: `mainspring memory team FOLDER` chooses its folder")
    place = Path(settings.folder, to).resolve() / "memory"
    target = memory_folders(settings, place)[AGENT]
    if not target.is_present:
        raise InvalidInput(f"there are no memories in {target.root}")
    return target


def _find(settings: Settings, id_part: str, scope: str) -> tuple[MemoryFolder, Proposal]:
    for folder in scoped_folders(settings, scope).values():
        if (item := find_proposal(folder, id_part)) is not None:
            return folder, item
    raise NotFound("proposal", id_part)


def _view(scope: str, item: Proposal) -> ProposalView:
    return ProposalView(
        id=item.id,
        scope=scope,
        path=item.path,
        trust=item.trust,
        proposed_by=item.proposed_by,
        reason=item.reason,
        time=item.time,
        text=item.text,
    )


def _diff(folder: MemoryFolder, item: Proposal) -> str:
    before = folder.text(item.path)
    edit = MemoryEdit(
        path=item.path,
        action="update" if before else "add",
        reason=item.reason,
        text=item.text,
        evidence=item.evidence,
        trust=item.trust,
    )
    return edit_diff(edit, before)
