"""Streams that break: whoever resumes neither misses nor sees twice, whichever process answers."""

from pathlib import Path
from random import Random

import anyio
import anyio.lowlevel
import pytest
from tests.api.streaming import Station, frames, thread_workspace
from tests.log.sample_sessions import asks, opened, says, tell, told

from mainspring.core.content import TextBlock
from mainspring.core.events import LoopContinued, StatusIdle, StopReason, UserMessage
from mainspring.log.session_log import SessionLog

END = StatusIdle(stop_reason=StopReason(type="end_turn"))


async def read_some(there: Station, session_id: str, last: int, count: int) -> list[int]:
    """Take so many frames, then drop the connection in the middle of whatever comes."""
    seen: list[int] = []
    async with there.raw(session_id, last=last) as response:
        assert response.status == 200
        async for frame in frames(response):
            assert frame.seq is not None
            seen.append(frame.seq)
            if len(seen) == count or frame.name == "session.status_idle":
                break
    return seen


async def write(log: SessionLog, session_id: str, chance: Random) -> None:
    """Batches of public and internal events, of very different sizes."""
    writer = await log.hold(session_id, owner="worker")
    for n in range(60):
        batch = [
            chance.choice([says(f"{n} " + "x" * chance.choice([1, 30_000])), asks(f"{n}")])
            for _ in range(chance.randint(1, 12))
        ]
        await writer.append(*batch, LoopContinued(reason="for no reason"))
        await anyio.lowlevel.checkpoint()
    await writer.append(END)
    await writer.release()


@pytest.mark.parametrize("seed", range(6))
async def test_a_broken_stream_can_be_resumed_at_any_point_on_any_process(
    tmp_path: Path, seed: int
):
    """Two processes' worth of service over one log: each has its own store and its own server."""
    chance = Random(seed)
    path = tmp_path / "log.db"
    seen: list[int] = []
    async with opened(path) as one, opened(path) as other, opened(path) as worker:
        session_id = (await one.create()).id
        async with (
            thread_workspace(one) as first,
            thread_workspace(other) as second,
            anyio.create_task_group() as group,
        ):
            group.start_soon(write, worker, session_id, chance)
            with anyio.fail_after(60):
                while not await _is_end(one, session_id, seen):
                    there = chance.choice([first, second])
                    last = seen[-1] if seen else 0
                    seen += await read_some(there, session_id, last, chance.randint(1, 80))
        public = [item.seq for item in await one.read(session_id) if _is_public(item.type)]
    assert seen == public


async def _is_end(log: SessionLog, session_id: str, seen: list[int]) -> bool:
    if not seen:
        return False
    [last] = await log.read(session_id, after=seen[-1] - 1, limit=1)
    return last.type == "session.status_idle"


def _is_public(type_: str) -> bool:
    return type_ not in ("session.created", "loop.continued")


async def test_a_stream_continues_after_a_restart_of_the_service(tmp_path: Path):
    path = tmp_path / "log.db"
    seen: list[int] = []
    async with opened(path) as log:
        session_id = await told(log, *"abcdefgh")
    for _ in range(3):
        async with opened(path) as log, thread_workspace(log) as there:
            await tell(log, session_id, "more")
            with anyio.fail_after(60):
                seen += await read_some(there, session_id, seen[-1] if seen else 0, 3)
    assert seen == list(range(2, 11))


async def test_a_cursor_can_be_in_the_query_and_the_header_wins(log: SessionLog):
    async with thread_workspace(log) as there:
        session_id = await told(log, *"abcd")
        with anyio.fail_after(60):
            async with there.raw(session_id, after="0") as response:
                assert (await anext(frames(response))).seq == 2
            async with there.raw(session_id, after="3") as response:
                assert (await anext(frames(response))).seq == 4
            async with there.raw(session_id, last=4, after="0") as response:
                assert (await anext(frames(response))).seq == 5


@pytest.mark.parametrize("last", ["99", "-1", "x", "1e3", "9" * 40])
async def test_an_invalid_cursor_is_refused(last: str, log: SessionLog):
    async with thread_workspace(log) as there:
        session_id = await told(log, "hello")
        async with there.raw(session_id, last=last) as response:
            assert response.status == 400
            assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_internal_events_are_streamed_on_request(log: SessionLog):
    async with thread_workspace(log) as there:
        session = await log.create()
        writer = await log.hold(session.id, owner="test")
        await writer.append(asks("hello"), LoopContinued(reason="next_turn"), END)
        with anyio.fail_after(60):
            async with there.raw(session.id, after="0", include="internal") as response:
                shown = frames(response)
                kinds = [(await anext(shown)).name for _ in range(4)]
        assert kinds == ["session.created", "user.message", "loop.continued", "session.status_idle"]


async def test_a_fork_is_streamed_with_its_inherited_events(log: SessionLog):
    async with thread_workspace(log) as there:
        fork = await log.fork(await told(log, *"abcd"), at=3)
        await tell(log, fork.id, "own")
        with anyio.fail_after(60):
            assert await read_some(there, fork.id, 0, 3) == [2, 3, 5]


async def test_text_with_line_breaks_stays_one_event(log: SessionLog):
    text = "one\ntwo\r\n\r\n\u2028three\x00\n\ndata: no"
    async with thread_workspace(log) as there, there.client() as client:
        session = await log.create()
        async with await client.beta.sessions.events.stream(session.id) as stream:
            writer = await log.hold(session.id, owner="test")
            await writer.append(UserMessage(content=(TextBlock(text),)))
            with anyio.fail_after(60):
                event = await anext(stream)
        assert event.type == "user.message"
        assert event.content[0].type == "text"
        assert event.content[0].text == text
