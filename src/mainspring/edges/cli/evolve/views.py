"""What `mainspring evolve` prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring import __version__
from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.render.printing import Screen, local_time, plural, print_list, print_note
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.improve.evolution.assets import ASSETS_FILE, list_assets, read_assets
from mainspring.improve.evolution.campaign_text import step_lines
from mainspring.improve.evolution.campaigns.campaign_log import (
    Campaign,
    VersionLedger,
    read_candidate,
    read_ledger,
)
from mainspring.improve.evolution.campaigns.campaign_views import (
    campaign_detail,
    campaign_view,
    version_views,
)
from mainspring.improve.evolution.campaigns.html_report import html_page
from mainspring.improve.evolution.candidate import candidate_diff
from mainspring.improve.evolution.folder_campaigns import FolderCampaigns, split_cases
from mainspring.improve.evolution.tracks.folder_texts import read_texts
from mainspring.improve.evolution.tracks.learning import Draft
from mainspring.improve.evolution.watch import WatchReport


class EstimateView(Struct, frozen=True, kw_only=True):
    suite: str
    develop: int
    sealed: int
    calls_limit: int
    first_calls: int
    """The calls of the first observation, which every campaign makes."""
    gate_calls: int
    cost_usd: str
    """The most that all calls may cost, by earlier trials or a guess."""
    seconds: float
    basis: str


async def print_estimate(settings: Settings, campaigns: FolderCampaigns, *, json: bool) -> int:
    """What a campaign would spend at most, without spending anything."""
    view = await _estimate(campaigns)
    if json:
        Screen(settings).json(view)
        return 0
    Screen(settings).line(
        (f"{view.suite}: ", "bold"),
        (f"{view.develop} cases to develop with, {view.sealed} sealed; ", ""),
        (f"{view.first_calls} to {view.calls_limit} trials ", ""),
        (f"({view.gate_calls} for each decision), ", "dim"),
        (f"at most ${view.cost_usd} and {view.seconds:.0f} s ({view.basis})", ""),
    )
    return 0


async def _estimate(campaigns: FolderCampaigns) -> EstimateView:
    suite = campaigns.suite_file.suite
    develop, sealed = split_cases(suite.cases, campaigns.settings.rotation)
    limit = campaigns.settings.calls.metric
    estimate = await campaigns.estimate()
    cost = estimate.cost_usd * limit
    if (most := campaigns.settings.limit_usd) is not None:
        cost = min(cost, most)
    return EstimateView(
        suite=suite.name,
        develop=len(develop),
        sealed=len(sealed),
        calls_limit=limit,
        first_calls=min(limit, len(develop)),
        gate_calls=2 * len(sealed) * campaigns.settings.trials,
        cost_usd=f"{cost:.4f}",
        seconds=estimate.seconds * limit / suite.parallel,
        basis=estimate.basis,
    )


def print_campaign(
    settings: Settings, campaign: Campaign, *, json: bool, with_steps: bool = False
) -> None:
    screen = Screen(settings)
    if json:
        screen.json(campaign_view(campaign))
        return
    if with_steps:
        for payload in (campaign.signal, campaign.recommended, *campaign.steps):
            for line in () if payload is None else step_lines(payload):
                screen.paragraph((line, ""))
        for payload in (*campaign.refusals, *campaign.promotions):
            for line in step_lines(payload):
                screen.paragraph((line, ""))
    for promoted in campaign.promotions[-1:]:
        screen.text(f"{promoted.diff}\n")
    reason = "it is still running" if campaign.ended is None else campaign.ended.reason
    screen.paragraph((f"{campaign.id} {campaign.status}: ", "bold"), (reason, ""))


async def write_report(campaigns: FolderCampaigns, campaign: Campaign, file: Path) -> None:
    page = html_page(await campaign_detail(campaigns.log, campaign), __version__)
    await to_thread.run_sync(write_atomic, file, page.encode())


def print_status(
    settings: Settings, ledger: VersionLedger, campaign: Campaign | None, looks: int, *, json: bool
) -> int:
    """`looks`: how often the gate has looked at the sealed cases."""
    screen, active = Screen(settings), ledger.active
    if json:
        screen.json(
            {
                "active": None if active is None else active.number,
                "canary": None if ledger.canary is None else ledger.canary.number,
                "paused": ledger.paused is not None,
                "sealed_looks": looks,
                "campaign": None if campaign is None else campaign_view(campaign),
            }
        )
        return 0
    in_use = (
        "no version is recorded yet" if active is None else f"version {active.number} is in use"
    )
    screen.line((in_use, "bold"))
    if ledger.canary is not None:
        share = f"{ledger.canary.share:.0%}"
        screen.line((f"version {ledger.canary.number} is a canary for {share} of sessions", ""))
    if ledger.paused is not None:
        screen.line((f"campaigns are paused: {ledger.paused.reason}", "yellow"))
    if looks:
        worn = "; `rotation` in evolve.yaml draws others" if looks >= _WORN_LOOKS else ""
        screen.line((f"the sealed cases were looked at {plural(looks, 'time')}{worn}", "dim"))
    if campaign is not None:
        print_campaign(settings, campaign, json=False)
    return 0


_WORN_LOOKS = 20
"""Looks after which sealed cases should be replaced: each decision says a little about them."""


def print_watch(settings: Settings, report: WatchReport, *, json: bool) -> None:
    screen = Screen(settings)
    if json:
        screen.json(report)
        return
    screen.paragraph((f"{report.status}: ", "bold"), (report.reason, ""))


def print_history(settings: Settings, ledger: VersionLedger, *, json: bool) -> int:
    status = print_list(
        settings,
        version_views(ledger),
        json=json,
        heads=["VERSION", "TIME", "HASH", "TRIGGER", "AUTHOR", "GAIN", ""],
        row=lambda view: [
            (str(view.number), "bold"),
            (local_time(view.time), "dim"),
            (view.hash.removeprefix("sha256:")[:12], ""),
            (view.trigger, ""),
            (view.author, "dim"),
            (_gain(view.scores), ""),
            ("in use" if view.is_active else "", "green"),
        ],
        empty="no version yet: `mainspring evolve run` records the first",
    )
    if not json:
        for item in ledger.rollbacks:
            print_note(settings, f"rolled back to version {item.number}: {item.reason}")
    return status


def _gain(scores: dict[str, float]) -> str:
    if "gain" not in scores:
        return ""
    low, high = scores["gain_low"], scores["gain_high"]
    return f"{scores['gain'] * 100:+.0f} points ({low * 100:+.0f} to {high * 100:+.0f})"


async def version_diff(campaigns: FolderCampaigns, before: int, after: int | None) -> str:
    ledger = await read_ledger(campaigns.log, campaigns.agent)
    old = await read_candidate(campaigns.log, ledger.version(before).hash)
    if after is None:
        return candidate_diff(old, await to_thread.run_sync(read_texts, campaigns.folder))
    return candidate_diff(old, await read_candidate(campaigns.log, ledger.version(after).hash))


def print_drafts(settings: Settings, drafts: Sequence[tuple[Draft, Path]], *, json: bool) -> int:
    if json:
        Screen(settings).json([draft for draft, _ in drafts])
        return 0
    screen = Screen(settings)
    for draft, place in drafts:
        kind = "proposal" if draft.is_proposal else "draft"
        if draft.refusal is not None:
            screen.paragraph((f"quarantine ({draft.kind}): ", "yellow"), (draft.refusal, ""))
        else:
            screen.paragraph((f"{kind} ({draft.kind}): ", "bold"), (draft.reason, ""))
            screen.paragraph((f"  `mainspring evolve propose {place}`", "dim"))
    if not drafts:
        screen.line(("the sessions suggest nothing", ""))
    return 0


async def import_assets(campaigns: FolderCampaigns, file: Path) -> int:
    """Raises: InvalidInput: there is no such file, or it is refused by the scan."""
    content = await to_thread.run_sync(read_bounded, file)
    if content is None:
        raise InvalidInput(f"{file}: there is no such file")
    assets = await to_thread.run_sync(read_assets, content)
    earlier = await to_thread.run_sync(read_bounded, campaigns.place / ASSETS_FILE) or b""
    lines = dict.fromkeys([*earlier.splitlines(), *(msgspec.json.encode(item) for item in assets)])
    joined = b"".join(line + b"\n" for line in lines)
    await to_thread.run_sync(write_atomic, campaigns.place / ASSETS_FILE, joined)
    return len(assets)


async def export_assets(campaigns: FolderCampaigns, file: Path) -> int:
    """Raises: InvalidInput: the scan refuses a change."""
    assets = await list_assets(campaigns.log, campaigns.agent)
    content = b"".join(msgspec.json.encode(item) + b"\n" for item in assets)
    await to_thread.run_sync(read_assets, content)
    await to_thread.run_sync(write_atomic, file, content)
    return len(assets)
