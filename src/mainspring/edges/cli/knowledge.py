"""`mainspring knowledge`: the documents that an agent can search and cite."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, LimitOption
from mainspring.edges.cli.printing import Screen, plural, print_list, print_note
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
        list[str], typer.Argument(metavar="FILE...", help="Markdown, HTML, PDF, DOCX, code, text.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a document of the same name.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Copy documents into knowledge/ here."""
    folder = knowledge_folder(settings, Path(settings.folder))
    for file in files:
        view = await to_thread.run_sync(lambda: folder.add(Path(file), replaces=replace))  # noqa: B023
        if json:
            Screen(settings).json(view)
        else:
            print_note(settings, f"added {view.path}, {plural(view.parts, 'part')}")
            if view.problem:
                print_note(settings, f"review it before you use it: {view.problem}")
    return 0


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
