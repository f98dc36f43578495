"""`mainspring skill`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, NotFound
from mainspring.edges.cli.agent_files.skill_report import (
    TRUST_STYLES,
    Consent,
    SkillUsageView,
    TrustState,
    print_files,
    print_report,
    read_usage,
    require_consent,
    skill_path,
    skill_row,
    skill_view,
    summary,
    trust_state,
    usage_text,
    usage_view,
)
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, YesOption
from mainspring.edges.cli.render.printing import (
    Screen,
    confirm,
    print_list,
    print_note,
    print_result,
    sanitize_text,
)
from mainspring.error_table import with_hints
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.frontmatter_fields import read_frontmatter
from mainspring.runtime.definition_files.json_file import is_inside
from mainspring.runtime.definition_files.scopes import PartLocation, Scopes
from mainspring.runtime.packages import installer
from mainspring.runtime.packages.scan import ScanReport
from mainspring.runtime.packages.scan import scan as look_into
from mainspring.runtime.packages.trust_pins import PINS_FILE, TrustPin, TrustPins
from mainspring.runtime.skills import skill_installation
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_discovery import discover, set_disabled
from mainspring.runtime.skills.skill_file import read_skill
from mainspring.runtime.skills.skill_installation import write_new_skill
from mainspring.runtime.skills.skill_usage import SkillUse
from mainspring.runtime.skills.strict_validation import check_strict
from mainspring.wiring.agent_selection import agent_selection

_LEVEL_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}

CHANGED_NOTE = "changed since you trusted it; scan it again"


app = command_group()
"""`skill_install` adds the commands `install` and `find`."""

SkillName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="The skill's name, as `skill ls` lists it.")
]
ProjectOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--project/--user", help="Whether it belongs to this project, or to all your projects."
    ),
]


class SkillDetailView(Struct, frozen=True, kw_only=True):
    skill: Skill
    trust: TrustState
    report: ScanReport
    usage: SkillUsageView
    body: str


@command(app)
async def new(
    settings: Settings,
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lowercase letters, digits, single hyphens.")
    ],
    description: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What it does and when to use it; the model sees this."),
    ] = None,
    project: ProjectOption = False,
    json: JsonOption = False,
) -> int:
    """Create a skill: one small, valid SKILL.md."""
    base = install_base(settings, is_project=project)
    created = await to_thread.run_sync(write_new_skill, base, name, description)
    if project:  # the user's own skills are always trusted, also after edits
        pin = TrustPin(hash=created.hash, when=clock.now())
        await to_thread.run_sync(open_pins(settings).pin, created.file.parent, pin)
    view = {"created": name, "file": str(created.file)}
    text = (("created ", "green"), (str(created.file), "bold"))
    print_result(settings, view, *text, json=json)
    if project and not json:
        hint = f"trusted; after you edit it: mainspring skill scan {name} --trust"
        Screen(settings).line((hint, "dim"))
    return 0


@command(app)
async def ls(
    settings: Settings,
    *,
    json: JsonOption = False,
) -> int:
    """List the skills and commands of agents here. Shows whether each is trusted."""
    scopes, pins = agent_selection(settings).scopes(), open_pins(settings)
    catalog = await to_thread.run_sync(partial(discover, scopes, is_pinned=pins.trusted_hash))
    usage = await read_usage(settings)
    views = await to_thread.run_sync(
        lambda: [skill_view(skill, pins, usage) for skill in catalog.skills]
    )
    for finding in () if json else catalog.findings:
        if finding.level != "note":
            print_note(settings, str(finding), _LEVEL_STYLES[finding.level])
    print_list(
        settings,
        views,
        json=json,
        heads=["NAME", "SCOPE", "TRUST", "IDLE", "LOADED", "USES", "WHERE", "DESCRIPTION"],
        row=lambda view: skill_row(view, scopes),
        empty="there are no skills here; `mainspring skill new NAME` creates one",
    )
    for view in () if json else views:
        if view.trust == "changed":
            print_note(settings, f"{view.name}: {CHANGED_NOTE}", "yellow")
    return 0


@command(app)
async def show(
    settings: Settings,
    *,
    name: SkillName,
    json: JsonOption = False,
) -> int:
    """Show a skill: its description, files and text."""
    pins = open_pins(settings)
    skill = await to_thread.run_sync(_find_skill, agent_selection(settings).scopes(), pins, name)
    report = await to_thread.run_sync(look_into, skill_path(skill))
    text = await to_thread.run_sync(partial(Path(skill.file).read_text, errors="replace"))
    trust, body = trust_state(skill, pins), read_frontmatter(text).body
    use = (await read_usage(settings)).get(skill.name, SkillUse())
    screen = Screen(settings)
    if json:
        view = SkillDetailView(
            skill=skill, trust=trust, report=report, usage=usage_view(use), body=body
        )
        screen.json(view)
        return 0
    screen.line((skill.name, "bold"), (f"  {skill.scope} {skill.kind}", ""))
    screen.paragraph((skill.description, ""))
    screen.line((skill.file, "dim"))
    screen.paragraph((trust, TRUST_STYLES[trust]), (f"; a scan says: {summary(report)}", ""))
    screen.line((usage_text(use), "dim"))
    if skill.allowed_tools:
        screen.paragraph(("may use, once trusted: ", "dim"), (", ".join(skill.allowed_tools), ""))
    print_files(screen, report)
    screen.text(f"\n{sanitize_text(body).strip()}\n")
    return 0


@command(app)
async def scan(
    settings: Settings,
    *,
    skill: Annotated[str, typer.Argument(metavar="NAME|PATH", help="A skill's name, or a folder.")],
    trust: Annotated[bool, typer.Option("--trust", help="Trust its current files.")] = False,
    consent: Consent,
    json: JsonOption = False,
) -> int:
    """Scan a skill for dangers. Looks for scripts, network access, secrets, hidden text and
    requested permissions. Exit status 1 if something is dangerous. A scan cannot prove that a skill
    is safe."""
    pins = open_pins(settings)
    place = await to_thread.run_sync(_resolve_path, settings, pins, skill)
    report = await to_thread.run_sync(look_into, place)
    status = await to_thread.run_sync(pins.status, place)
    screen = Screen(settings)
    if json:
        screen.json(report)
    else:
        print_report(screen, report)
        if status == "changed":
            screen.paragraph(("it has changed since you trusted it", "bold red"))
    if not (trust or consent.covers_danger):
        return 1 if report.severity == "danger" else 0
    if not require_consent(settings, report, consent, f"Trust the current files of {skill}?"):
        return 1
    pins.pin(place, TrustPin(hash=report.hash, when=clock.now(), severity=report.severity))
    if not json:
        screen.line(("trusted ", "green"), (str(place), "bold"), ("; a change revokes that", "dim"))
    return 0


@command(app)
async def remove(
    settings: Settings,
    *,
    name: SkillName,
    project: ProjectOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> int:
    """Delete an installed skill, and revoke its trust."""
    pins = open_pins(settings)
    scopes = agent_selection(settings).scopes()
    if project:
        scopes = Scopes(folder=scopes.folder)
    skill = await to_thread.run_sync(_find_skill, scopes, pins, name)
    _require_removable(skill)
    if not yes and not confirm(settings, f"Delete {skill.folder}?"):
        return 1
    base = install_base(settings, is_project=skill.scope == "project")
    with installer.staging_folder(base / skill_installation.FOLDER, now=clock.now()) as staging:
        await to_thread.run_sync(installer.remove, Path(skill.folder), Path(staging), pins)
    view = {"removed": name, "folder": skill.folder}
    text = (("removed ", ""), (name, "bold"), (f"  {skill.folder}", "dim"))
    return print_result(settings, view, *text, json=json)


@command(app)
async def disable(settings: Settings, *, name: SkillName, json: JsonOption = False) -> int:
    """Disable a skill or a command in all projects. Its files stay."""
    await to_thread.run_sync(
        _find_skill, agent_selection(settings).scopes(), open_pins(settings), name
    )
    return await _switch(settings, name, is_disabled=True, json=json)


@command(app)
async def enable(settings: Settings, *, name: SkillName, json: JsonOption = False) -> int:
    """Enable a disabled skill."""
    return await _switch(settings, name, is_disabled=False, json=json)


async def _switch(settings: Settings, name: str, *, is_disabled: bool, json: bool) -> int:
    change = partial(set_disabled, Path(settings.home), name, is_disabled=is_disabled)
    has_changed = await to_thread.run_sync(change)
    state = "disabled" if is_disabled else "enabled"
    note = "" if has_changed else f"  it was already {state}"
    text = ((f"{state} ", "green"), (name, "bold"), (note, "dim"))
    return print_result(settings, {state: name, "changed": has_changed}, *text, json=json)


@command(app)
async def check(
    settings: Settings,
    *,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Folders of skills, or their SKILL.md.")
    ],
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Apply the standard strictly, as required for publishing."),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Check skills for problems. Exit status 1 if one cannot be used or, with --strict, is not
    valid."""
    screen = Screen(settings)
    is_all_valid = True
    for path in paths:
        place = Path(settings.folder) / path
        folder = place.parent if place.is_file() else place
        findings = await to_thread.run_sync(check_strict if strict else _lenient_findings, folder)
        is_valid = not any(item.level == "error" or strict for item in findings)
        is_all_valid = is_all_valid and is_valid
        for finding in findings:
            if json:
                screen.json(finding)
            else:
                screen.paragraph((str(finding), _LEVEL_STYLES[finding.level]))
        if not json:
            screen.line(("valid " if is_valid else "not valid ", ""), (path, "bold"))
    return 0 if is_all_valid else 1


