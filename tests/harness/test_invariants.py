"""What holds whatever happens: random scripts, races, clients and deaths on a real loop and log."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.harness.random_world import CUSTOM, POLICIES, Happening, World
from tests.property_examples import examples
from tests.senders import TESTER

from mainspring.capabilities.providers.scripted import (
    ScriptAnswer,
    Scripted,
    ScriptLine,
    calls,
    fails,
    says,
)
from mainspring.core.content import TextBlock, plain_text
from mainspring.core.envelope import AnyPayload, Event
from mainspring.core.events import ContextCompacted, UserInterrupt, UserToolConfirmation
from mainspring.core.model import Assistant, Message, Request, ToolResultBlock, ToolUse, User
from mainspring.harness.context import xray
from mainspring.harness.state.thread import Thread, fold
from mainspring.harness.stop_reasons import Ended
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.verify import verify

NAMES = st.sampled_from([*POLICIES, CUSTOM, "nowhere"])


@st.composite
def some_calls(draw: st.DrawFn) -> ScriptLine:
    line = says(draw(st.sampled_from(["First", "Then", ""])))
    for _ in range(draw(st.integers(1, 4))):
        given_: dict[str, object] = {
            "rank": draw(st.integers(0, 3)),
            "together": draw(st.booleans()),
            "gate": draw(st.sampled_from([*["allow"] * 5, "ask", "deny"])),
        }
        given_ |= {flag: True for flag in draw(st.sets(st.sampled_from(["fails", "blocks"])))}
        if draw(st.integers(0, 9)) == 0:
            given_["wrong"] = True
        line += calls(draw(NAMES), **given_)
    return line


def cut(line: ScriptLine) -> ScriptLine:
    return ScriptLine(line.content, "max_tokens")


KINDS = st.sampled_from(["overloaded", "stalled", "forbidden", "prompt_too_long", "malformed"])
OTHERS: st.SearchStrategy[ScriptAnswer] = st.one_of(
    st.just(says("Well then.")),
    some_calls().map(cut),
    st.just(says("It goes on and", reason="max_tokens")),
    st.just(says("No.", reason="refusal")),
    st.builds(fails, KINDS, after=st.sampled_from([None, says("I was about to")])),
)


@st.composite
def steps(draw: st.DrawFn) -> ScriptAnswer:
    """Calls, most of the time."""
    return draw(some_calls() if draw(st.sampled_from([*[True] * 7, False])) else OTHERS)


async def speak(world: World) -> None:
    await world.say(f"message {len(world.sent)}")


async def interrupt(world: World) -> None:
    await world.log.submit(world.session_id, UserInterrupt(), sender=TESTER)


async def confirm_an_unknown_call(world: World) -> None:
    await world.submit(UserToolConfirmation(tool_use_id="sevt_nobody", result="allow"))


async def answer_once(world: World) -> None:
    await world.answer(allows=True)


async def answer_twice(world: World) -> None:
    await world.answer(allows=False, times=2)


async def die(world: World) -> None:
    """In the midst of a reply, of a call, or right after an effect."""
    world.life.die()


HAPPENINGS: st.SearchStrategy[Happening] = st.sampled_from(
    [speak, interrupt, confirm_an_unknown_call, answer_once, answer_twice, die, die, die]
)
T = TypeVar("T")


def timeline(gaps: list[tuple[int, T]]) -> dict[int, T]:
    """Each so many instants after the one before."""
    ends = accumulate(gap for gap, _ in gaps)
    return {end: what for end, (_, what) in zip(ends, gaps, strict=True)}


MOMENTS = st.lists(HAPPENINGS, min_size=1, max_size=3)
SCHEDULES = st.lists(st.tuples(st.integers(1, 12), MOMENTS), max_size=6).map(timeline)
DEATHS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=4).map(timeline)


def check_requests(requests: Sequence[Request]) -> None:
    """Every call has exactly one result, right after it, in the order asked."""
    for request in requests:
        open_calls: list[str] = []
        role: type[Message] = Assistant
        for message in request.messages:
            assert type(message) is not role, "roles alternate, the user begins"
            role = type(message)
            results = [part for part in message.content if isinstance(part, ToolResultBlock)]
            assert [result.tool_use_id for result in results] == open_calls
            assert list(message.content[: len(results)]) == results, "results stand first"
            open_calls = [part.id for part in message.content if isinstance(part, ToolUse)]
        assert role is User
        uses = [p.id for m in request.messages for p in m.content if isinstance(p, ToolUse)]
        assert len(uses) == len(set(uses))


def check_effects(effects: Sequence[tuple[str, str]]) -> None:
    for (tool, call_id), times in Counter(effects).items():
        assert times == 1 or POLICIES[tool] == "retry", f"{tool} {call_id}: {times} times"


def encode_thread(thread: Thread) -> bytes:
    transcript = thread.transcript
    return msgspec.json.encode((transcript.messages, transcript.upcoming(), transcript.spans))


def check_folds(events: Sequence[Event], live: Thread) -> None:
    """Any prefix is a valid state, and the whole of it is what the loop had before it."""
    thread = Thread(id=live.id)
    for event in events:
        thread.apply(event)
        encode_thread(thread)
        assert all(not call.settled for call in thread.unsettled_calls())
    assert encode_thread(thread) == encode_thread(live)
    assert encode_thread(fold(events, thread_id=live.id)) == encode_thread(live)
    assert (thread.round, thread.running, thread.turns) == (live.round, live.running, live.turns)


async def check_xray(world: World, events: Sequence[Event], thread_id: str) -> None:
    """The log alone tells, byte for byte, what the model was given."""
    prefixes = {d: xray.decode_prefix(await world.log.blob(d)) for d in xray.prefix_digests(events)}
    shots = xray.model_calls(events, thread_id=thread_id, prefixes=prefixes)
    told = {shot.request.request_id: msgspec.json.encode(shot.request) for shot in shots}
    assert len(told) == len(shots)
    for request in world.requests:
        assert msgspec.json.encode(replace(request, stream=True)) == told[request.request_id]
    order = [key for key in told if key in {request.request_id for request in world.requests}]
    assert order == list(dict.fromkeys(request.request_id for request in world.requests))


def count_words(request: Request) -> Counter[str]:
    return Counter(
        plain_text((part,))
        for message in request.messages
        if isinstance(message, User)
        for part in message.content
        if isinstance(part, TextBlock)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


async def play(world: World, *, allows: bool) -> Ended | None:
    """Until the script is at its end and nothing is waited for; then a last message, in peace."""
    await world.say("begin")
    ended: Ended | None = None
    for turn in range(30):
        ended = await world.live()
        if await world.answer(allows=allows):
            continue
        if not world.script.steps_left:
            break
        await world.say(f"go on {turn}")
    world.happenings, world.deaths = {}, {}
    world.script = Scripted(otherwise=says("That was all."))
    await world.say("the end")
    for _ in range(3):
        ended = await world.live()
        if not await world.answer(allows=allows):
            break
    return ended


async def check_world(
    folder: Path,
    script: list[ScriptAnswer],
    happenings: dict[int, list[Happening]],
    deaths: dict[int, bool],
    allows: bool,
) -> None:
    async with open_sqlite(folder / "log.db") as store:
        log = SessionLog(store)
        session = await log.create()
        world = World(
            log=log,
            session_id=session.id,
            script=Scripted(*script, otherwise=says("Done.")),
            happenings=happenings,
            deaths=deaths,
        )
        ended = await play(world, allows=allows)
        events = await log.read(session.id)
        assert world.thread is not None
        check_requests(world.requests)
        check_effects(world.effects)
        check_folds(events, world.thread)
        await check_xray(world, events, session.thread_id)
        assert (await verify(log, session.id)).ok
        assert ended == Ended("completed"), "whatever happened, the session goes on"
        said = count_words(world.requests[-1])
        # a compaction tells of tasks that are done in other words, or not at all
        has_compacted = any(_replaces_words(event.payload) for event in events)
        told = [text for text in world.sent if said[text] or not has_compacted]
        assert {text: said[text] for text in told} == dict.fromkeys(told, 1)
        assert world.sent[-1] in told


def _replaces_words(payload: AnyPayload) -> bool:
    return isinstance(payload, ContextCompacted) and payload.first_seq is not None


STORY = {
    "script": st.lists(steps(), min_size=2, max_size=8),
    "happenings": SCHEDULES,
    "deaths": DEATHS,
    "allows": st.booleans(),
}


@settings(max_examples=examples(0.25), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(**STORY)
async def test_the_invariants_hold_for_random_scripts_and_crashes(
    folder: Path,
    script: list[ScriptAnswer],
    happenings: dict[int, list[Happening]],
    deaths: dict[int, bool],
    allows: bool,
):
    await check_world(folder, script, happenings, deaths, allows)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=2_000)
@given(**STORY)
async def test_the_invariants_hold_in_two_thousand_random_worlds(
    folder: Path,
    script: list[ScriptAnswer],
    happenings: dict[int, list[Happening]],
    deaths: dict[int, bool],
    allows: bool,
):
    await check_world(folder, script, happenings, deaths, allows)
