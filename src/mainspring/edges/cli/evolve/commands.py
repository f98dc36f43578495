"""`mainspring evolve`: starts, resumes and shows campaigns, and decides about what they promote."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from anyio import to_thread
from msgspec.structs import replace

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.commands import command, command_group
from mainspring.edges.cli.evals.eval_suites import load_suites
from mainspring.edges.cli.evolve import views
from mainspring.edges.cli.options import AgentFolderOption, JsonOption, YesOption
from mainspring.edges.cli.render.printing import Screen, confirm, plural, print_note
from mainspring.improve.evals.suites.suite_files import find_suites
from mainspring.improve.evolution.campaigns.campaign_log import (
    Campaign,
    read_campaign,
    read_ledger,
    sealed_looks,
)
from mainspring.improve.evolution.campaigns.campaign_views import approval_hash, promotion_diff
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns
from mainspring.improve.evolution.tracks.evolve_settings import (
    EvolveSettings,
    read_settings,
    write_first_settings,
)
from mainspring.improve.evolution.watch import VersionWatch
from mainspring.wiring.evolution_assembly import CampaignOptions, open_campaigns

app = command_group()

PresetChoice: TypeAlias = Literal["innovate", "harden", "repair-only"]
"""As `Preset` of the settings, which are not imported for a help text."""

CampaignArgument = Annotated[
    str | None,
    typer.Argument(metavar="[CAMPAIGN]", help="The campaign's id. [default: the last one]"),
]
VersionArgument = Annotated[
    int | None, typer.Argument(metavar="[VERSION]", help="A number that `evolve history` shows.")
]
ProgramOption = Annotated[
    bool,
    typer.Option("--program", help="Improve the program of program.md instead of the agent."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignArguments:
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="CAMPAIGN", help="Continue a campaign that was stopped."),
    ] = None
    calls: Annotated[
        int | None,
        typer.Option("--calls", min=1, metavar="N", help="The most trials, the gate's included."),
    ] = None
    preset: Annotated[
        PresetChoice | None,
        typer.Option("--preset", help="How bold it is, instead of evolve.yaml's."),
    ] = None
    improver: Annotated[
        str | None,
        typer.Option("--improver", metavar="MODEL", help="The model that proposes changes."),
    ] = None
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.01, metavar="N", help="How long the search may take."),
    ] = None
    apply: Annotated[
        bool, typer.Option("--apply", help="Use what passes the gate without a review.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only estimate calls, cost and time.")
    ] = False
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Run although files are not committed.")
    ] = False
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Run the suite's programs without isolation.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateArguments:
    calls: Annotated[
        int | None, typer.Option("--calls", min=1, metavar="N", help="The most trials.")
    ] = None
    preset: Annotated[
        PresetChoice | None,
        typer.Option("--preset", help="How bold it is, instead of evolve.yaml's."),
    ] = None
    apply: Annotated[
        bool, typer.Option("--apply", help="Use what passes the gate without a review.")
    ] = False
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Run the suite's programs without isolation.")
    ] = False

    @property
    def run(self) -> CampaignArguments:
        return CampaignArguments(
            calls=self.calls, preset=self.preset, apply=self.apply, no_sandbox=self.no_sandbox
        )


@command(app)
async def init(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    suite: Annotated[str, typer.Option("--suite", help="The suite. [default: the first]")] = "",
    improver: Annotated[
        str, typer.Option("--improver", metavar="MODEL", help="The model that proposes changes.")
    ] = "",
) -> int:
    """Write evolve.yaml: what campaigns may change, spend and decide."""
    folder = Path(settings.folder, agent or ".")
    suites = await to_thread.run_sync(find_suites, folder)
    if not suite and not suites:
        load_suites(folder, [])  # says how to write one
    file = write_first_settings(folder, suite=suite or suites[0].stem, improver=improver)
    Screen(settings).line(("wrote ", ""), (str(file), "bold"))
    return 0


@command(app)
async def run(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    arguments: CampaignArguments,
    json: JsonOption = False,
) -> int:
    """Run a campaign: find out what fails and why, try changes, and let sealed cases decide. The
    exit status is 0 if something was promoted or there is nothing to fix, else 1."""
    async with _open(settings, agent, arguments, is_program=program) as campaigns:
        if arguments.dry_run:
            return await views.print_estimate(settings, campaigns, json=json)
        if arguments.resume is None:
            campaign_id = await campaigns.start()
            suite = campaigns.suite_file.suite.name
            print_note(settings, f"campaign {campaign_id} on suite {suite}")
        else:
            campaign_id = await _campaign_id(campaigns, arguments.resume)
        campaign = await campaigns.run(campaign_id)
        views.print_campaign(settings, campaign, json=json)
        if campaign.status == "promoted" and campaigns.settings.policy == "review" and not json:
            print_note(settings, f"`mainspring evolve promote {campaign_id}` uses it")
        return int(campaign.status not in ("promoted", "nothing"))


@command(app)
async def propose(
    settings: Settings,
    *,
    change: Annotated[
        Path,
        typer.Argument(metavar="CHANGE", help="A folder with the changed files, and no others."),
    ],
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    arguments: GateArguments,
    json: JsonOption = False,
) -> int:
    """Let the gate decide about a change that somebody else has made: a person, a dream, another
    agent. Each of many such proposals is screened first. The exit status is 0 if it is promoted,
    else 1."""
    async with _open(settings, agent, arguments.run, is_program=program) as campaigns:
        folder = Path(settings.folder, change)
        proposal = await to_thread.run_sync(campaigns.read_change, folder)
        campaign_id = await campaigns.start(trigger="proposal", proposal=proposal)
        campaign = await campaigns.run(campaign_id)
        views.print_campaign(settings, campaign, json=json)
        return int(campaign.status != "promoted")


@command(app)
async def status(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    json: JsonOption = False,
) -> int:
    """Show the version in use, and what the last campaign does or did."""
    async with _open(settings, agent, is_program=program) as campaigns:
        ledger = await read_ledger(campaigns.log, campaigns.agent)
        last = ledger.campaigns[-1].campaign_id if ledger.campaigns else None
        campaign = None if last is None else await read_campaign(campaigns.log, last)
        looks = await sealed_looks(campaigns.log, campaigns.agent, campaigns.suite_file.hash)
        return views.print_status(settings, ledger, campaign, looks, json=json)


@command(app)
async def history(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    json: JsonOption = False,
) -> int:
    """List the versions, newest first: where each comes from, and its measured gain."""
    async with _open(settings, agent, is_program=program) as campaigns:
        ledger = await read_ledger(campaigns.log, campaigns.agent)
        return views.print_history(settings, ledger, json=json)


@command(app)
async def show(
    settings: Settings,
    *,
    campaign: CampaignArgument = None,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show the steps of a campaign: signals, diagnosis, what was tried and why it was refused."""
    async with _open(settings, agent, is_program=program) as campaigns:
        found = await _campaign(campaigns, campaign)
        if html is not None:
            await views.write_report(campaigns, found, Path(settings.folder, html))
            Screen(settings).line(("wrote ", ""), (str(html), "bold"))
            return 0
        views.print_campaign(settings, found, json=json, with_steps=True)
        return 0


