"""`mainspring slo`: the service levels of agents, compared with the objectives in agent.yaml."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import anyio
import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.evals.eval_grade import print_score
from mainspring.edges.cli.options import JsonOption, parse_duration
from mainspring.edges.cli.render.printing import Screen, StyledText, print_note
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.improve.evals.production_score import ProductionScore, production_score
from mainspring.runtime.agent_folder.manifest import FILE, read_manifest
from mainspring.runtime.agent_folder.production_settings import ServiceObjectives
from mainspring.runtime.insights.service_levels import ServiceLevels, service_levels

MISSED = 1  # the status if an objective is missed


class LevelsView(Struct, frozen=True, kw_only=True):
    levels: ServiceLevels
    errors_per_10000_calls: float | None
    share_without_person: float | None
    objectives: ServiceObjectives | None
    missed: tuple[str, ...]
    production: ProductionScore | None
    """The score of graded real sessions, next to that of the suite's runs."""


async def slo(
    settings: Settings,
    *,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[FOLDER]",
            help="The agent whose `slo` is compared. [default: this folder]",
            show_default=False,
        ),
    ] = Path(),
    since: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Only sessions of the last period, such as 12h, 30d or 8w. [default: all]",
        ),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show service levels: errors, latency and ratings. Also shows the share of work without a
    person. Exit status 1 if the agent misses an objective of `slo` in its agent.yaml."""
    place = Path(settings.folder, folder)
    manifest = await anyio.to_thread.run_sync(read_manifest, place / FILE)
    if manifest.error is not None:
        raise InvalidInput(str(manifest.error))
    name = manifest.name or place.name
    async with open_existing_log(settings) as log:
        levels = await service_levels(log, since=None if since is None else clock.now() - since)
        graded = manifest.grade
        score = None if graded is None else await production_score(log, name, graded.suite)
    views = [
        _view(item, manifest.slo, score) if item.agent == name else _view(item, None, None)
        for item in levels
    ]
    screen = Screen(settings)
    if json:
        for view in views:
            screen.json(view)
    elif not views:
        print_note(settings, "there are no sessions")
    else:
        _print_table(screen, views)
        print_score(settings, score)
    return MISSED if any(view.missed for view in views) else 0


def _view(
    levels: ServiceLevels, objectives: ServiceObjectives | None, score: ProductionScore | None
) -> LevelsView:
    return LevelsView(
        levels=levels,
        errors_per_10000_calls=levels.errors_per_10000_calls,
        share_without_person=levels.share_without_person,
        objectives=objectives,
        missed=() if objectives is None else tuple(levels.missed(objectives)),
        production=score,
    )


def _print_table(screen: Screen, views: list[LevelsView]) -> None:
    heads = ["AGENT", "SESSIONS", "CALLS", "ERRORS/10K", "P95", "NO PERSON", "GOOD", "BAD"]
    screen.table(heads, [_row(view) for view in views])
    for view in views:
        for objective in view.missed:
            screen.line((f"{view.levels.agent} misses its objective: {objective}", "bold red"))
        if view.objectives is not None and not view.missed:
            screen.line((f"{view.levels.agent} meets its objectives", "green"))


def _row(view: LevelsView) -> list[StyledText]:
    levels, rate, share = view.levels, view.errors_per_10000_calls, view.share_without_person
    seconds = levels.p95_seconds
    return [
        (levels.agent, "bold"),
        (f"{levels.sessions:>8,}", ""),
        (f"{levels.calls:>5,}", ""),
        ("" if rate is None else f"{rate:>10.1f}", ""),
        ("" if seconds is None else f"{seconds:.1f} s", ""),
        ("" if share is None else f"{share:>9.0%}", ""),
        (f"{levels.good:>4}", ""),
        (f"{levels.bad:>3}", "red" if levels.bad else ""),
    ]
