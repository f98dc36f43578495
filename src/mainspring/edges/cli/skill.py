"""`mainspring skill`: arguments and options."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import Action, command_group
from mainspring.edges.cli.options import JsonOption, YesOption

if TYPE_CHECKING:
    from mainspring.edges.cli import skill_commands, skill_find, skill_install
else:
    skill_commands = LazyModule("mainspring.edges.cli.skill_commands")
    skill_find = LazyModule("mainspring.edges.cli.skill_find")
    skill_install = LazyModule("mainspring.edges.cli.skill_install")

app = command_group()

SkillName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="As `skill ls` lists it.")
]
ProjectOption: TypeAlias = Annotated[
    bool, typer.Option("--project/--user", help="This project's skills, or those for all projects.")
]
AnywayOption: TypeAlias = Annotated[
    bool, typer.Option("--trust-anyway", help="Trust it even if something in it is dangerous.")
]


@app.command()
def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lowercase letters, digits, single hyphens.")
    ],
    description: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What it does and when to use it; the model sees this."),
    ] = None,
    project: ProjectOption = False,
    json: JsonOption = False,
) -> Action:
    """Create a skill: one small, valid SKILL.md."""
    return partial(
        skill_commands.new, name=name, description=description, is_project=project, json=json
    )


@app.command()
def ls(json: JsonOption = False) -> Action:
    """List the skills and commands that agents have here, and whether each is trusted."""
    return partial(skill_commands.ls, json=json)


@app.command()
def show(name: SkillName, json: JsonOption = False) -> Action:
    """Show a skill: its description, files and text."""
    return partial(skill_commands.show, name=name, json=json)


@app.command()
def install(  # noqa: PLR0913, PLR0917 (the options of the command)
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, a .zip or .skill file, or a git repository: owner/repo, https://...[#REF].",
        ),
    ],
    only: Annotated[
        str,
        typer.Option(
            "--only", "--skill", metavar="A,B", help="Which skills, if the source has several."
        ),
    ] = "",
    all_: Annotated[bool, typer.Option("--all", help="All skills of the source.")] = False,
    project: ProjectOption = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an older one.")] = False,
    yes: YesOption = False,
    anyway: AnywayOption = False,
    json: JsonOption = False,
) -> Action:
    """Fetch skills, show what a scan finds in them and, if you agree, install and trust them as
    they are. A scan is not a proof."""
    names = frozenset(name.strip() for name in only.split(",") if name.strip())
    installation = skill_install.InstallRequest(
        source=source,
        skill_choice=skill_install.SkillChoice(names=names, takes_all=all_),
        is_project=project,
        replaces=replace,
        consent=_consent(yes, anyway),
    )
    return partial(skill_install.install, install_request=installation, json=json)


@app.command()
def scan(
    skill: Annotated[str, typer.Argument(metavar="NAME|PATH", help="A skill, or any folder.")],
    trust: Annotated[bool, typer.Option("--trust", help="Trust it as it is now.")] = False,
    yes: YesOption = False,
    anyway: AnywayOption = False,
    json: JsonOption = False,
) -> Action:
    """Scan a skill for scripts, network access, secrets, hidden text and requested permissions.
    Exit status 1: something in it is dangerous. A scan is not a proof."""
    consent = _consent(yes, anyway) if trust or anyway else None
    return partial(skill_commands.scan, id_or_part=skill, consent=consent, json=json)


@app.command()
def remove(
    name: SkillName,
    project: ProjectOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Delete an installed skill, and the trust in it."""
    return partial(skill_commands.remove, name=name, is_project=project, is_agreed=yes, json=json)


@app.command()
def disable(name: SkillName, json: JsonOption = False) -> Action:
    """Disable a skill or a command in all projects. Its files stay."""
    return partial(skill_commands.switch, name=name, is_disabled=True, json=json)


@app.command()
def enable(name: SkillName, json: JsonOption = False) -> Action:
    """Enable a disabled skill."""
    return partial(skill_commands.switch, name=name, is_disabled=False, json=json)


@app.command()
def find(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="What it should do.")],
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
) -> Action:
    """Find skills in a catalogue by what they do. `skill install` installs them."""
    return partial(skill_find.find, query=" ".join(words), catalogue=catalogue, json=json)


@app.command()
def check(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Folders of skills, or their SKILL.md.")
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Apply the standard strictly, as for publishing.")
    ] = False,
    json: JsonOption = False,
) -> Action:
    """Check skills for problems. Exit status 1: one of them would not be used or, with --strict,
    is not valid."""
    return partial(skill_commands.check, paths=paths, is_strict=strict, json=json)


def _consent(yes: bool, anyway: bool) -> skill_commands.Consent:
    return skill_commands.Consent(is_given=yes, covers_danger=anyway)