@command(app)
async def diff(
    settings: Settings,
    *,
    before: Annotated[int, typer.Argument(metavar="VERSION", help="The older version.")],
    after: Annotated[
        int | None, typer.Argument(metavar="[VERSION]", help="[default: the version in use]")
    ] = None,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
) -> int:
    """Compare two versions."""
    async with _open(settings, agent, is_program=program) as campaigns:
        Screen(settings).text(await views.version_diff(campaigns, before, after))
        return 0


@command(app)
async def promote(
    settings: Settings,
    *,
    campaign: CampaignArgument = None,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    share: Annotated[
        float | None,
        typer.Option(
            "--share", min=0.01, max=1, help="The share of new sessions; below 1 it is a canary."
        ),
    ] = None,
    yes: YesOption = False,
) -> int:
    """Use the version that a campaign has promoted, after you have seen the change."""
    async with _open(settings, agent, is_program=program) as campaigns:
        found = await _campaign(campaigns, campaign)
        if not found.promotions:
            raise InvalidInput(f"campaign {found.id} has promoted nothing: {found.status}")
        promoted = found.promotions[-1]
        if not yes:
            Screen(settings).text(await promotion_diff(campaigns.log, found))
            print_note(settings, promoted.gate.reason)
            if not confirm(settings, "Use this version?"):
                return 1
        version = await campaigns.promote(found.id, diff_hash=approval_hash(promoted), share=share)
        Screen(settings).line((f"version {version.number} ", "bold"), ("is in use", "green"))
        return 0


@command(app)
async def rollback(
    settings: Settings,
    *,
    version: VersionArgument = None,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, for the history.")
    ] = "by hand",
) -> int:
    """Restore a version; by default the one before the version in use."""
    async with _open(settings, agent, is_program=program) as campaigns:
        restored = await campaigns.roll_back(version, reason)
        Screen(settings).line((f"version {restored.number} ", "bold"), ("is in use again", "green"))
        return 0


