"""Deltas between processes, over a real PostgreSQL server."""

import anyio
import psycopg
from hypothesis import given
from hypothesis import strategies as st
from tests.fixtures_postgres import Postgres

from mainspring.log.postgres.broadcast import Broadcast, open_broadcast, pack_messages
from mainspring.service.sessions.events.preview_deltas import (
    PreviewPiece,
    PreviewStarted,
    PreviewText,
    SharedDeltas,
)

LISTENERS = "select count(*) from pg_stat_activity where query = 'listen mainspring_deltas'"


class RecordingListener:
    """What came, and a wait for so much of it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._came = anyio.Event()

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        self._came.set()
        self._came = anyio.Event()

    async def count(self, wanted: int) -> list[str]:
        with anyio.fail_after(60):
            while len(self.texts) < wanted:
                await self._came.wait()
        return self.texts


async def tuned(broadcast: Broadcast) -> None:
    with anyio.fail_after(60):
        await broadcast.wait_until_listening()


async def test_messages_reach_other_processes_in_order_but_not_the_sender(postgres_url: str):
    here, there, elsewhere = RecordingListener(), RecordingListener(), RecordingListener()
    async with open_broadcast(postgres_url) as one, open_broadcast(postgres_url) as other:
        with (
            one.listen("sesn_1", here),
            other.listen("sesn_1", there),
            other.listen("sesn_2", elsewhere),
        ):
            await tuned(one)
            await tuned(other)
            said = [f"{n} " + "é" * (n % 900) for n in range(2000)]
            for text in said:
                one.publish("sesn_1", text)
            one.publish("sesn_2", "to the second")
            assert await there.count(2000) == said
            assert await elsewhere.count(1) == ["to the second"]
            assert here.texts == []


async def test_only_a_process_with_a_listener_listens(postgres_url: str):
    async with open_broadcast(postgres_url) as one, open_broadcast(postgres_url) as other:
        assert _listener_count(postgres_url) == 0
        heard = RecordingListener()
        with other.listen("sesn_1", heard):
            await tuned(other)
            assert _listener_count(postgres_url) == 1
            one.publish("sesn_1", "somebody hears this")
            assert await heard.count(1) == ["somebody hears this"]


def _listener_count(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(LISTENERS).fetchone()
    assert found is not None
    return int(found[0])


async def test_broadcasting_continues_after_a_lost_connection(
    postgres: Postgres, postgres_url: str
):
    async with open_broadcast(postgres_url) as one, open_broadcast(postgres_url) as other:
        heard = RecordingListener()
        with other.listen("sesn_1", heard):
            await tuned(other)
            postgres.disconnect()
            with anyio.fail_after(60):
                while not heard.texts:  # what is said meanwhile may be lost
                    one.publish("sesn_1", "still there?")
                    await anyio.sleep(0.05)
        assert set(heard.texts) == {"still there?"}


async def test_deltas_reach_the_streams_of_another_process(postgres_url: str):
    began = PreviewStarted(thread_id="sthr_1", after=3, event_id="sevt_1", kind="agent.message")
    pieces: list[PreviewPiece] = [began]
    for n in range(300):
        pieces.append(_preview_text(n))
    async with open_broadcast(postgres_url) as one, open_broadcast(postgres_url) as other:
        worker, api = SharedDeltas(one), SharedDeltas(other)
        came = RecordingListener()
        got: list[PreviewPiece] = []
        with (
            api.listen("sesn_1", lambda: came("")) as subscription,
            worker.listen("sesn_1", lambda: None) as own,
        ):
            await tuned(other)
            await tuned(one)
            for piece in pieces:
                worker.publish("sesn_1", piece)
            assert own.take() == pieces
            await came.count(len(pieces))
            got += subscription.take()
        assert got == pieces
        assert own.take() == []


def _preview_text(n: int) -> PreviewText:
    text = f"word {n} \n\x00"
    return PreviewText(thread_id="sthr_1", after=3, event_id="sevt_1", at=n, text=text)


@given(st.lists(st.text(max_size=3000).map(lambda text: text.replace("\n", " "))))
def test_packed_messages_are_short_enough_and_drop_only_oversized_text(said: list[str]):
    packed = list(pack_messages("wrk_1", said))
    assert all(len(letter.encode(errors="surrogatepass")) < 8000 for letter in packed)
    fit = [text for text in said if len(text.encode(errors="surrogatepass")) < 7890]
    assert [line for letter in packed for line in letter.split("\n")[1:]] == fit
