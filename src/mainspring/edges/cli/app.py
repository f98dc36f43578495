"""The root command and the table of its commands. A command's module is imported when the command
is used, so that `mainspring --help` stays fast; its action is run by `run_returned_action`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from mainspring import __version__
from mainspring.core.lazy_module import LazyModule
from mainspring.edges.cli.commands import ParsedCommand, returning_action

if TYPE_CHECKING:
    from mainspring.edges.cli import action_runner
else:
    action_runner = LazyModule("mainspring.edges.cli.action_runner")


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is defined, and its summary in `mainspring --help`."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "run": CommandEntry("run.run_command", "run", "Run an agent until it is done."),
    "chat": CommandEntry("chat.chat_command", "chat", "Talk with an agent."),
    "top": CommandEntry("sessions.top", "top", "Show sessions that are running or waiting."),
    "ui": CommandEntry("operate.ui", "ui", "Show this folder's sessions in a browser."),
    "serve": CommandEntry(
        "operate.serve", "serve", "Serve the Managed Agents API and run its sessions."
    ),
    "worker": CommandEntry("operate.serve", "worker", "Run sessions of a service on this machine."),
    "init": CommandEntry("agent_files.init", "init", "Create a new agent in a folder."),
    "validate": CommandEntry("agent_files.validate", "validate", "Check an agent's folder."),
    "agents": CommandEntry(
        "agent_files.agents", "app", "List, show, compare and roll back agents."
    ),
    "sessions": CommandEntry(
        "sessions.session", "app", "List, read, move, fork and rewind sessions."
    ),
    "log": CommandEntry(
        "sessions.log_maintenance", "app", "Read, verify, export and delete session logs."
    ),
    "cost": CommandEntry("sessions.cost_report", "cost", "Show the cost of model calls."),
    "insights": CommandEntry(
        "sessions.insights_report", "insights", "Show wasted tokens, failures and missing rules."
    ),
    "slo": CommandEntry(
        "operate.slo_report",
        "slo",
        "Show service levels: errors, latency and ratings.",
    ),
    "context": CommandEntry(
        "sessions.context_report", "app", "Show the requests that a model received."
    ),
    "replay": CommandEntry(
        "sessions.replay_command", "replay", "Replay a session without calling its model."
    ),
    "test": CommandEntry("sessions.replay_command", "test", "Record sessions as tests."),
    "eval": CommandEntry("evals.eval", "app", "Run eval suites, compare runs and gate changes."),
    "environment": CommandEntry(
        "agent_files.environment",
        "app",
        "Set up the packages and services that a repository needs.",
    ),
    "models": CommandEntry("agent_files.models", "app", "List and test models."),
    "plugin": CommandEntry("agent_files.plugin", "app", "Install, show and remove plugins."),
    "workflow": CommandEntry("workflows.file_commands", "app", "Check, run and steer workflows."),
    "mcp": CommandEntry(
        "mcp_servers.mcp_serve", "app", "Use MCP servers, or serve agents over MCP."
    ),
    "skill": CommandEntry(
        "agent_files.skill_install", "app", "Write, install, scan, trust and remove skills."
    ),
    "knowledge": CommandEntry(
        "memories.knowledge", "app", "Manage documents that an agent can search and cite."
    ),
    "memory": CommandEntry(
        "memories.memory_proposals", "app", "Read, change and share what agents remember."
    ),
    "dream": CommandEntry(
        "memories.dream", "app", "Learn from past sessions: propose, review and apply memories."
    ),
    "evolve": CommandEntry(
        "evolve.commands", "app", "Improve an agent by its suites, and prove that it got better."
    ),
    "vault": CommandEntry(
        "operate.vault", "app", "Manage secrets that agents use without seeing them."
    ),
    "policy": CommandEntry("agent_files.policy", "app", "Show, test and trust permission rules."),
    "keys": CommandEntry("operate.keys", "app", "Create, list and revoke API keys."),
    "tenants": CommandEntry("operate.tenants", "app", "Create, show, change and disable tenants."),
    "halt": CommandEntry("operate.tenants", "halt", "Stop an agent, a tenant or everything."),
    "resume": CommandEntry("operate.tenants", "resume", "Resume what `halt` stopped."),
    "approvals": CommandEntry(
        "operate.approval_policy", "app", "List and answer calls that wait for approval."
    ),
    "audit": CommandEntry("operate.audit", "app", "Show and verify the service's audit log."),
    "deployments": CommandEntry(
        "operate.deployments", "app", "Show, run and pause scheduled agents."
    ),
    "webhooks": CommandEntry(
        "operate.webhooks", "app", "Show webhook endpoints and their deliveries."
    ),
    "adopt": CommandEntry(
        "run.adopt", "adopt", "Accept sessions and stores that came from somewhere else."
    ),
    "backup": CommandEntry("operate.backup", "backup", "Write the whole store to a file."),
    "restore": CommandEntry("operate.backup", "restore", "Restore a backup into an empty store."),
    "migrate": CommandEntry(
        "operate.backup", "migrate", "Migrate the store's tables to this version."
    ),
    "doctor": CommandEntry(
        "operate.doctor", "doctor", "Check whether sessions can run on this machine."
    ),
    "completion": CommandEntry(
        "operate.completion", "completion", "Print a script for Tab completion."
    ),
}


class LazyGroup(TyperGroup):
    """Lists the commands of the table; imports the module of the one that is called."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 (what Typer passes to its class)
        super().__init__(**options)
        for name, entry in COMMANDS.items():
            self.commands[name] = TyperCommand(name, help=entry.summary, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 (private types)
        name, entry, arguments = super().resolve_command(ctx, args)
        return name, entry if name is None else self.load(name), arguments

    def load(self, name: str) -> TyperCommand | TyperGroup:
        entry = COMMANDS[name]
        target = getattr(import_module(f"mainspring.edges.cli.{entry.module}"), entry.attribute)
        if isinstance(target, typer.Typer):
            group = get_group(target)
            group.help = entry.summary
            return group
        parent = typer.Typer(add_completion=False, rich_markup_mode=None)
        is_async = inspect.iscoroutinefunction(target)
        parent.command(name)(returning_action(target) if is_async else target)
        return cast("TyperCommand", get_command(parent))


def run_returned_action(parsed: ParsedCommand, store: str | None, debug: bool, **_: object) -> None:
    try:
        status = action_runner.run_action(parsed.action, store=store, debug=debug)
    except typer.BadParameter as error:
        error.ctx = error.ctx or parsed.context
        raise
    raise typer.Exit(status)


app = typer.Typer(
    name="mainspring",
    cls=LazyGroup,
    help="Run durable agents with limits, and read everything they did.",
    epilog="--store and --debug may appear anywhere on the command line.",
    result_callback=run_returned_action,
    rich_markup_mode=None,  # Rich would double the time that --help takes
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def mainspring(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(
            help="A SQLite file or postgresql://... [default: $MAINSPRING_STORE, else"
            " .mainspring/mainspring.db in this folder or one above it]",
            metavar="URL",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version.")] = False,
) -> None:
    del store, debug  # `run_returned_action` receives them
    if version or context.invoked_subcommand is None:
        typer.echo(f"mainspring {__version__}" if version else context.get_help())
        raise typer.Exit
