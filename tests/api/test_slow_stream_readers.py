"""Readers that do not read: they are cut, lose nothing, and nobody else waits for them."""

import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

import anyio
from aiohttp import ClientResponse
from tests.api.streaming import Frame, Station, eventually, frames, thread_workspace
from tests.log.sample_sessions import says, tell, told

from mainspring.edges.api.sse import StreamTiming
from mainspring.log.session_log import SessionLog

LONG = "x" * 200_000
IMPATIENT = StreamTiming(heartbeat_seconds=15, patience_seconds=0.2)


@contextmanager
def open_unread_stream(there: Station, session_id: str) -> Generator[socket.socket]:
    """A request for everything whose answer is not read, on a connection that holds little."""
    address = urlsplit(there.url)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 * 1024)
        raw.connect((address.hostname, address.port))
        path = f"/v1/sessions/{session_id}/events/stream?after=0"
        raw.send(f"GET {path} HTTP/1.1\r\nhost: x\r\nx-api-key: acme:user\r\n\r\n".encode())
        raw.setblocking(False)
        yield raw


async def read_rest(raw: socket.socket) -> bytes:
    """All that comes until the connection ends, one way or the other."""
    received = b""
    while True:
        await anyio.wait_readable(raw)
        try:
            more = raw.recv(1 << 20)
        except ConnectionResetError:
            return received
        if not more:
            return received
        received += more


async def write_many(log: SessionLog, count: int) -> str:
    session = await log.create()
    writer = await log.hold(session.id, owner="test")
    for _ in range(count):
        await writer.append(says(LONG))
    await writer.release()
    return session.id


async def test_a_reader_that_does_not_read_is_disconnected_and_can_resume(log: SessionLog):
    async with thread_workspace(log, pace=IMPATIENT) as there:
        session_id = await write_many(log, 60)
        with open_unread_stream(there, session_id) as raw, anyio.fail_after(60):
            await eventually(lambda: there.streams.count == 1)
            await eventually(lambda: there.streams.count == 0)
            assert len(await read_rest(raw)) < 60 * len(LONG)  # it was not all kept for it
        with anyio.fail_after(60):
            async with there.raw(session_id, last=1) as response:
                seqs = [item.seq async for item in _first(response, 60)]
        assert seqs == list(range(2, 62))


async def test_a_reader_that_reads_again_in_time_is_told_how_to_resume(log: SessionLog):
    async with thread_workspace(log, pace=IMPATIENT) as there:
        session_id = await write_many(log, 60)
        with open_unread_stream(there, session_id) as raw, anyio.fail_after(60):
            await eventually(lambda: there.streams.count == 1)
            await anyio.sleep(5 * IMPATIENT.patience_seconds)  # the very thing under test
            received = await read_rest(raw)
        last = received[received.rindex(b"event: ") :]
        assert last.startswith(b"event: error\ndata: ")
        assert b'"timeout_error"' in last
        assert b"Last-Event-ID" in last


async def test_a_reader_that_does_not_read_blocks_nobody_else(log: SessionLog):
    async with thread_workspace(log) as there:
        large, small = await write_many(log, 60), await told(log, "hello")
        async with there.raw(small) as response:
            with open_unread_stream(there, large), anyio.fail_after(60):
                await eventually(lambda: there.streams.count == 2)
                for word in ("one", "two", "three"):
                    await tell(log, small, word)
                    [each] = [item async for item in _first(response, 1)]
                    assert each.data["content"][0]["text"] == word
                await tell(log, large, "and the log itself is written on")


async def _first(response: ClientResponse, count: int) -> AsyncGenerator[Frame]:
    async for frame in frames(response):
        yield frame
        count -= 1
        if not count:
            break
