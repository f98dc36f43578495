"""What holds for a session of several threads whatever happens: any beginning of its log is a state
to go on from, and what people do meanwhile leaves nothing open.
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.environ import boundary
from tests.harness.fake_sandbox import Ledger
from tests.harness.test_invariants import check_requests
from tests.harness.test_kill_sweep import orphans
from tests.property_examples import examples
from tests.runtime.subagents.killable_worker import ALL, PARTS, agent
from tests.runtime.subagents.random_world import Happening, Storm
from tests.runtime.subagents.scripted_threads import troupe
from tests.runtime.subagents.thread_states import folded, state

from mainspring import Runtime, open_runtime
from mainspring.config import read_settings
from mainspring.core.envelope import Event
from mainspring.core.events import (
    ModelRequestStarted,
    ThreadCreated,
    ThreadMessageReceived,
    ThreadMessageSent,
    UserInterrupt,
)
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.log.store import EventRange, Head, SessionRow
from mainspring.log.verify import verify


@asynccontextmanager
async def open_runtime_in(folder: Path, name: str = "log") -> AsyncGenerator[Runtime]:
    store = str(folder / f"{name}.db")
    async with open_runtime(
        read_settings(store=store, environ=boundary(), folder=folder)
    ) as runtime:
        yield runtime


async def storm_in(runtime: Runtime, folder: Path) -> Storm:
    session = await runtime.log.create()
    made = agent(Ledger(folder / f"ledger-{session.id}"))
    storm = Storm(runtime=runtime, agent=made, model=troupe(PARTS), session_id=session.id)
    await storm.say(ALL)
    return storm


async def check_end(storm: Storm) -> None:
    """Nothing is open, nothing is lost, nothing came twice."""
    events = await storm.events()
    check_requests(storm.requests)
    assert (await verify(storm.runtime.log, storm.session_id)).ok
    assert orphans(events) == []
    thread_tree = folded(events)
    for member in thread_tree.nodes.values():
        assert not member.thread.running, member.id
        assert not member.thread.unsettled_calls(), member.id
        assert not thread_tree.messages_for(member.id)
    assert await storm.run() is None, "nothing is left to be done"


def check_mail(events: list[Event]) -> None:
    sent = [event.id for event in events if isinstance(event.payload, ThreadMessageSent)]
    received = [
        event.payload.sent_id
        for event in events
        if isinstance(event.payload, ThreadMessageReceived) and event.payload.sent_id
    ]
    assert Counter(received) == Counter(sent)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storms")


async def test_folding_one_event_at_a_time_equals_folding_all_at_once(tmp_path: Path):
    async with open_runtime_in(tmp_path) as runtime:
        storm = await storm_in(runtime, tmp_path)
        await storm.to_the_end()
        events = await storm.events()
    assert len([event for event in events if isinstance(event.payload, ThreadCreated)]) == 5
    growing = ThreadTree(events[0].thread_id)
    for index, event in enumerate(events, 1):
        growing.apply(event)
        assert state(growing) == state(folded(events[:index]))


async def test_an_interrupt_also_covers_undelivered_messages(tmp_path: Path):
    async with open_runtime_in(tmp_path) as runtime:
        storm = await storm_in(runtime, tmp_path)
        await storm.to_the_end()
        events = await storm.events()
    sent = [at for at, event in enumerate(events) if isinstance(event.payload, ThreadMessageSent)]
    for at in sent:
        thread_tree = folded(events[: at + 1])
        thread_tree.apply(replace(events[0], payload=UserInterrupt()))
        to = [node for node in thread_tree.nodes if thread_tree.messages_for(node)]
        assert to
        assert all(thread_tree.nodes[item].thread.interrupted for item in to)


async def copy_prefix(source: Runtime, session_id: str, upto: int, target: Runtime) -> None:
    """The session in another store, as it would be if its log ended there."""
    session = await source.log.session(session_id)
    rows = await source.log.store.read(EventRange(session_id=session_id, after=0, upto=upto))
    last = (await source.log.read(session_id))[upto - 1]
    head = Head(upto, last.digest())
    made = SessionRow(
        id=session.id,
        thread_id=session.thread_id,
        created=session.created,
        updated=session.updated,
        head=head,
        mac=target.log.store.provenance.log_mac(session.id, head),
    )
    blobs = {blob: await source.log.blob(blob) for blob in await source.log.store.blobs(session_id)}
    await target.log.store.create(made, rows, blobs=blobs)


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_session_completes_from_any_prefix_of_its_log(tmp_path: Path, every: int):
    async with open_runtime_in(tmp_path) as runtime:
        first = await storm_in(runtime, tmp_path)
        await first.to_the_end()
        for upto in first.heads[::every]:
            async with open_runtime_in(tmp_path, f"upto-{upto}") as other:
                await copy_prefix(runtime, first.session_id, upto, other)
                made = agent(Ledger(tmp_path / f"ledger-{upto}"))
                again = Storm(
                    runtime=other, agent=made, model=troupe(PARTS), session_id=first.session_id
                )
                await again.to_the_end()
                await check_end(again)
                check_mail(await again.events())
                assert folded(await again.events()).main.thread.last_reason == "completed"


@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.slow)])
async def test_threads_running_at_a_fork_do_not_run_in_the_fork(tmp_path: Path, every: int):
    async with open_runtime_in(tmp_path) as runtime:
        first = await storm_in(runtime, tmp_path)
        await first.to_the_end()
        events = await first.events()
        for upto in range(2, len(events), every):
            forked = await runtime.log.fork(first.session_id, at=upto)
            inherited = folded(await runtime.log.read(forked.id))
            again = Storm(
                runtime=runtime, agent=first.agent, model=troupe(PARTS), session_id=forked.id
            )
            await again.say("Go on.")
            result = await again.to_the_end()
            assert result is not None
            assert result.reason == "completed"
            await check_end(again)
            before = {node for node in inherited.nodes if not inherited.messages_for(node)}
            before -= {events[0].thread_id}
            own = [event for event in await again.events() if event.seq > upto]
            asked = [e.thread_id for e in own if isinstance(e.payload, ModelRequestStarted)]
            woken = {
                event.payload.to_session_thread_id
                for event in own
                if isinstance(event.payload, ThreadMessageSent)
            }
            assert not set(asked) & (before - woken)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_an_interrupt_at_any_moment_leaves_nothing_open(tmp_path: Path, every: int):
    async with open_runtime_in(tmp_path) as runtime:
        first = await storm_in(runtime, tmp_path)
        await first.to_the_end()
        for instant in range(1, first.instants, every):
            storm = await storm_in(runtime, tmp_path)
            storm.happenings = {instant: [("stop all", 0)]}
            await storm.to_the_end()
            await check_end(storm)


HAPPENINGS: st.SearchStrategy[tuple[Happening, int]] = st.tuples(
    st.sampled_from(["say", "stop all", "stop one", "say to one", "allow", "deny", "die", "die"]),
    st.integers(0, 5),
)
MOMENTS = st.lists(
    st.tuples(st.integers(1, 25), st.lists(HAPPENINGS, min_size=1, max_size=2)), max_size=6
)


async def check_random_run(
    folder: Path, gaps: list[tuple[int, list[tuple[Happening, int]]]]
) -> None:
    ends = accumulate(gap for gap, _ in gaps)
    async with open_runtime_in(folder) as runtime:
        storm = await storm_in(runtime, folder)
        storm.happenings = {end: what for end, (_, what) in zip(ends, gaps, strict=True)}
        await storm.to_the_end()
        storm.happenings = {}
        await storm.say("the end")
        result = await storm.to_the_end()
        assert result is not None
        assert result.reason == "completed"
        await check_end(storm)
        check_mail(await storm.events())


@settings(max_examples=examples(0.15), phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(gaps=MOMENTS)
async def test_random_client_actions_leave_every_thread_well_formed(
    folder: Path, gaps: list[tuple[int, list[tuple[Happening, int]]]]
):
    await check_random_run(folder, gaps)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@given(gaps=MOMENTS)
async def test_five_hundred_random_runs_leave_every_thread_well_formed(
    folder: Path, gaps: list[tuple[int, list[tuple[Happening, int]]]]
):
    await check_random_run(folder, gaps)