@command(app)
async def watch(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    json: JsonOption = False,
) -> int:
    """Look at the real sessions of the version in use: if they got worse, run it and the last good
    version again, and roll back if the version is to blame. The exit status is 1 after an alarm."""
    async with _open(settings, agent) as campaigns:
        report = await VersionWatch(campaigns).check()
        views.print_watch(settings, report, json=json)
        return int(report.status in ("alarm", "kept", "rolled back"))


@command(app)
async def pause(
    settings: Settings,
    *,
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
    off: Annotated[bool, typer.Option("--off", help="Allow campaigns again.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="The reason, for others.")] = "",
) -> int:
    """Stop all campaigns on the agent: none starts, and a running one stops before its next
    call."""
    async with _open(settings, agent, is_program=program) as campaigns:
        await campaigns.versions.pause(reason, is_paused=not off)
        Screen(settings).line(("campaigns are allowed" if off else "campaigns are paused", "bold"))
        return 0


@command(app)
async def learn(
    settings: Settings, *, agent: AgentFolderOption = None, json: JsonOption = False
) -> int:
    """Read real sessions: ways of working that several share become proposals of skills,
    corrections become rules, NEED_NEW_SKILL a draft. Nothing is used before the gate allows it."""
    async with _open(settings, agent) as campaigns:
        learning = await to_thread.run_sync(campaigns.learning)
        drafts = await learning.drafts()
        places = [await to_thread.run_sync(learning.write, draft) for draft in drafts]
        return views.print_drafts(settings, list(zip(drafts, places, strict=True)), json=json)


@command(app, name="import")
async def import_(
    settings: Settings,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `evolve export`.")],
    agent: AgentFolderOption = None,
) -> int:
    """Add what worked elsewhere: campaigns read it first. It is scanned, and changes nothing."""
    async with _open(settings, agent) as campaigns:
        count = await views.import_assets(campaigns, Path(settings.folder, file))
        Screen(settings).line((f"imported {plural(count, 'change')}", "bold"))
        return 0


@command(app)
async def export(
    settings: Settings,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON Lines file to write.")],
    agent: AgentFolderOption = None,
    program: ProgramOption = False,
) -> int:
    """Write what worked (signal, change, evidence) into a file. Secrets are left out."""
    async with _open(settings, agent, is_program=program) as campaigns:
        count = await views.export_assets(campaigns, file)
        Screen(settings).line((f"wrote {plural(count, 'change')} to ", ""), (str(file), "bold"))
        return 0


@asynccontextmanager
async def _open(
    settings: Settings,
    agent: str | None,
    arguments: CampaignArguments | None = None,
    *,
    is_program: bool = False,
) -> AsyncGenerator[FolderCampaigns, None]:
    folder = Path(settings.folder, agent or ".")
    arguments = arguments or CampaignArguments()
    evolve = await to_thread.run_sync(partial(read_settings, folder, is_optional=is_program))
    evolve = _with_arguments(evolve, arguments)
    suite = None
    if not is_program:
        (suite,) = await to_thread.run_sync(load_suites, folder, [evolve.suite])
    options = CampaignOptions(
        folder=folder,
        settings=evolve,
        suite=suite,
        program=is_program,
        allow_dirty=arguments.allow_dirty,
        is_unsandboxed=arguments.no_sandbox,
        report=lambda text: print_note(settings, text),
    )
    async with open_campaigns(settings, options) as campaigns:
        yield campaigns


def _with_arguments(evolve: EvolveSettings, arguments: CampaignArguments) -> EvolveSettings:
    if arguments.calls is not None:
        evolve = replace(evolve, calls=replace(evolve.calls, metric=arguments.calls))
    if arguments.preset is not None:
        evolve = replace(evolve, preset=arguments.preset)
    if arguments.improver is not None:
        evolve = replace(evolve, improver=arguments.improver)
    if arguments.minutes is not None:
        evolve = replace(evolve, minutes=arguments.minutes)
    return replace(evolve, policy="apply") if arguments.apply else evolve


async def _campaign_id(campaigns: FolderCampaigns, name: str | None) -> str:
    ledger = await read_ledger(campaigns.log, campaigns.agent)
    names = [item.campaign_id for item in ledger.campaigns]
    matches = names[-1:] if name is None else [item for item in names if item.endswith(name)]
    if len(matches) != 1:
        known = ", ".join(names[-5:]) or "none yet: `mainspring evolve run`"
        raise InvalidInput(f"there is no campaign {name or ''}; there are {known}")
    return matches[0]


async def _campaign(campaigns: FolderCampaigns, name: str | None) -> Campaign:
    return await read_campaign(campaigns.log, await _campaign_id(campaigns, name))
