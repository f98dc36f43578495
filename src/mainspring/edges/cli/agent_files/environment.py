"""`mainspring environment`: the packages and services that a repository needs, proven by its
tests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from anyio import to_thread
from msgspec import Struct

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.sender import Origin
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.options import JsonOption, parse_dollars
from mainspring.edges.cli.render.printing import Screen, local_time, print_list, print_note
from mainspring.edges.cli.run.run_command import run_attended
from mainspring.edges.cli.run.session_runner import SessionRunner, open_session_runner, print_status
from mainspring.edges.cli.session_lookup import find_session, open_existing_log
from mainspring.harness.permissions.policy import PolicyRule
from mainspring.log.task_groups import unwrap_single_error
from mainspring.runtime.environment_setup import REQUEST, TOOL, EnvironmentSetup
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.saved_environments import EnvironmentPlan, SavedEnvironment
from mainspring.runtime.session.run_result import RunResult
from mainspring.wiring.sandboxes import sandbox_pool
from mainspring.wiring.saved_environment import environment_setup, saved_environments

app = command_group()

RepositoryArgument = Annotated[
    str, typer.Argument(metavar="[REPO]", help="A folder that is a git repository.")
]


class EnvironmentView(Struct, frozen=True, kw_only=True):
    repository: str
    plan: EnvironmentPlan
    files: tuple[str, ...]
    session_id: str
    saved_at: str
    config: dict[str, object]
    """For `POST /v1/environments`."""

    @classmethod
    def of(cls, saved: SavedEnvironment) -> EnvironmentView:
        return cls(
            repository=saved.repository,
            plan=saved.plan,
            files=saved.files,
            session_id=saved.session_id,
            saved_at=saved.saved_at.isoformat(),
            config={"type": "cloud", "packages": saved.plan.packages},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupArguments:
    test: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="The test command. [default: the agent finds it]"),
    ] = None
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model to use instead of the default.")
    ] = None
    budget: Annotated[
        Decimal | None,
        typer.Option(parser=parse_dollars, metavar="USD", help="The cost limit."),
    ] = None

    def options(self, repository: Path) -> RunOptions:
        return RunOptions(
            workspace=repository,
            model=self.model,
            max_cost_usd=self.budget,
            rules=(PolicyRule(text=TOOL, behavior="allow", source="mainspring environment"),),
        )


@command(app)
async def setup(
    settings: Settings,
    *,
    repo: RepositoryArgument = ".",
    arguments: SetupArguments,
    json: JsonOption = False,
) -> int:
    """Let an agent set up a repository's environment. It finds out which packages and services the
    repository needs, proves it with the repository's tests in the sandbox, and saves it for later
    sessions."""
    repository = _repository(settings, repo)
    environments = saved_environments(Path(settings.home))
    resumed = await _unfinished(settings, repository)
    with unwrap_single_error():
        async with sandbox_pool(settings) as sandboxes:
            work = environment_setup(
                settings, sandboxes, repository, arguments.test, partial(print_note, settings)
            )
            async with open_session_runner(
                settings,
                arguments.options(repository),
                resumed,
                unattended=True,
                change_agent=work.agent,
            ) as runner:
                session_id = await _run(settings, runner, work)
    saved = await to_thread.run_sync(environments.read, repository)
    if saved is None or saved.session_id != session_id:
        print_note(settings, "nothing was proven, so nothing was saved")
        return 1
    return _print_environment(settings, saved, json=json)


@command(app)
async def show(
    settings: Settings, *, repo: RepositoryArgument = ".", json: JsonOption = False
) -> int:
    """Show the environment of a repository, and how it was proven."""
    saved = saved_environments(Path(settings.home)).find(Path(settings.folder, repo))
    if saved is None:
        raise InvalidInput(f"{repo} has no environment yet: mainspring environment setup {repo}")
    return _print_environment(settings, saved, json=json)


@command(app)
async def ls(settings: Settings, *, json: JsonOption = False) -> int:
    """List repositories that have an environment."""
    environments = saved_environments(Path(settings.home)).list()
    return print_list(
        settings,
        [EnvironmentView.of(item) for item in environments],
        json=json,
        heads=["REPOSITORY", "PACKAGES", "SERVICES", "TEST"],
        row=lambda view: [
            (view.repository, "bold"),
            (str(sum(map(len, view.plan.packages.values()))), ""),
            (", ".join(service.name for service in view.plan.services), ""),
            (view.plan.test, "dim"),
        ],
        empty="no environment yet: `mainspring environment setup REPO`",
    )


@command(app)
async def rm(settings: Settings, *, repo: RepositoryArgument = ".") -> int:
    """Remove the environment of a repository; packages stay cached."""
    if not saved_environments(Path(settings.home)).remove(Path(settings.folder, repo)):
        raise InvalidInput(f"{repo} has no environment")
    print_note(settings, "removed")
    return 0


async def _run(settings: Settings, runner: SessionRunner, work: EnvironmentSetup) -> str:
    """Run the agent until it ends. The next call continues a run that a crash interrupted."""
    environments, repository = work.environments, work.repository
    session = runner.session
    if session is None:
        session = await runner.start(origin=Origin(type="command", id="environment setup"))
        await session.send(REQUEST)
        environments.set_unfinished(repository, session.id)
    result = await run_attended(settings, session, own={REQUEST}, notices=runner.notices)
    if isinstance(result, RunResult):
        environments.set_unfinished(repository, None)
        print_status(Screen(settings, stderr=True), result)
    return session.id


async def _unfinished(settings: Settings, repository: Path) -> str | None:
    environments = saved_environments(Path(settings.home))
    session_id = environments.unfinished(repository)
    if session_id is None:
        return None
    try:
        async with open_existing_log(settings) as log:
            await find_session(settings, log, session_id)
    except (SessionNotFound, InvalidInput):  # it was deleted, or is in another store
        return None
    print_note(settings, "continuing the interrupted run")
    return session_id


def _repository(settings: Settings, repo: str) -> Path:
    folder = Path(os.path.realpath(Path(settings.folder, repo)))
    if not (folder / ".git").exists():
        raise InvalidInput(f"{repo} is not a git repository; use a checkout of one")
    return folder


def _print_environment(settings: Settings, saved: SavedEnvironment, *, json: bool) -> int:
    screen, plan = Screen(settings), saved.plan
    if json:
        screen.json(EnvironmentView.of(saved))
        return 0
    screen.line(
        (f"environment of {saved.repository} ", "bold"), (local_time(saved.saved_at), "dim")
    )
    for manager, names in plan.packages.items():
        screen.line((f"  {manager:9}", "dim"), (" ".join(names), ""))
    for service in plan.services:
        screen.line(("  service  ", "dim"), (f"{service.name}: {service.command}", ""))
    for text in plan.setup:
        screen.line(("  setup    ", "dim"), (text, ""))
    screen.line(("  test     ", "dim"), (plan.test, ""))
    for line in saved.test_output.strip().splitlines()[-5:]:
        screen.line(("           ", ""), (line, "dim"))
    return 0
