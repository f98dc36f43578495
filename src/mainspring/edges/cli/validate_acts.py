"""What `mainspring validate` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.printing import Screen, plural
from mainspring.runtime.agent_folder.validation import FolderReport, IgnoredItem, PartReport
from mainspring.runtime.definition_files.finding import Finding
from mainspring.wiring.folder_validation import validate

_MAX_LINES = 20
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


class ValidationFindingView(Struct, frozen=True, kw_only=True):
    level: str
    file: str
    line: int | None
    what: str
    fix: str | None


class IgnoredView(Struct, frozen=True, kw_only=True):
    what: str
    why: str


class AgentPartView(Struct, frozen=True, kw_only=True):
    name: str
    honoured: tuple[str, ...]
    not_honoured: list[IgnoredView]
    findings: list[ValidationFindingView]


class ValidationReportView(Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    ok: bool
    errors: int
    warnings: int
    parts: list[AgentPartView]


async def check(settings: Settings, *, folder: str | None, strict: bool, json: bool) -> int:
    """Raises: InvalidInput."""
    report = await to_thread.run_sync(validate, settings, folder)
    is_well = not report.errors and not (strict and report.warnings)
    screen = Screen(settings)
    if json:
        screen.json(msgspec.json.encode(_report_view(report, is_well=is_well)))
    else:
        _print_report(screen, report, is_well=is_well)
    return 0 if is_well else 1


def _report_view(folder_report: FolderReport, *, is_well: bool) -> ValidationReportView:
    return ValidationReportView(
        ok=is_well,
        errors=folder_report.errors,
        warnings=folder_report.warnings,
        parts=[
            AgentPartView(
                name=part.name,
                honoured=part.supported,
                not_honoured=[IgnoredView(what=item.what, why=item.why) for item in part.ignored],
                findings=[ValidationFindingView(**asdict(finding)) for finding in part.findings],
            )
            for part in folder_report.parts
        ],
    )


def _print_report(screen: Screen, folder_report: FolderReport, *, is_well: bool) -> None:
    for finding in folder_report.problems:
        _print_finding(screen, finding)
    if folder_report.problems:
        screen.line(("", ""))
    for part in folder_report.parts:
        _print_part(screen, part)
    found = f"{plural(folder_report.errors, 'error')}, {plural(folder_report.warnings, 'warning')}"
    screen.paragraph((found, "green" if is_well else "bold red"))


def _print_finding(screen: Screen, finding: Finding) -> None:
    place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
    level = finding.level
    screen.paragraph((f"{place}: ", "bold"), (f"{level}: ", _STYLES[level]), (finding.what, ""))
    if finding.fix:
        screen.paragraph((f"fix: {finding.fix}", "cyan"), indent=4)


def _print_part(screen: Screen, part_report: PartReport) -> None:
    notes = [finding for finding in part_report.findings if finding.level == "note"]
    if not (part_report.supported or part_report.ignored or notes):
        return
    screen.line((part_report.name, "bold"))
    for what in part_report.supported[:_MAX_LINES]:
        screen.paragraph(("✓ ", "green"), (what, ""), indent=2)
    _print_remaining(screen, part_report.supported)
    for item in part_report.ignored[:_MAX_LINES]:
        screen.paragraph(("✗ ", "yellow"), (item.what, ""), (f": {item.why}", "dim"), indent=2)
    _print_remaining(screen, part_report.ignored)
    for note in notes[:_MAX_LINES]:
        screen.paragraph(("· ", "dim"), (str(note), "dim"), indent=2)
    _print_remaining(screen, notes)


def _print_remaining(screen: Screen, every: Sequence[str | IgnoredItem | Finding]) -> None:
    if len(every) > _MAX_LINES:
        screen.paragraph((f"and {len(every) - _MAX_LINES} more; --json has all", "dim"), indent=4)
