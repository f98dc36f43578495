"""What `mainspring insights` does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import groupby

import msgspec

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.edges.cli.gist import short
from mainspring.edges.cli.render import Screen, counted, token_count
from mainspring.edges.cli.sessions import existing_log
from mainspring.runtime.insights.gathering import Report, gather
from mainspring.runtime.insights.insight import Insight

_HEADS: dict[str, str] = {
    "waste": "Waste",
    "failure": "Repeated failures",
    "missing_rule": "Missing rules",
    "unused": "Unused tools and skills",
}
_PLACES_SHOWN = 3
_EVENTS_SHOWN = 3
_STEP = 25
"""Sessions between two notes of how far it is."""


async def insights(settings: Settings, *, since: timedelta | None, limit: int, json: bool) -> int:
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    moment = None if since is None else clock.now() - since
    async with existing_log(settings) as log:
        report = await gather(log, since=moment, progress=_progress(notes))
    if notes.moves:
        notes.raw("\r\x1b[K")
    if json:
        screen.json(msgspec.json.encode(report))
        return 0
    _show(screen, notes, report, limit)
    return 0


def _progress(notes: Screen) -> Callable[[int, int], None]:
    """Tells how far it is, at a terminal."""

    def tell(sessions: int, events: int) -> None:
        if notes.moves and sessions % _STEP == 0:
            notes.raw(f"\r{counted(sessions, 'session')}, {counted(events, 'event')} read")

    return tell


def _show(screen: Screen, notes: Screen, report: Report, limit: int) -> None:
    imported = f" ({report.imported} imported)" if report.imported else ""
    screen.line(
        (f"{counted(report.sessions, 'session')}{imported}", "bold"),
        (
            f"  {counted(report.events, 'event')}, {token_count(report.prompt_tokens)} tokens in,"
            f" {token_count(report.output_tokens)} out",
            "dim",
        ),
    )
    for kind, group in groupby(report.insights, key=lambda each: each.kind):
        every = list(group)
        screen.line(("", ""))
        screen.line((_HEADS[kind], "bold"))
        for insight in every[:limit]:
            _show_one(screen, insight)
        if len(every) > limit:
            hint = f"--limit {len(every)} or --json shows all"
            screen.whole((f"  and {len(every) - limit} more; {hint}", "dim"))
    if not report.insights:
        notes.whole(("nothing stands out", "dim"))


def _show_one(screen: Screen, insight: Insight) -> None:
    tokens = f", about {token_count(insight.tokens)} tokens" if insight.tokens else ""
    times = "once" if insight.count == 1 else f"{insight.count} times"
    screen.whole((f"- {insight.title}", "yellow"), indent=2)
    screen.whole(
        (f"{times}{tokens}, in {counted(insight.sessions, 'session')}: {_places(insight)}", "dim"),
        indent=4,
    )
    screen.whole(("do: ", "green"), (insight.action, ""), indent=4)


def _places(insight: Insight) -> str:
    shown = [
        f"{short(place.session_id)} at {', '.join(map(str, place.events[:_EVENTS_SHOWN]))}"
        for place in insight.places[:_PLACES_SHOWN]
    ]
    more = insight.sessions - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown)
