"""`mainspring plugin`: how its commands are called."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.action import Action
from mainspring.edges.cli.log import JsonOption, YesOption
from mainspring.edges.cli.skill import AnywayOption

if TYPE_CHECKING:
    from mainspring.edges.cli import plugin_acts
else:
    plugin_acts = LazyModule("mainspring.edges.cli.plugin_acts")

app = typer.Typer(
    help="Packages of skills, agents, commands, hooks and MCP servers.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

PluginName = Annotated[
    str, typer.Argument(metavar="NAME", help="As `mainspring plugin ls` lists it.")
]
ProjectOption = Annotated[
    bool, typer.Option("--project", help="The project's, in .mainspring/plugins; not the user's.")
]


@app.command()
def install(  # noqa: PLR0913, PLR0917 (the options of the command)
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A folder, or a git repository as URL or URL#REF; a plugin or a marketplace.",
        ),
    ],
    plugin: Annotated[
        str | None,
        typer.Option("--plugin", metavar="NAME", help="Which one, of a marketplace that has many."),
    ] = None,
    project: ProjectOption = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the place of one of the same name.")
    ] = False,
    yes: YesOption = False,
    anyway: AnywayOption = False,
    json: JsonOption = False,
) -> Action:
    """Look into a plugin, say what it brings and what is odd, and, if that is agreed to, install it
    trusted as it is. A scan is not a proof."""
    consent = plugin_acts.Consent(is_given=yes, covers_danger=anyway)
    how = plugin_acts.PluginInstallOptions(
        project=project, replace=replace, consent=consent, json=json
    )
    return partial(plugin_acts.install, source=source, chosen=plugin, plugin_install_options=how)


@app.command()
def ls(json: JsonOption = False) -> Action:
    """List the plugins of the user and of the project here."""
    return partial(plugin_acts.ls, json=json)


@app.command()
def show(name: PluginName, project: ProjectOption = False, json: JsonOption = False) -> Action:
    """Show what a plugin brings, whether it is trusted, and what is odd about it."""
    return partial(plugin_acts.show, name=name, project=project, json=json)


@app.command()
def remove(
    name: PluginName,
    project: ProjectOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> Action:
    """Delete an installed plugin, and the trust in it."""
    return partial(plugin_acts.remove, name=name, project=project, is_agreed=yes, json=json)
