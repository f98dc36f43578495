"""`mainspring validate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, plural
from mainspring.runtime.agent_folder.validation import FolderReport, IgnoredItem, PartReport
from mainspring.runtime.definition_files.finding import Finding
from mainspring.wiring.agent_selection import validate as validate_folder

_MAX_LINES = 20  # of one part, before they are folded into a count
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


class AgentPartView(Struct, frozen=True, kw_only=True):
    name: str
    honoured: tuple[str, ...]
    not_honoured: Sequence[IgnoredItem]
    findings: Sequence[Finding]


class ValidationReportView(Struct, frozen=True, kw_only=True):
    """The output of `--json`."""

    ok: bool
    errors: int
    warnings: int
    parts: list[AgentPartView]


async def validate(
    settings: Settings,
    *,
    folder: Annotated[
        str | None,
        typer.Argument(metavar="[FOLDER]", help="The agent's folder. [default: this folder]"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    json: JsonOption = False,
) -> int:
    """Check an agent's folder. Shows problems and their fixes, supported parts, and ignored parts
    with the reason. Exit status 1 if there is a problem."""
    report = await to_thread.run_sync(validate_folder, settings, folder)
    is_valid = not report.errors and not (strict and report.warnings)
    screen = Screen(settings)
    if json:
        screen.json(_report_view(report, is_valid=is_valid))
    else:
        _print_report(screen, report, is_valid=is_valid)
    return 0 if is_valid else 1


def _report_view(report: FolderReport, *, is_valid: bool) -> ValidationReportView:
    return ValidationReportView(
        ok=is_valid,
        errors=report.errors,
        warnings=report.warnings,
        parts=[
            AgentPartView(
                name=part.name,
                honoured=part.supported,
                not_honoured=part.ignored,
                findings=part.findings,
            )
            for part in report.parts
        ],
    )


def _print_report(screen: Screen, report: FolderReport, *, is_valid: bool) -> None:
    for finding in report.problems:
        _print_finding(screen, finding)
    if report.problems:
        screen.line(("", ""))
    for part in report.parts:
        _print_part(screen, part)
    summary = f"{plural(report.errors, 'error')}, {plural(report.warnings, 'warning')}"
    screen.paragraph((summary, "green" if is_valid else "bold red"))


def _print_finding(screen: Screen, finding: Finding) -> None:
    place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
    level = finding.level
    screen.paragraph((f"{place}: ", "bold"), (f"{level}: ", _STYLES[level]), (finding.what, ""))
    if finding.fix:
        screen.paragraph((f"fix: {finding.fix}", "cyan"), indent=4)


def _print_part(screen: Screen, part: PartReport) -> None:
    notes = [finding for finding in part.findings if finding.level == "note"]
    if not (part.supported or part.ignored or notes):
        return
    screen.line((part.name, "bold"))
    for item in part.supported[:_MAX_LINES]:
        screen.paragraph(("✓ ", "green"), (item, ""), indent=2)
    _print_remaining(screen, part.supported)
    for item in part.ignored[:_MAX_LINES]:
        screen.paragraph(("✗ ", "yellow"), (item.what, ""), (f": {item.why}", "dim"), indent=2)
    _print_remaining(screen, part.ignored)
    for note in notes[:_MAX_LINES]:
        screen.paragraph(("· ", "dim"), (str(note), "dim"), indent=2)
    _print_remaining(screen, notes)


def _print_remaining(screen: Screen, items: Sequence[str | IgnoredItem | Finding]) -> None:
    if len(items) > _MAX_LINES:
        screen.paragraph((f"and {len(items) - _MAX_LINES} more; --json shows all", "dim"), indent=4)
