"""Assembles campaigns on the agent of a folder, from settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

import anyio
from anyio import to_thread
from msgspec.structs import replace

from mainspring.capabilities.providers.script_file import scripted_models
from mainspring.config import Settings
from mainspring.config import read_settings as read_all_settings
from mainspring.core import clock
from mainspring.core.errors import InvalidInput, ProviderFailed
from mainspring.core.sender import Sender, local_user
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.scoring.judge_calls import new_request
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.suite_files import named_suite
from mainspring.improve.evolution.campaigns.campaign_views import CampaignDetail, campaign_detail
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.metric_trials import Metric
from mainspring.improve.evolution.model_proposer import AskImprover, ReserveMoney
from mainspring.improve.evolution.tracks.evolve_settings import FILE as EVOLVE_FILE
from mainspring.improve.evolution.tracks.evolve_settings import EvolveSettings, read_settings
from mainspring.improve.evolution.tracks.program import ProgramFile, program_suite, read_program
from mainspring.runtime.model_question import complete, reply_text
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.run_arguments import is_in_event_loop
from mainspring.runtime.session_context import Models
from mainspring.wiring.agent_selection import evolution_place
from mainspring.wiring.eval_assembly import open_program_runner, open_suite_runner
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.stores import open_log
from mainspring.wiring.worktrees import uncommitted

_MAX_TOKENS = 8_000
"""Tokens of a proposal: a whole file of instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignOptions:
    folder: Path
    settings: EvolveSettings
    suite: SuiteFile | None
    """`None`: that of the program."""
    program: bool = False
    """Whether the program of `program.md` is improved, instead of the agent."""
    is_unsandboxed: bool = False
    metric: Metric | None = None
    """Scores answers, instead of the suite's graders."""
    allow_dirty: bool = False
    """Whether files that are not committed may be changed."""
    model: str | None = None
    """The agent's model, if it is not its own."""
    sender: Sender | None = None
    """Who acts; by default the user of this machine."""
    report: Callable[[str], None] = lambda _: None


@asynccontextmanager
async def open_campaigns(
    settings: Settings, options: CampaignOptions
) -> AsyncGenerator[FolderCampaigns, None]:
    """Raises: InvalidInput: there is no suite, or no valid `program.md`."""
    improver = options.settings.improver
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as models,
        _open_program(settings, options) as program,
    ):
        for name in filter(None, [improver]):
            scripts = await to_thread.run_sync(scripted_models, name, options.folder)
            for script_name, script in scripts.items():
                models.put(script_name, script)
        suite = options.suite
        if program is not None:
            suite = program_suite(options.folder, program.program, program.cases)
        if suite is None:
            raise InvalidInput(f"{EVOLVE_FILE} names no `suite`")
        yield FolderCampaigns(
            log=log,
            folder=options.folder,
            settings=options.settings,
            suite_file=suite,
            open_runner=partial(_open_runner, settings, options),
            ask=_improver(models, improver),
            sender=options.sender or local_user(settings.user),
            clock=clock.now,
            place=evolution_place(settings),
            author=improver,
            report=options.report,
            metric=options.metric,
            program=program,
            uncommitted=None if options.allow_dirty else uncommitted,
        )


@asynccontextmanager
async def _open_program(
    settings: Settings, options: CampaignOptions
) -> AsyncGenerator[ProgramFile | None, None]:
    if not options.program:
        yield None
        return
    program, cases = await to_thread.run_sync(read_program, options.folder)
    async with open_program_runner(settings, is_unsandboxed=options.is_unsandboxed) as run:
        yield ProgramFile(program=program, cases=cases, run_program=run)


class EvolveArguments(TypedDict, total=False):
    """What `evolve.yaml` of the agent says otherwise."""

    suite: str
    improver: str
    budget: int
    """The most trials, those of the gate included."""
    metric: Metric
    """Takes a case and the agent's answer, and returns a score from 0 to 1; by default the graders
    of the suite decide."""
    apply: bool
    """Whether what passes the gate is used at once."""


def evolve(agent: str | Path, **arguments: Unpack[EvolveArguments]) -> CampaignDetail:
    """Run a campaign on the agent in a folder, and return what it found out, tried and proved.

    Raises: InvalidInput.
    """
    if is_in_event_loop():
        raise InvalidInput("this code runs in an event loop: use `await aevolve(...)`")
    return anyio.run(partial(aevolve, agent, **arguments))


async def aevolve(agent: str | Path, **arguments: Unpack[EvolveArguments]) -> CampaignDetail:
    """`evolve` in an event loop."""
    folder = Path(agent)
    settings = read_all_settings(folder=folder)
    evolve = await to_thread.run_sync(partial(read_settings, folder, is_optional=True))
    evolve = replace(
        evolve,
        suite=arguments.get("suite", evolve.suite),
        improver=arguments.get("improver", evolve.improver),
        calls=replace(evolve.calls, metric=arguments.get("budget", evolve.calls.metric)),
        policy="apply" if arguments.get("apply") else evolve.policy,
    )
    suite = await to_thread.run_sync(partial(named_suite, folder, evolve.suite, field="suite"))
    metric = arguments.get("metric")
    options = CampaignOptions(folder=folder, settings=evolve, suite=suite, metric=metric)
    async with open_campaigns(settings, options) as campaigns:
        campaign = await campaigns.run(await campaigns.start())
        return await campaign_detail(campaigns.log, campaign)


@asynccontextmanager
async def open_folder_campaigns(
    settings: Settings, sender: Sender | None
) -> AsyncGenerator[FolderCampaigns, None]:
    """The campaigns of the folder of the settings, for a service.

    Raises: InvalidInput: it has no valid `evolve.yaml`, or no such suite.
    """
    folder = Path(settings.folder)
    evolve = await to_thread.run_sync(read_settings, folder)
    suite = await to_thread.run_sync(partial(named_suite, folder, evolve.suite, field="suite"))
    options = CampaignOptions(
        folder=folder,
        settings=evolve,
        suite=suite,
        sender=sender or Sender(kind="system", id="campaigns"),
    )
    async with open_campaigns(settings, options) as campaigns:
        yield campaigns


@asynccontextmanager
async def _open_runner(
    settings: Settings, options: CampaignOptions, folder: Path
) -> AsyncGenerator[SuiteRunner, None]:
    run_options = RunOptions(
        agent=folder, model=options.model, is_unsandboxed=options.is_unsandboxed
    )
    async with open_suite_runner(settings, run_options) as runner:
        yield runner


def _improver(models: Models, model: str) -> AskImprover:
    async def ask(
        key: str, system: str, question: str, reserve: ReserveMoney
    ) -> tuple[str, Decimal]:
        if not model:
            raise InvalidInput("evolve.yaml names no `improver`: the model that proposes changes")
        request, charge = new_request(
            models,
            models.resolve(model),
            system,
            question,
            max_tokens=_MAX_TOKENS,
            request_id=key,
        )
        reserve(charge.cost_usd)
        try:
            reply = await complete(models, request)
        except ProviderFailed as error:
            raise InvalidInput(f"the improver {model} did not answer: {error}") from error
        return reply_text(reply), models.cost(reply.model, reply.usage)

    return ask
