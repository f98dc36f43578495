"""Contract: followers get every event once, in order, from this process's writers and others'."""

from contextlib import aclosing

import anyio
from tests.contracts.store_setup import StoreFactory, asks, refused, says, scene
from tests.senders import TESTER

from mainspring.core.errors import SessionNotFound
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store
from mainspring.log.writer import Writer


async def _follow(store: Store, session_id: str, upto: int, after: int = 0) -> list[int]:
    """The seqs that a follower gets, until it has got `upto`."""
    seqs: list[int] = []
    async with aclosing(SessionLog(store).follow(session_id, after=after)) as followed:
        async for event in followed:
            seqs.append(event.seq)
            if event.seq >= upto:
                break
    return seqs


async def following_gives_the_past_and_then_what_comes(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("past"))
        followed = at.log.follow(at.id)
        assert [(await anext(followed)).seq for _ in range(2)] == [1, 2]
        for seq in range(3, 10):
            await at.writer.append(says("now"))
            assert (await anext(followed)).seq == seq
        await followed.aclose()


async def a_follower_in_the_same_process_misses_and_repeats_nothing(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        await _append_while_followed(at.writer, [at.store] * 5)


async def a_follower_in_another_process_misses_and_repeats_nothing(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at, open_store() as other, open_store() as third:
        await _append_while_followed(at.writer, [other, third, other])


async def _append_while_followed(writer: Writer, stores: list[Store]) -> None:
    """Followers come one by one while the log grows from 1 to 201."""
    got: list[list[int]] = []

    async def follow(store: Store) -> None:
        got.append(await _follow(store, writer.session_id, upto=201))

    async with anyio.create_task_group() as group:
        for number in range(200):
            if number % 40 == 0 and number // 40 < len(stores):
                group.start_soon(follow, stores[number // 40])
            await writer.append(says(f"{number}"))
            if number % 7 == 0:
                await anyio.sleep(0.001)
    assert got == [list(range(1, 202))] * len(stores)


async def a_waiting_follower_in_another_process_is_woken_soon(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        followed = SessionLog(other).follow(at.id, after=1)
        for seq in range(2, 12):
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    group.start_soon(at.writer.append, says(f"{seq}"))
                    assert (await anext(followed)).seq == seq
        await followed.aclose()


async def following_resumes_after_any_seq(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(*(says(f"{number}") for number in range(20)))
        assert await _follow(at.store, at.id, upto=21, after=15) == [16, 17, 18, 19, 20, 21]


async def following_a_fork_goes_through_its_inherited_events(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("one"), says("two"))
        fork = await at.log.fork(at.id, at=2)
        await at.writer.append(says("not for the fork"))
        assert await _follow(at.store, fork.id, upto=3) == [1, 2, 3]
        assert await _follow(at.store, fork.id, upto=3, after=2) == [3]


async def a_filtered_follower_gets_only_what_it_asked_for(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        followed = at.log.follow(at.id, types=["agent.message"], threads=["sthr_side"])
        await at.writer.append(says("main"))
        await at.writer.append(says("side"), thread_id="sthr_side")
        assert (await anext(followed)).seq == 3
        await followed.aclose()


async def followers_of_a_deleted_session_are_told(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        here, there = at.log.follow(at.id), SessionLog(other).follow(at.id)
        for followed in (here, there):
            assert (await anext(followed)).seq == 1
        await at.log.delete(at.id)
        for followed in (here, there):
            with refused(SessionNotFound):
                await anext(followed)


async def a_watcher_hears_of_what_clients_send(open_store: StoreFactory) -> None:
    async with scene(open_store) as at, open_store() as other:
        for number in range(3):
            watch = at.store.watch(at.id)
            await SessionLog(other).submit(at.id, asks(f"{number}"), sender=TESTER)
            while len(await at.store.pending(at.id)) <= number:
                await watch.wait()
