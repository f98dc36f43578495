"""What `mainspring validate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.render import Screen, counted
from mainspring.runtime.folder.checking import Ignored, Part, Report
from mainspring.runtime.folder.finding import Finding
from mainspring.wiring.validating import validate

_MOST = 20
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


class FindingView(Struct, frozen=True, kw_only=True):
    level: str
    file: str
    line: int | None
    what: str
    fix: str | None


class IgnoredView(Struct, frozen=True, kw_only=True):
    what: str
    why: str


class PartView(Struct, frozen=True, kw_only=True):
    name: str
    honoured: tuple[str, ...]
    not_honoured: list[IgnoredView]
    findings: list[FindingView]


class ReportView(Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    ok: bool
    errors: int
    warnings: int
    parts: list[PartView]


async def check(settings: Settings, *, folder: str | None, strict: bool, json: bool) -> int:
    """Raises: InvalidInput."""
    report = await to_thread.run_sync(validate, settings, folder)
    is_well = not report.errors and not (strict and report.warnings)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(_view(report, is_well=is_well)))
    else:
        _print(screen, report, is_well=is_well)
    return 0 if is_well else 1


def _view(report: Report, *, is_well: bool) -> ReportView:
    return ReportView(
        ok=is_well,
        errors=report.errors,
        warnings=report.warnings,
        parts=[
            PartView(
                name=part.name,
                honoured=part.honoured,
                not_honoured=[IgnoredView(what=each.what, why=each.why) for each in part.ignored],
                findings=[FindingView(**asdict(each)) for each in part.findings],
            )
            for part in report.parts
        ],
    )


def _print(screen: Screen, report: Report, *, is_well: bool) -> None:
    for finding in report.problems:
        _tell(screen, finding)
    if report.problems:
        screen.line(("", ""))
    for part in report.parts:
        _show(screen, part)
    found = f"{counted(report.errors, 'error')}, {counted(report.warnings, 'warning')}"
    screen.whole((found, "green" if is_well else "bold red"))


def _tell(screen: Screen, finding: Finding) -> None:
    place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
    level = finding.level
    screen.whole((f"{place}: ", "bold"), (f"{level}: ", _STYLES[level]), (finding.what, ""))
    if finding.fix:
        screen.whole((f"fix: {finding.fix}", "cyan"), indent=4)


def _show(screen: Screen, part: Part) -> None:
    notes = [finding for finding in part.findings if finding.level == "note"]
    if not (part.honoured or part.ignored or notes):
        return
    screen.line((part.name, "bold"))
    for what in part.honoured[:_MOST]:
        screen.whole(("✓ ", "green"), (what, ""), indent=2)
    _more(screen, part.honoured)
    for each in part.ignored[:_MOST]:
        screen.whole(("✗ ", "yellow"), (each.what, ""), (f": {each.why}", "dim"), indent=2)
    _more(screen, part.ignored)
    for note in notes[:_MOST]:
        screen.whole(("· ", "dim"), (str(note), "dim"), indent=2)
    _more(screen, notes)


def _more(screen: Screen, every: Sequence[str | Ignored | Finding]) -> None:
    if len(every) > _MOST:
        screen.whole((f"and {len(every) - _MOST} more; --json has all", "dim"), indent=4)
