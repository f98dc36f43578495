"""`mainspring skill install` and `find`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NetworkRefused, TooLarge
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.agent_files.skill import ProjectOption, app, install_base, open_pins
from mainspring.edges.cli.agent_files.skill_report import (
    SEVERITY_STYLES,
    Consent,
    print_report,
    require_consent,
    summary,
)
from mainspring.edges.cli.commands import command
from mainspring.edges.cli.options import JsonOption
from mainspring.edges.cli.render.printing import Screen, confirm, plural, print_list, print_result
from mainspring.files.atomic_file import read_bounded
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.installer import PackageCandidate
from mainspring.runtime.packages.scan import ScanReport
from mainspring.runtime.packages.source_fetching import resolve_source
from mainspring.runtime.skills import skill_installation
from mainspring.runtime.skills.published_skills import (
    PublishedSkill,
    best_entries,
    entries_in,
    entries_of,
)
from mainspring.runtime.skills.skill_installation import FOLDER, SkillChoice

if TYPE_CHECKING:
    import aiohttp
else:
    aiohttp = LazyModule("aiohttp")

_MAX_BYTES = 20_000_000  # of a catalogue of skills
_MAX_RESULTS = 20  # of a search
_DOWNLOAD_SECONDS = 60.0  # for one download


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    """The skills to install, and where."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, a .zip or .skill file, or a git repository: owner/repo, https://...[#REF].",
        ),
    ]
    only: Annotated[
        str,
        typer.Option(
            "--only",
            "--skill",
            metavar="A,B",
            help="Which skills, separated by commas, if the source has several.",
        ),
    ] = ""
    takes_all: Annotated[bool, typer.Option("--all", help="All skills of the source.")] = False
    is_project: ProjectOption = False
    replaces: Annotated[bool, typer.Option("--replace", help="Replace an installed skill.")] = False

    @property
    def choice(self) -> SkillChoice:
        names = frozenset(name.strip() for name in self.only.split(",") if name.strip())
        return SkillChoice(names=names, takes_all=self.takes_all)


class InstalledSkillView(Struct, frozen=True, kw_only=True):
    installed: str
    folder: str
    source: str
    commit: str
    report: ScanReport


@command(app)
async def install(
    settings: Settings, *, request: InstallRequest, consent: Consent, json: JsonOption = False
) -> int:
    """Scan, install and trust skills. Shows what the scan finds, and asks first. A scan cannot
    prove that a skill is safe."""
    place = install_base(settings, is_project=request.is_project) / FOLDER
    source = resolve_source(request.source, Path(settings.folder))
    notes = Screen(settings, stderr=True)
    with installer.staging_folder(place, now=clock.now()) as folder:
        staging = Path(folder)
        fetch = partial(skill_installation.fetch, source, staging, request.choice)
        offer = await to_thread.run_sync(fetch)
        if len(offer.candidates) == 1:
            candidates = list(offer.candidates)
            installer.check_not_installed(place, candidates[0].name, replaces=request.replaces)
            is_agreed = _confirm_one(settings, candidates[0], consent, json=json)
        else:
            candidates = list(_installable(notes, offer.candidates, request, consent, place))
            is_agreed = bool(candidates) and _confirm_several(
                settings, candidates, consent, json=json
            )
        if not is_agreed:
            return 1
        for candidate in candidates:
            install_it = partial(installer.install, candidate, staging, place)
            target = await to_thread.run_sync(partial(install_it, replaces=request.replaces))
            installer.trust(candidate, target, open_pins(settings), clock.now())
            _print_installed(settings, candidate, target, json=json)
    if offer.others and not (json or request.takes_all):
        note = f"{plural(len(offer.others), 'more skill')} there: --all or --only installs them"
        notes.paragraph((note, "dim"))
    return 0 if len(candidates) == len(offer.candidates) else 1


def _confirm_one(
    settings: Settings,
    candidate: PackageCandidate,
    consent: Consent,
    *,
    json: bool,
) -> bool:
    if not json:
        screen = Screen(settings)
        at = f" at {candidate.commit[:12]}" if candidate.commit else ""
        screen.line((candidate.name, "bold"), (f"  from {candidate.source}{at}", "dim"))
        screen.paragraph((candidate.description, ""))
        print_report(screen, candidate.scan_report)
    question = f"Install {candidate.name}, and trust its current files?"
    return require_consent(settings, candidate.scan_report, consent, question)


