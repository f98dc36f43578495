"""What the log tells of how skills are used."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

from mainspring.core.events import (
    BudgetSettled,
    KnownPayload,
    SkillUsed,
    StatusIdle,
    StatusRunning,
    StopReason,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.skills.skill_usage import read_skill_usage


def skill_used(name: str, call: str | None = None) -> SkillUsed:
    return SkillUsed(name=name, hash="0", by="model" if call else "user", tool_use_id=call)


def cost(dollars: str) -> BudgetSettled:
    return BudgetSettled(reservation_id="r", cost_usd=dollars)


def status_idle(reason: str) -> StatusIdle:
    return StatusIdle(stop_reason=StopReason(type="end_turn"), reason=reason)


@asynccontextmanager
async def open_log(folder: Path) -> AsyncGenerator[SessionLog]:
    async with open_sqlite(folder / "log.db") as store:
        yield SessionLog(store)


async def record_events(log: SessionLog, *payloads: KnownPayload) -> str:
    session = await log.create()
    writer = await log.hold(session.id, owner="worker")
    writer.stage(*payloads)
    await writer.commit()
    await writer.release()
    return session.id


async def test_uses_are_counted_with_their_outcome_and_cost(tmp_path: Path):
    async with open_log(tmp_path) as log:
        await record_events(
            log,
            StatusRunning(),
            cost("1"),  # before it was used
            skill_used("deploy", "call_1"),
            skill_used("deploy", "call_1"),  # after a crash
            cost("0.25"),
            status_idle("requires_action"),
            cost("0.5"),
            status_idle("completed"),
            cost("2"),  # another run
            skill_used("deploy"),
            status_idle("max_turns"),
        )
        await record_events(
            log, skill_used("deploy", "call_1"), skill_used("review", "call_2"), cost("0.1")
        )
        await record_events(log, cost("9"), status_idle("completed"))
        found = await read_skill_usage(log)
    deploy, review = found["deploy"], found["review"]
    assert sorted(found) == ["deploy", "review"]
    assert (deploy.uses, deploy.by_model, deploy.by_user, deploy.sessions) == (3, 2, 1, 2)
    assert (deploy.succeeded, deploy.failed) == (1, 1)  # the third one is under way
    assert deploy.cost_usd == Decimal("0.85")
    assert (review.uses, review.cost_usd) == (1, Decimal("0.1"))
    assert deploy.last is not None


async def test_uses_inherited_by_a_fork_are_counted_once(tmp_path: Path):
    async with open_log(tmp_path) as log:
        session_id = await record_events(
            log, skill_used("deploy", "call_1"), status_idle("completed")
        )
        await log.fork(session_id)
        found = await read_skill_usage(log)
    assert (found["deploy"].uses, found["deploy"].sessions) == (1, 1)
