"""All commands. They parse and return an action; `act` is where it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring import __version__
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli import (
    agents,
    approvals,
    audit,
    backup,
    completion,
    deployments,
    doctor,
    init,
    keys,
    log,
    model,
    plugin,
    policy,
    reports,
    run_and_chat,
    serve,
    session,
    skill,
    tenants,
    validate,
    vault,
    webhooks,
)
from mainspring.edges.cli.action import Action

if TYPE_CHECKING:
    from mainspring.edges.cli import action_runner
else:
    action_runner = LazyModule("mainspring.edges.cli.action_runner")


def run_returned_action(action: Action, store: str | None, debug: bool, **_: object) -> None:
    raise typer.Exit(action_runner.run_action(action, store=store, debug=debug))


app = typer.Typer(
    name="mainspring",
    help="Durable agents: run them, keep them inside their limits, read their record.",
    epilog="--store and --debug are understood anywhere on the line.",
    result_callback=run_returned_action,
    rich_markup_mode=None,  # Rich would double the time that --help takes
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_and_chat.run)
app.command("chat")(run_and_chat.chat)
app.command("serve")(serve.serve)
app.command("worker")(serve.worker)
app.command("init")(init.init)
app.command("validate")(validate.validate)
app.add_typer(agents.app, name="agents")
app.add_typer(session.app, name="sessions")
app.add_typer(log.app, name="log")
app.command("cost")(reports.cost)
app.command("insights")(reports.insights)
app.add_typer(reports.context, name="context")
app.command("replay")(reports.replay)
app.add_typer(reports.test, name="test")
app.add_typer(model.app, name="models")
app.add_typer(plugin.app, name="plugin")
app.add_typer(skill.app, name="skill")
app.add_typer(vault.app, name="vault")
app.add_typer(policy.app, name="policy")
app.add_typer(keys.app, name="keys")
app.add_typer(tenants.app, name="tenants")
app.command("halt")(tenants.halt)
app.command("resume")(tenants.resume)
app.add_typer(approvals.app, name="approvals")
app.add_typer(audit.app, name="audit")
app.add_typer(deployments.app, name="deployments")
app.add_typer(webhooks.app, name="webhooks")
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("migrate")(backup.migrate)
app.command("doctor")(doctor.doctor)
app.command("completion")(completion.completion)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mainspring {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def mainspring(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            help="A SQLite file or postgresql://... [default: $MAINSPRING_STORE, else"
            " .mainspring/mainspring.db here or in a folder above]",
            metavar="URL",
        ),
    ] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback when something breaks.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    del store, debug, version  # `act` gets them
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