def _installable(
    notes: Screen,
    candidates: Sequence[PackageCandidate],
    request: InstallRequest,
    consent: Consent,
    place: Path,
) -> Iterator[PackageCandidate]:
    """Of several skills, those that can be installed. Prints why the others are skipped."""
    for candidate in candidates:
        name = candidate.name
        if candidate.scan_report.severity == "danger" and not consent.covers_danger:
            reason = f"a scan finds {summary(candidate.scan_report)}; `--only {name}` shows it"
            notes.paragraph((f"{name} is skipped: {reason}", "yellow"))
        elif not request.replaces and installer.is_installed(place, name):
            notes.paragraph((f"{name} is skipped: it is installed already; --replace", "yellow"))
        else:
            yield candidate


def _confirm_several(
    settings: Settings,
    candidates: Sequence[PackageCandidate],
    consent: Consent,
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
    question = f"Install {plural(len(candidates), 'skill')}, and trust their current files?"
    return consent.is_given or confirm(settings, question)


def _print_installed(
    settings: Settings, candidate: PackageCandidate, target: Path, *, json: bool
) -> None:
    view = InstalledSkillView(
        installed=candidate.name,
        folder=str(target),
        source=candidate.source,
        commit=candidate.commit,
        report=candidate.scan_report,
    )
    text = (("installed ", "green"), (candidate.name, "bold"), (f"  {target}", "dim"))
    print_result(settings, view, *text, json=json)


@command(app)
async def find(
    settings: Settings,
    *,
    words: Annotated[
        list[str], typer.Argument(metavar="WORDS...", help="What the skill should do.")
    ],
    catalogue: Annotated[
        str,
        typer.Option(
            "--in",
            metavar="PATH|URL",
            envvar="MAINSPRING_SKILL_CATALOGUE",
            help="A folder of skills, a marketplace.json, a JSON list; or the address of one.",
        ),
    ],
    json: JsonOption = False,
) -> int:
    """Find skills in a catalogue by what they do. `skill install` installs them."""
    query = " ".join(words)
    entries = await _read_entries(settings, catalogue)
    matches = await to_thread.run_sync(best_entries, entries, query, _MAX_RESULTS)
    print_list(
        settings,
        matches,
        json=json,
        heads=["NAME", "SOURCE", "DESCRIPTION"],
        row=lambda entry: [(entry.name, "bold"), (entry.source, "dim"), (entry.description, "")],
        empty=f"none of the {len(entries)} skills matches {query!r}",
    )
    return 0 if matches else 1


async def _read_entries(settings: Settings, catalogue: str) -> list[PublishedSkill]:
    if catalogue.startswith("https://"):
        return entries_of(await _download(catalogue, max_bytes=_MAX_BYTES))
    return await to_thread.run_sync(_local_entries, Path(settings.folder), catalogue)


def _local_entries(folder: Path, catalogue: str) -> list[PublishedSkill]:
    place = folder / Path(catalogue).expanduser()
    if place.is_dir():
        return entries_in(place)
    content = read_bounded(place, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{catalogue}: there is no such file or folder")
    return entries_of(content)


async def _download(url: str, *, max_bytes: int) -> bytes:
    """Uses the user's proxy settings.

    Raises: NetworkRefused, TooLarge.
    """
    timeout = aiohttp.ClientTimeout(total=_DOWNLOAD_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(url) as response,
        ):
            if response.status != 200:
                raise NetworkRefused(f"{url}: the server answered {response.status}")
            content = await response.content.read(max_bytes + 1)
            while len(content) <= max_bytes and (piece := await response.content.read(max_bytes)):
                content += piece
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise NetworkRefused(f"{url}: no answer ({type(error).__name__}: {error})") from error
    if len(content) > max_bytes:
        raise TooLarge(f"{url}: more than {max_bytes:,} bytes")
    return content
