"""Prints skills: lists, scan reports and usage. Also asks for consent."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.options import YesOption
from mainspring.edges.cli.render.event_summary import truncate
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    byte_size,
    confirm,
    dollars,
    plural,
)
from mainspring.error_table import with_hints
from mainspring.runtime.definition_files.scopes import Scope, Scopes
from mainspring.runtime.packages.scan import SEVERITIES, ScanHit, ScannedFile, ScanReport
from mainspring.runtime.packages.scan_rule import Severity
from mainspring.runtime.packages.trust_pins import TrustPins
from mainspring.runtime.skills.catalogue import BYTES_PER_TOKEN, tokens_of
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_usage import SkillUse, read_skill_usage
from mainspring.wiring.stores import has_store, open_log

NO_PROOF_NOTE = "a scan cannot prove that it is safe: read its files before you trust it"
SEVERITY_STYLES: Mapping[Severity, str] = {"danger": "bold red", "caution": "yellow", "note": "dim"}
_MAX_FILES = 30  # listed for one skill
_MAX_NOTES = 12  # findings of severity "note" that are shown


TrustState: TypeAlias = Literal["trusted", "changed", "not trusted"]
TRUST_STYLES: dict[TrustState, str] = {
    "trusted": "green",
    "changed": "bold red",
    "not trusted": "dim",
}


class SkillListView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    kind: str
    scope: Scope
    trust: TrustState
    idle_tokens: int
    """An estimate for the line that the model always sees."""
    loaded_tokens: int
    """An estimate for its text, which the model reads when it is used."""
    file: str
    description: str
    uses: int = 0
    source: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    is_given: YesOption = False
    """Consent in advance, without a question."""
    covers_danger: Annotated[
        bool,
        typer.Option("--trust-anyway", help="Trust it even if something in it is dangerous."),
    ] = False


def print_report(screen: Screen, report: ScanReport) -> None:
    print_files(screen, report)
    if report.hosts:
        hosts = ", ".join(report.hosts[:20]) + (", ..." if len(report.hosts) > 20 else "")
        screen.paragraph(("hosts that it names: ", "dim"), (hosts, ""))
    for severity in SEVERITIES:
        hits = report.of(severity)
        most = _MAX_NOTES if severity == "note" else len(hits)
        for hit in hits[:most]:
            _print_hit(screen, hit)
        if len(hits) > most:
            screen.line((f"and {plural(len(hits) - most, 'more note')} (--json has all)", "dim"))
    style = SEVERITY_STYLES[report.severity] if report.severity else "green"
    screen.paragraph((summary(report), style))
    screen.paragraph((NO_PROOF_NOTE, "dim"))


def print_files(screen: Screen, report: ScanReport) -> None:
    screen.table(
        ["FILE", "SIZE", "WHAT", "DOES"],
        [
            [
                (file.path, "bold" if file.is_executable else ""),
                (byte_size(file.size), "dim"),
                (_file_kind(file), ""),
                (_file_behaviour(report, file), ""),
            ]
            for file in report.files[:_MAX_FILES]
        ],
    )
    if len(report.files) > _MAX_FILES:
        screen.line((f"and {plural(len(report.files) - _MAX_FILES, 'more file')}", "dim"))


def summary(report: ScanReport) -> str:
    if report.severity is None:
        return "nothing found"
    counts = Counter(hit.severity for hit in report.hits)
    parts = [plural(counts[severity], severity) for severity in SEVERITIES if counts[severity]]
    return ", ".join(parts) + (f", and {report.left_off} more" if report.left_off else "")


def require_consent(
    settings: Settings, report: ScanReport, consent: Consent, question: str
) -> bool:
    """
    Raises:
        InvalidInput: it is dangerous and the consent does not cover that, or there is no terminal
            to ask at.
    """
    if report.severity == "danger" and not consent.covers_danger:
        refusal = InvalidInput("something in it is dangerous, so it was not trusted")
        raise with_hints(refusal, "read it; if you accept the risk, --trust-anyway")
    return consent.is_given or confirm(settings, question)


def _print_hit(screen: Screen, hit: ScanHit) -> None:
    where = hit.file if hit.line is None else f"{hit.file}:{hit.line}"
    count_text = f" (and {hit.more} more)" if hit.more else ""
    screen.paragraph(
        (f"{hit.severity} ", SEVERITY_STYLES[hit.severity]),
        (where, "bold"),
        (f"  {hit.rule}{count_text}", ""),
    )
    screen.paragraph((hit.why, ""), indent=2)
    if hit.excerpt:
        screen.line((f"  | {hit.excerpt}", "dim"))


def _file_kind(file: ScannedFile) -> str:
    file_type = file.language or file.kind
    return f"{file_type}, executable" if file.is_executable else file_type


def _file_behaviour(report: ScanReport, file: ScannedFile) -> str:
    topics = dict.fromkeys(
        hit.topic for hit in report.hits if hit.file == file.path and hit.severity != "note"
    )
    return ", ".join(topics)


class SkillUsageView(Struct, frozen=True, kw_only=True):
    uses: int
    by_model: int
    by_user: int
    sessions: int
    succeeded: int
    failed: int
    cost_usd: str
    last: str | None


async def read_usage(settings: Settings) -> Mapping[str, SkillUse]:
    """The usage of skills in all sessions of the store. Does not create a store."""
    if not has_store(settings):
        return {}
    async with open_log(settings) as log:
        return await read_skill_usage(log)


def usage_view(use: SkillUse) -> SkillUsageView:
    return SkillUsageView(
        uses=use.uses,
        by_model=use.by_model,
        by_user=use.by_user,
        sessions=use.sessions,
        succeeded=use.succeeded,
        failed=use.failed,
        cost_usd=str(use.cost_usd),
        last=None if use.last is None else use.last.isoformat(),
    )


def usage_text(use: SkillUse) -> str:
    if use.last is None:
        return "never used"
    times, sessions = plural(use.uses, "time"), plural(use.sessions, "session")
    return (
        f"used {times} in {sessions}, {use.by_user} of them by a user;"
        f" {use.succeeded} succeeded, {use.failed} failed; {dollars(use.cost_usd)};"
        f" last on {use.last.date().isoformat()}"
    )


def skill_path(skill: Skill) -> Path:
    return Path(skill.folder if skill.kind == "skill" else skill.file)


def trust_state(skill: Skill, pins: TrustPins) -> TrustState:
    if pins.status(skill_path(skill)) == "changed":
        return "changed"
    return "trusted" if skill.is_trusted else "not trusted"


def skill_view(skill: Skill, pins: TrustPins, used: Mapping[str, SkillUse]) -> SkillListView:
    pin = pins.of(skill_path(skill))
    return SkillListView(
        name=skill.name,
        kind=skill.kind,
        scope=skill.scope,
        trust=trust_state(skill, pins),
        idle_tokens=tokens_of(skill),
        loaded_tokens=round(_text_tokens(skill) / BYTES_PER_TOKEN),
        file=skill.file,
        description=skill.description,
        uses=used[skill.name].uses if skill.name in used else 0,
        source=pin.source if pin else "",
        commit=pin.commit if pin else "",
    )


def _text_tokens(skill: Skill) -> int:
    try:
        return os.stat(skill.file).st_size
    except OSError:
        return 0


def skill_row(view: SkillListView, scopes: Scopes) -> list[StyledText]:
    return [
        (view.name if view.kind == "skill" else f"/{view.name}", "bold"),
        (view.scope, ""),
        (view.trust, TRUST_STYLES[view.trust]),
        (str(view.idle_tokens), "dim"),
        (str(view.loaded_tokens), "dim"),
        (str(view.uses), "dim"),
        (scopes.display_path(Path(view.file)), "dim"),
        (truncate(view.description), ""),
    ]
