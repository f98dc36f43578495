"""No model answers: the wait is announced once, limits and interrupts end it, and what the service
reschedules continues as if nothing had happened."""

from dataclasses import replace
from pathlib import Path

import anyio
from tests.harness.session_setup import Stage, echo, stage
from tests.providers.fake_models import Time
from tests.testing.test_replay import Stop, replay_play, run_until_killed

from mainspring.capabilities.providers.retry import Timing
from mainspring.capabilities.providers.router import Router
from mainspring.capabilities.providers.routing_rules import ModelCandidate, Routing
from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says
from mainspring.core.events import BudgetSettled, ModelRequestEnded, SessionFailed, Usage
from mainspring.core.model import Model, RetryScheduled
from mainspring.harness.limits import Limits
from mainspring.harness.loop import run
from mainspring.harness.stop_reasons import Ended

MAIN = "scripted:main"
OUT = fails("overloaded", "HTTP 529")


def patient(main: Scripted, timing: Timing | None = None) -> Model:
    candidate = ModelCandidate(id=MAIN, model=main)
    return Router(Routing({"main": [candidate]}), timing=timing or Time().timing()).route()


async def announcements(play: Stage) -> list[str]:
    payloads = [event.payload for event in await play.events()]
    return [item.error.message for item in payloads if isinstance(item, SessionFailed)]


def is_settled(kinds: list[str]) -> bool:
    return kinds.count("budget.reserved") == kinds.count("budget.settled") > 0


async def test_an_outage_is_announced_once_with_its_limit_and_each_wait_is_a_delta(tmp_path: Path):
    main = Scripted(OUT, OUT, OUT, says("Done."))
    async with stage(tmp_path, patient(main)) as play:
        assert await play.play("Go.") == Ended("completed")
        [message] = await announcements(play)
        assert message.endswith("; trying again, 10 times in up to 10 min")
        waits = [item for item in play.deltas if isinstance(item, RetryScheduled)]
        assert [item.attempt for item in waits] == [2, 3, 4]
        assert is_settled(await play.kinds())


async def test_a_run_does_not_wait_past_its_deadline(tmp_path: Path):
    main = Scripted(otherwise=OUT)
    async with stage(tmp_path, patient(main), limits=Limits(max_seconds=10)) as play:
        ended = await play.end_of("Go.")
        assert ended.reason == "budget_reached"
        assert "of 10 seconds used" in (ended.detail or "")
        assert len(main.requests) == 3, "waits of 2 and 4 s fit, one of 8 s does not"
        assert is_settled(await play.kinds())


async def test_an_interrupt_ends_the_waiting_at_once(tmp_path: Path):
    begun, main = anyio.Event(), Scripted(otherwise=OUT)

    async def sleep(_seconds: float) -> None:
        begun.set()
        await anyio.sleep_forever()

    async with stage(tmp_path, patient(main, Timing(sleep=sleep))) as play:
        ended = await play.interrupted(begun, "Go.")
        assert ended == Ended("interrupted_streaming")
        assert is_settled(await play.kinds())


async def test_a_run_that_is_killed_while_it_waits_has_cost_nothing(tmp_path: Path):
    async def sleep(_seconds: float) -> None:
        raise Stop

    killed, main = Timing(sleep=sleep), Scripted(OUT, says("Done."))
    async with stage(tmp_path, patient(main, killed)) as play:
        await run_until_killed(play, "Go.")
        assert await play.play() == Ended("completed")
        payloads = [event.payload for event in await play.events()]
        costs = [item.cost_usd for item in payloads if isinstance(item, BudgetSettled)]
        used = [item.model_usage for item in payloads if isinstance(item, ModelRequestEnded)]
        assert (len(costs), costs[0]) == (2, "0")
        assert (used[0], used[1] == Usage()) == (Usage(), False)
        assert is_settled(await play.kinds())


async def test_a_session_that_can_be_rescheduled_ends_its_run_and_continues_later(tmp_path: Path):
    times: list[int] = []

    async def reschedule(count: int) -> None:
        times.append(count)

    main = Scripted(calls("echo", x="1"), *[OUT] * 7, says("Done."))
    ran: list[str] = []
    async with stage(tmp_path, patient(main), echo(ran=ran)) as play:
        await play.send("Go.")
        ends: list[Ended | None] = []
        for _ in range(3):
            context = await play.context()
            context.toolbox = replace(context.toolbox, reschedule=reschedule)
            ends.append(await run(context))
        assert [ended and ended.reason for ended in ends] == [*["rescheduled"] * 2, "completed"]
        assert (times, len(ran)) == ([0, 1], 1)
        kinds = await play.kinds()
        assert kinds.count("session.status_rescheduled") == 2
        assert kinds.count("session.status_idle") == 1
        assert is_settled(kinds)
        context = await play.context()
        assert context.tiers[0].spend_account.spending.reservations == {}
        found = await replay_play(play)
        assert (found.divergence, found.calls) == (None, 4)
