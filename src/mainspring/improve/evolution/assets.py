"""What worked: for each change that was promoted its signal, the change and the evidence. The next
campaign reads it first, and it can be moved to another agent as a file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import EvolutionTrack
from mainspring.improve.evolution.campaigns.campaign_log import list_campaigns, read_campaign
from mainspring.improve.evolution.tracks.static_checks import text_problem
from mainspring.log.session_log import SessionLog

ASSETS_FILE = "assets.jsonl"
"""What was imported."""
_MAX_HINTS = 3
"""Hints of one request: more would tell the improver what to do instead of what was learned."""


class Asset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change that has passed the gate."""

    signal: str
    """The cause that it was for."""
    track: EvolutionTrack
    change: str
    """In the format of `diff -u`."""
    gain: float
    low: float
    high: float
    """The gain on sealed cases, and its 95 % interval, of the promotion that it was part of."""
    campaign_id: str


async def list_assets(log: SessionLog, agent: str) -> list[Asset]:
    assets: list[Asset] = []
    for created in await list_campaigns(log, agent):
        campaign = await read_campaign(log, created.campaign_id)
        for promoted in campaign.promotions:
            assets += [
                Asset(
                    signal=step.cluster,
                    track=step.track,
                    change=step.diff,
                    gain=promoted.gate.difference,
                    low=promoted.gate.low,
                    high=promoted.gate.high,
                    campaign_id=campaign.id,
                )
                for step in campaign.steps
                if step.is_kept and step.calls <= promoted.calls
            ]
    return list({(item.signal, item.change): item for item in assets}.values())


def hints(assets: Sequence[Asset], signal: str) -> tuple[str, ...]:
    """Changes for the same signal, those with the largest proven gain first."""
    matching = [item for item in assets if item.signal == signal]
    matching.sort(key=lambda item: -item.low)
    return tuple(item.change for item in matching[:_MAX_HINTS])


def read_assets(content: bytes) -> list[Asset]:
    """Raises: InvalidInput: it is not such a file, or has a secret or instructions for a reader."""
    try:
        lines = content.splitlines()
        assets = [msgspec.json.decode(line, type=Asset) for line in lines if line.strip()]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"not a file of `evolve export`: {error}") from error
    for asset in assets:
        if (problem := text_problem(asset.change)) is not None:
            raise InvalidInput(f"{asset.signal}: {problem}")
    return assets
