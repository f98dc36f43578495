"""What `mainspring skill install` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.edges.cli.printing import Screen, plural
from mainspring.edges.cli.skill_acts import install_base, open_pins
from mainspring.edges.cli.skill_report import (
    SEVERITY_STYLES,
    Consent,
    confirm,
    print_report,
    require_consent,
    summary,
)
from mainspring.runtime.skills import skill_installation
from mainspring.runtime.skills.scan import ScanReport
from mainspring.runtime.skills.skill_installation import SkillCandidate, SkillChoice
from mainspring.runtime.skills.source_fetching import resolve_source


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    """What is to be installed, and where."""

    source: str
    choice: SkillChoice = skill_installation.DEFAULT_CHOICE
    is_project: bool
    replaces: bool
    consent: Consent


class InstalledSkillView(Struct, frozen=True, kw_only=True):
    installed: str
    folder: str
    source: str
    commit: str
    report: ScanReport


async def install(settings: Settings, *, installation: InstallRequest, json: bool) -> int:
    """Exit status 1: nobody agreed, or some of several were left out.

    Raises: InvalidInput, AlreadyThere, TooLarge.
    """
    base = install_base(settings, is_project=installation.is_project)
    source = resolve_source(installation.source, Path(settings.folder))
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    with skill_installation.skill_staging_folder(base, now=clock.now()) as folder:
        bench = Path(folder)
        fetch = partial(skill_installation.fetch, source, bench, installation.choice)
        offer = await to_thread.run_sync(fetch)
        if len(offer.candidates) == 1:
            candidates = list(offer.candidates)
            is_agreed = _confirm_one(settings, candidates[0], installation, base, json=json)
        else:
            candidates = list(_installable(notes, offer.candidates, installation, base))
            is_agreed = bool(candidates) and _confirm_several(
                settings, candidates, installation, json=json
            )
        if not is_agreed:
            return 1
        for candidate in candidates:
            keep = partial(
                skill_installation.install, candidate, bench, base, replaces=installation.replaces
            )
            kept = await to_thread.run_sync(keep)
            skill_installation.trust(candidate, kept, open_pins(settings), clock.now())
            _print_installed(screen, candidate, kept, json=json)
    if offer.others and not (json or installation.choice.takes_all):
        more = f"{plural(len(offer.others), 'more skill')} there: --all or --only installs them"
        notes.paragraph((more, "dim"))
    return 0 if len(candidates) == len(offer.candidates) else 1


def _confirm_one(
    settings: Settings,
    candidate: SkillCandidate,
    installation: InstallRequest,
    base: Path,
    *,
    json: bool,
) -> bool:
    skill_installation.check_free(base, candidate.skill.name, replaces=installation.replaces)
    if not json:
        screen = Screen(settings)
        at = f" at {candidate.commit[:12]}" if candidate.commit else ""
        screen.line((candidate.skill.name, "bold"), (f"  from {candidate.source}{at}", "dim"))
        screen.paragraph((candidate.skill.description, ""))
        print_report(screen, candidate.report)
    question = f"Install {candidate.skill.name}, and trust it as it is?"
    return require_consent(settings, candidate.report, installation.consent, question)


def _installable(
    notes: Screen, candidates: Sequence[SkillCandidate], installation: InstallRequest, base: Path
) -> Iterator[SkillCandidate]:
    """Of several, those that nothing speaks against; the rest is named with the reason."""
    for candidate in candidates:
        name = candidate.skill.name
        if candidate.report.severity == "danger" and not installation.consent.covers_danger:
            why = f"a scan finds {summary(candidate.report)}; `--only {name}` shows it"
            notes.paragraph((f"{name} is left out: {why}", "yellow"))
        elif not installation.replaces and skill_installation.is_installed(base, name):
            notes.paragraph((f"{name} is left out: it is installed already; --replace", "yellow"))
        else:
            yield candidate


def _confirm_several(
    settings: Settings,
    candidates: Sequence[SkillCandidate],
    installation: InstallRequest,
    *,
    json: bool,
) -> bool:
    if not json:
        Screen(settings).table(
            ["NAME", "FILES", "SCAN", "DESCRIPTION"],
            [
                [
                    (candidate.skill.name, "bold"),
                    (str(len(candidate.report.files)), "dim"),
                    (
                        summary(candidate.report),
                        SEVERITY_STYLES[candidate.report.severity or "note"],
                    ),
                    (candidate.skill.description, ""),
                ]
                for candidate in candidates
            ],
        )
    question = f"Install {plural(len(candidates), 'skill')}, and trust them as they are?"
    return installation.consent.is_given or confirm(settings, question)


def _print_installed(screen: Screen, candidate: SkillCandidate, kept: Path, *, json: bool) -> None:
    if not json:
        screen.line(("installed ", "green"), (candidate.skill.name, "bold"), (f"  {kept}", "dim"))
        return
    view = InstalledSkillView(
        installed=candidate.skill.name,
        folder=str(kept),
        source=candidate.source,
        commit=candidate.commit,
        report=candidate.report,
    )
    screen.json(msgspec.json.encode(view))