def install_base(settings: Settings, *, is_project: bool) -> Path:
    """Raises: InvalidInput: a link in the project leads elsewhere."""
    base = Path(settings.folder if is_project else settings.home)
    if is_project and not is_inside(base / skill_installation.FOLDER, base):
        raise InvalidInput(
            f"{base / skill_installation.FOLDER}: a link that leads out of the project"
        )
    return base


def open_pins(settings: Settings) -> TrustPins:
    return TrustPins(Path(settings.home) / PINS_FILE)


def _find_skill(scopes: Scopes, pins: TrustPins, name: str) -> Skill:
    """Raises: NotFound."""
    for skill in discover(scopes, is_pinned=pins.trusted_hash).skills:
        if skill.name == name:
            return skill
    raise with_hints(NotFound("skill", name), "`mainspring skill ls` lists them")


def _resolve_path(settings: Settings, pins: TrustPins, id_or_part: str) -> Path:
    """The folder of a skill, by its name or by a path.

    Raises: NotFound.
    """
    path = Path(settings.folder) / Path(id_or_part).expanduser()
    looks_like_path = id_or_part.startswith((".", "~")) or any(
        item in id_or_part for item in (os.sep, "/")
    )
    if looks_like_path and path.exists():
        return path.parent if path.name.lower() == "skill.md" else path
    try:
        return skill_path(_find_skill(agent_selection(settings).scopes(), pins, id_or_part))
    except NotFound:
        if path.exists():
            return path
        raise


def _require_removable(skill: Skill) -> None:
    """Raises: InvalidInput."""
    if ":" in skill.name:
        raise InvalidInput(
            f"{skill.name} is a plugin's: `mainspring plugin remove` removes the plugin"
        )
    if skill.scope == "managed":
        raise InvalidInput(f"{skill.name} is installed for everybody on this machine: {skill.file}")
    if skill.kind == "command":
        raise InvalidInput(f"{skill.name} is a single file: delete {skill.file}")


def _lenient_findings(folder: Path) -> list[Finding]:
    file = next(
        (folder / name for name in ("SKILL.md", "skill.md") if (folder / name).exists()), None
    )
    if file is None:
        return [Finding(level="error", file=folder.name, what="has no SKILL.md")]
    display_path = f"{folder.absolute().name}/{file.name}"
    skill, findings = read_skill(file, PartLocation(folder.parent, "project"), display_path)
    if skill is None and not any(finding.level == "error" for finding in findings):
        return [*findings, Finding(level="error", file=display_path, what="cannot be used")]
    return findings
