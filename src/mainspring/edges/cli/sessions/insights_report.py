"""`mainspring insights`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from typing import Annotated

import typer

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.edges.cli.options import parse_duration
from mainspring.edges.cli.render.event_summary import short_id
from mainspring.edges.cli.render.printing import Screen, TerminalCode, plural, token_count
from mainspring.edges.cli.session_lookup import open_existing_log
from mainspring.runtime.insights.insight import Insight
from mainspring.runtime.insights.insight_report import InsightReport, build_report

_HEADINGS: dict[str, str] = {
    "waste": "Waste",
    "failure": "Repeated failures",
    "missing_rule": "Missing rules",
    "unused": "Unused tools and skills",
}
_MAX_PLACES = 3  # shown for one finding
_MAX_EVENTS = 3  # shown for one place
_PROGRESS_STEP = 25
"""Sessions between two progress reports."""


async def insights(
    settings: Settings,
    *,
    since: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="TIME",
            help="Only the last period, such as 12h, 30d or 8w. [default: all]",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="How many of each kind to show.")
    ] = 10,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with everything.")
    ] = False,
) -> int:
    """Show wasted tokens, failures and missing rules. Also shows tools and skills that are never
    used. Includes imported sessions; calls no model."""
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    moment = None if since is None else clock.now() - since
    async with open_existing_log(settings) as log:
        report = await build_report(log, since=moment, progress=_progress_printer(notes))
    if notes.can_redraw:
        notes.raw(TerminalCode("\r\x1b[K"))
    if json:
        screen.json(report)
        return 0
    _print_report(screen, notes, report, limit)
    return 0


def _progress_printer(notes: Screen) -> Callable[[int, int], None]:
    """Reports the progress at a terminal."""

    def report(sessions: int, events: int) -> None:
        if notes.can_redraw and sessions % _PROGRESS_STEP == 0:
            text = f"{plural(sessions, 'session')}, {plural(events, 'event')} read"
            notes.raw(TerminalCode(f"\r{text}"))

    return report


def _print_report(screen: Screen, notes: Screen, report: InsightReport, limit: int) -> None:
    imported = f" ({report.imported} imported)" if report.imported else ""
    screen.line(
        (f"{plural(report.sessions, 'session')}{imported}", "bold"),
        (
            f"  {plural(report.events, 'event')}, "
            f"{token_count(report.prompt_tokens)} tokens in,"
            f" {token_count(report.output_tokens)} out",
            "dim",
        ),
    )
    for kind, group in groupby(report.insights, key=lambda insight: insight.kind):
        insights = list(group)
        screen.line(("", ""))
        screen.line((_HEADINGS[kind], "bold"))
        for insight in insights[:limit]:
            _print_insight(screen, insight)
        if len(insights) > limit:
            hint = f"--limit {len(insights)} or --json shows all"
            screen.paragraph((f"  and {len(insights) - limit} more; {hint}", "dim"))
    if report.checks:
        screen.line(("", ""))
        screen.line(("Answer checks", "bold"))
        for rate in report.checks[:limit]:
            answers = plural(rate.answers, "answer")
            line = f"- {rate.name}: accepted {rate.share:.0%} of {answers}"
            screen.paragraph((line, ""), indent=2)
    elif not report.insights:
        notes.paragraph(("nothing stands out", "dim"))


def _print_insight(screen: Screen, insight: Insight) -> None:
    tokens = f", about {token_count(insight.tokens)} tokens" if insight.tokens else ""
    times = "once" if insight.count == 1 else f"{insight.count} times"
    places = f"in {plural(insight.sessions, 'session')}: {_places_text(insight)}"
    screen.paragraph((f"- {insight.title}", "yellow"), indent=2)
    screen.paragraph((f"{times}{tokens}, {places}", "dim"), indent=4)
    screen.paragraph(("do: ", "green"), (insight.action, ""), indent=4)


def _places_text(insight: Insight) -> str:
    places = [
        f"{short_id(place.session_id)} at {', '.join(map(str, place.events[:_MAX_EVENTS]))}"
        for place in insight.places[:_MAX_PLACES]
    ]
    remaining = insight.sessions - len(places)
    return "; ".join([*places, f"and {remaining} more"] if remaining > 0 else places)
