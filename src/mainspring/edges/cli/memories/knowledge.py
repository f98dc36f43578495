"""`mainspring knowledge`: the documents that an agent can search and cite."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, LimitOption
from mainspring.edges.cli.render.printing import Screen, plural, print_list, print_note
from mainspring.runtime.knowledge.knowledge_folder import DocumentView, KnowledgeHit
from mainspring.wiring.memory import knowledge_folder

app = command_group()


class QuoteView(Struct, frozen=True, kw_only=True):
    path: str
    line: int
    page: int
    context: str
    text: str
    score: float
    warning: str


@command(app)
async def add(
    settings: Settings,
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Markdown, HTML, PDF, DOCX, code or text, or a folder of these.",
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace documents of the same name.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Copy documents into knowledge/ here. Those of a folder that cannot be read are left out."""
    folder = knowledge_folder(settings, Path(settings.folder))
    left_out = 0
    for file in map(Path, files):
        views = (
            folder.add_folder(file, replaces=replace)
            if await to_thread.run_sync(file.is_dir)
            else iter([await to_thread.run_sync(partial(folder.add, file, replaces=replace))])
        )
        while (view := await to_thread.run_sync(next, views, None)) is not None:
            left_out += not view.parts
            _print_added(settings, view, json=json)
    return 1 if left_out else 0


def _print_added(settings: Settings, view: DocumentView, *, json: bool) -> None:
    if json:
        Screen(settings).json(view)
    elif not view.parts:
        print_note(settings, f"left out: {view.problem or f'{view.path} has no text'}")
    else:
        print_note(settings, f"added {view.path}, {plural(view.parts, 'part')}")
        if view.problem:
            print_note(settings, f"review it before you use it: {view.problem}")


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List documents and their problems."""
    folder = knowledge_folder(settings, Path(settings.folder))
    views: list[DocumentView] = await to_thread.run_sync(folder.documents)
    return print_list(
        settings,
        views,
        json=json,
        heads=["PATH", "BYTES", "PARTS", "PROBLEM"],
        row=lambda view: [
            (view.path, "bold"),
            (f"{view.bytes:,}", ""),
            (str(view.parts), ""),
            (view.problem, "red"),
        ],
        empty="no documents: `mainspring knowledge add FILE`",
    )


@command(app)
async def search(
    settings: Settings,
    *,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A question, or words to search for.")
    ],
    limit: LimitOption = 5,
    json: JsonOption = False,
) -> int:
    """Search the documents. Shows file, line and page."""
    folder = knowledge_folder(settings, Path(settings.folder))
    hits = await to_thread.run_sync(folder.search, query, limit)
    return print_list(
        settings,
        [_view(hit) for hit in hits],
        json=json,
        heads=["PLACE", "TEXT"],
        row=lambda view: [
            (f"{view.path}:{view.line}{f' p. {view.page}' if view.page else ''}", "bold"),
            (" ".join(view.text.split())[:200], ""),
        ],
        empty="no document covers that",
    )


@command(app)
async def rm(
    settings: Settings,
    *,
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="The path, as `knowledge ls` shows it.")
    ],
) -> int:
    """Remove a document."""
    folder = knowledge_folder(settings, Path(settings.folder))
    await to_thread.run_sync(folder.remove, path)
    print_note(settings, f"removed {path}")
    return 0


def _view(hit: KnowledgeHit) -> QuoteView:
    return QuoteView(
        path=hit.path,
        line=hit.part.line,
        page=hit.part.page,
        context=hit.part.context,
        text=hit.part.text,
        score=round(hit.score, 3),
        warning=hit.warning,
    )
