"""What `mainspring skill install` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.edges.cli.printing import Screen, plural
from mainspring.edges.cli.skill_commands import install_base, open_pins
from mainspring.edges.cli.skill_report import (
    SEVERITY_STYLES,
    Consent,
    confirm,
    print_report,
    require_consent,
    summary,
)
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.installer import PackageCandidate
from mainspring.runtime.packages.scan import ScanReport
from mainspring.runtime.packages.source_fetching import resolve_source
from mainspring.runtime.skills import skill_installation
from mainspring.runtime.skills.skill_installation import FOLDER, SkillChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    """What is to be installed, and where."""

    source: str
    skill_choice: SkillChoice = skill_installation.DEFAULT_CHOICE
    is_project: bool
    replaces: bool
    consent: Consent


class InstalledSkillView(Struct, frozen=True, kw_only=True):
    installed: str
    folder: str
    source: str
    commit: str
    report: ScanReport


async def install(settings: Settings, *, install_request: InstallRequest, json: bool) -> int:
    """Exit status 1: nobody agreed, or some of several were left out.

    Raises: InvalidInput, AlreadyThere, TooLarge.
    """
    place = install_base(settings, is_project=install_request.is_project) / FOLDER
    source = resolve_source(install_request.source, Path(settings.folder))
    screen, notes = Screen(settings), Screen(settings, stderr=True)
    with installer.staging_folder(place, now=clock.now()) as folder:
        staging = Path(folder)
        fetch = partial(skill_installation.fetch, source, staging, install_request.skill_choice)
        offer = await to_thread.run_sync(fetch)
        if len(offer.candidates) == 1:
            candidates = list(offer.candidates)
            is_agreed = _confirm_one(settings, candidates[0], install_request, place, json=json)
        else:
            candidates = list(_installable(notes, offer.candidates, install_request, place))
            is_agreed = bool(candidates) and _confirm_several(
                settings, candidates, install_request, json=json
            )
        if not is_agreed:
            return 1
        for candidate in candidates:
            keep = partial(
                installer.install,
                candidate,
                staging,
                place,
                replaces=install_request.replaces,
            )
            kept = await to_thread.run_sync(keep)
            installer.trust(candidate, kept, open_pins(settings), clock.now())
            _print_installed(screen, candidate, kept, json=json)
    if offer.others and not (json or install_request.skill_choice.takes_all):
        more = f"{plural(len(offer.others), 'more skill')} there: --all or --only installs them"
        notes.paragraph((more, "dim"))
    return 0 if len(candidates) == len(offer.candidates) else 1


def _confirm_one(
    settings: Settings,
    candidate: PackageCandidate,
    install_request: InstallRequest,
    place: Path,
    *,
    json: bool,
) -> bool:
    installer.check_not_installed(place, candidate.name, replaces=install_request.replaces)
    if not json:
        screen = Screen(settings)
        at = f" at {candidate.commit[:12]}" if candidate.commit else ""
        screen.line((candidate.name, "bold"), (f"  from {candidate.source}{at}", "dim"))
        screen.paragraph((candidate.description, ""))
        print_report(screen, candidate.scan_report)
    question = f"Install {candidate.name}, and trust it as it is?"
    return require_consent(settings, candidate.scan_report, install_request.consent, question)


def _installable(
    notes: Screen,
    candidates: Sequence[PackageCandidate],
    install_request: InstallRequest,
    place: Path,
) -> Iterator[PackageCandidate]:
    """Of several, those that nothing speaks against; the rest is named with the reason."""
    for candidate in candidates:
        name = candidate.name
        if candidate.scan_report.severity == "danger" and not install_request.consent.covers_danger:
            why = f"a scan finds {summary(candidate.scan_report)}; `--only {name}` shows it"
            notes.paragraph((f"{name} is left out: {why}", "yellow"))
        elif not install_request.replaces and installer.is_installed(place, name):
            notes.paragraph((f"{name} is left out: it is installed already; --replace", "yellow"))
        else:
            yield candidate


def _confirm_several(
    settings: Settings,
    candidates: Sequence[PackageCandidate],
    install_request: InstallRequest,
    *,
    json: bool,
) -> bool:
    if not json:
        Screen(settings).table(
            ["NAME", "FILES", "SCAN", "DESCRIPTION"],
            [
                [
                    (candidate.name, "bold"),
                    (str(len(candidate.scan_report.files)), "dim"),
                    (
                        summary(candidate.scan_report),
                        SEVERITY_STYLES[candidate.scan_report.severity or "note"],
                    ),
                    (candidate.description, ""),
                ]
                for candidate in candidates
            ],
        )
    question = f"Install {plural(len(candidates), 'skill')}, and trust them as they are?"
    return install_request.consent.is_given or confirm(settings, question)


def _print_installed(
    screen: Screen, candidate: PackageCandidate, kept: Path, *, json: bool
) -> None:
    if not json:
        screen.line(("installed ", "green"), (candidate.name, "bold"), (f"  {kept}", "dim"))
        return
    view = InstalledSkillView(
        installed=candidate.name,
        folder=str(kept),
        source=candidate.source,
        commit=candidate.commit,
        report=candidate.scan_report,
    )
    screen.json(view)
