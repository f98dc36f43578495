"""A session outlives its provider: the router hands the conversation on, and the log says so."""

from pathlib import Path

from tests.harness.session_setup import Stage, echo, stage
from tests.providers.fake_models import Time

from mainspring.capabilities.providers.router import Router
from mainspring.capabilities.providers.routing_rules import ModelCandidate, Routing
from mainspring.capabilities.providers.scripted import Scripted, calls, fails, says
from mainspring.core.content import TextBlock
from mainspring.core.events import ModelRequestEnded, ProviderFailedOver
from mainspring.core.model import ToolResultBlock, ToolUse, User
from mainspring.harness.stop_reasons import Ended

MAIN, SPARE = "scripted:main", "scripted:spare"


def router(main: Scripted, spare: Scripted) -> Router:
    candidates = (ModelCandidate(id=MAIN, model=main), ModelCandidate(id=SPARE, model=spare))
    return Router(Routing({"main": candidates}), timing=Time().timing())


async def failovers(play: Stage) -> list[ProviderFailedOver]:
    found = [event.payload for event in await play.events()]
    return [payload for payload in found if isinstance(payload, ProviderFailedOver)]


async def answered_by(play: Stage) -> list[str | None]:
    found = [event.payload for event in await play.events()]
    return [payload.model for payload in found if isinstance(payload, ModelRequestEnded)]


async def test_a_key_revoked_during_a_tool_round_does_not_end_the_session(tmp_path: Path):
    main = Scripted(
        says("I look.") + calls("echo", x="1") + calls("echo", x="2"), otherwise=fails("forbidden")
    )
    spare = Scripted(calls("echo", x="3"), says("Done by another."))
    ran: list[str] = []
    route = router(main, spare).route()
    async with stage(tmp_path, route, echo(ran=ran)) as play:
        assert await play.play("Look at all three.") == Ended("completed")
        [switch] = await failovers(play)
        assert (switch.from_model, switch.to_model) == (MAIN, SPARE)
        assert "as the script says" in switch.reason
        assert await play.continued() == ["next_turn", "provider_failed_over", "next_turn"]
        assert await answered_by(play) == [MAIN, SPARE, SPARE]
        assert len(ran) == 3, "no call was repeated for the second model"
        given = spare.requests[0].messages
        uses = [part.id for m in given for part in m.content if isinstance(part, ToolUse)]
        results = [
            p.tool_use_id for m in given for p in m.content if isinstance(p, ToolResultBlock)
        ]
        assert uses == results == ran[:2]
        assert len(main.requests) == 2, "a revoked key is not tried again"


async def test_the_failover_is_logged_within_the_request_that_failed(tmp_path: Path):
    main, spare = Scripted(otherwise=fails("forbidden")), Scripted(otherwise=says("Here."))
    async with stage(tmp_path, router(main, spare).route()) as play:
        assert await play.play("hello") == Ended("completed")
        kinds = await play.kinds()
        begun = kinds.index("span.model_request_start")
        assert kinds[begun + 1 : begun + 5] == [
            "provider.failed_over",
            "loop.continued",
            "agent.message",
            "span.model_request_end",
        ]


async def test_a_worker_that_takes_over_fails_over_again(tmp_path: Path):
    main, spare = Scripted(otherwise=fails("forbidden")), Scripted(otherwise=says("Here."))
    async with stage(tmp_path, router(main, spare).route()) as play:
        await play.play("one")
        await play.play("two")
        assert len(await failovers(play)) == 1, "it is the second model's session now"
        play.model = router(main, spare).route()  # another process, which knows of nothing
        assert await play.play("three") == Ended("completed")
        assert len(await failovers(play)) == 2
        last = spare.requests[-1].messages
        said = [part for m in last if isinstance(m, User) for part in m.content]
        assert said == [TextBlock("one"), TextBlock("two"), TextBlock("three")]


async def test_a_session_whose_models_are_all_revoked_can_be_resumed(tmp_path: Path):
    broken = Scripted(otherwise=fails("forbidden", "the key is void"))
    async with stage(tmp_path, router(broken, broken).route(), echo()) as play:
        ended = await play.end_of("hello")
        assert ended.reason == "model_error"
        assert "the key is void" in (ended.detail or "")
        assert "session.error" in await play.kinds()
        play.model = Scripted(says("back again"))
        assert await play.play("and now?") == Ended("completed")
