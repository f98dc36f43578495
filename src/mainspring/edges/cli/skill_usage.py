"""How skills were used, for `mainspring skill ls` and `show`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from mainspring.config import Settings
from mainspring.edges.cli.render import counted, dollars
from mainspring.runtime.skills.usage import SkillUse, usage
from mainspring.wiring.stores import has_store, open_log


class UseView(Struct, frozen=True, kw_only=True):
    uses: int
    by_model: int
    by_user: int
    sessions: int
    succeeded: int
    failed: int
    cost_usd: str
    last: str | None


async def usage_here(settings: Settings) -> Mapping[str, SkillUse]:
    """In all sessions of this store; to look at nothing must not create anything."""
    if not has_store(settings):
        return {}
    async with open_log(settings) as log:
        return await usage(log)


def use_view(use: SkillUse) -> UseView:
    return UseView(
        uses=use.uses,
        by_model=use.by_model,
        by_user=use.by_user,
        sessions=use.sessions,
        succeeded=use.succeeded,
        failed=use.failed,
        cost_usd=str(use.cost_usd),
        last=None if use.last is None else use.last.isoformat(),
    )


def in_words(use: SkillUse) -> str:
    if use.last is None:
        return "never used"
    times, sessions = counted(use.uses, "time"), counted(use.sessions, "session")
    return (
        f"used {times} in {sessions}, {use.by_user} of them by a user;"
        f" {use.succeeded} went well, {use.failed} did not; {dollars(use.cost_usd)};"
        f" last on {use.last.date().isoformat()}"
    )
