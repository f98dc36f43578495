"""Passages, on both stores: found by what they and their surroundings say, within the scopes that
were asked, and ranked alike."""

import math
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import current_thread, main_thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fixtures_postgres import Postgres
from tests.property_examples import examples

from mainspring.core.errors import StoreFailed
from mainspring.retrieval.passage_index import Container, Passage, PassageHit, PassageIndex
from mainspring.retrieval.passage_store import PassageStore
from mainspring.retrieval.postgres_passages import PostgresPassages
from mainspring.retrieval.sqlite_passages import SqlitePassages

OpenStore = Callable[[], PassageStore]
SCOPES = ("agent/a1", "user/u1", "team/t1", "tenant/n1")


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[OpenStore]:
    """Each call opens the same passages. They are closed at the end; those of a thread by it."""
    url = "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with ExitStack() as opened:

        def open_one() -> PassageStore:
            store = PostgresPassages(url) if url else SqlitePassages(tmp_path / "index.db")
            if current_thread() is main_thread():
                opened.callback(store.close)
            return store

        yield open_one


def container(name: str, *texts: str, scope: str = "agent", day: int = 1) -> Container:
    time = datetime(2026, 5, day, tzinfo=UTC)
    passages = [Passage(text=text, time=time) for text in texts]
    return Container(scope=scope, name=name, hash=str(hash(texts)), passages=passages)


def find_positions(index: PassageIndex, query: str, *scopes: str) -> list[tuple[str, int]]:
    hits = index.search(query, scopes or ("agent",), 10)
    return [(hit.container, hit.position) for hit in hits]


def test_a_passage_is_found_by_inflected_words_and_explains_its_rank(
    open_store: OpenStore,
):
    index = PassageIndex(open_store())
    index.put(
        container("a", "Anna is moving to Porto.", "She packs boxes."), container("b", "Rain.")
    )
    (first, *_) = index.search("Where does Anna move?", ["agent"], 3)
    assert (first.container, first.position) == ("a", 0)
    assert first.scored.parts["near"] > 0
    assert abs(sum(first.scored.parts.values()) - first.scored.score) < 1e-9
    index.close()


def test_a_container_is_replaced_and_removed_with_all_its_words(
    open_store: OpenStore, tmp_path: Path, postgres: Postgres
):
    index = PassageIndex(open_store())
    index.put(container("a", "the quagga crossed", "the river"), container("b", "a quagga slept"))
    index.put(container("a", "an okapi crossed"))
    assert find_positions(index, "quagga") == [("b", 0)]
    assert find_positions(index, "okapi") == [("a", 0)]
    index.remove("agent", "b")
    index.purge()
    assert find_positions(index, "quagga") == []
    index.close()
    postgres.execute("checkpoint")
    files = [*tmp_path.iterdir(), *(postgres.folder / "base").rglob("*")]
    assert not any(b"quagga" in file.read_bytes() for file in files if file.is_file())


@pytest.mark.parametrize("queries", [100, pytest.param(1_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("arrays_from", [0, math.inf])
def test_random_queries_find_nothing_outside_their_scopes(
    open_store: OpenStore, arrays_from: float, queries: int
):
    index, random = PassageIndex(open_store(), arrays_from=arrays_from), Random(7)
    words = [f"word{number}" for number in range(60)]
    index.put(
        *(
            container(
                f"c{number}",
                *(" ".join(random.choices(words, k=8)) for _ in range(3)),
                scope=f"{SCOPES[number % 4]}{number % 3}",
                day=number % 28 + 1,
            )
            for number in range(120)
        )
    )
    answered = 0
    for _ in range(queries):
        asked = {f"{scope}{random.randrange(3)}" for scope in random.sample(SCOPES, k=2)}
        query = " ".join(random.choices([*words, "May", "5"], k=4))
        hits = index.search(query, asked, 10)
        assert {hit.scope for hit in hits} <= asked
        answered += bool(hits)
    assert answered > 0.9 * queries
    assert index.search("word1", [], 10) == []
    assert index.search("word1", ["agent", "' or true --", "agent/a1%"], 10) == []
    index.close()


def test_a_reopened_index_finds_the_same_and_other_stems_reset_it(
    open_store: OpenStore,
):
    index = PassageIndex(open_store())
    index.put(container("a", "the zebra crossed"))
    index.close()
    again = PassageIndex(open_store())
    assert find_positions(again, "zebras") == [("a", 0)]
    again.close()
    store = open_store()
    store.require("other stems")
    assert store.hashes("agent") == {}
    store.close()


def test_concurrent_writers_lose_nothing(open_store: OpenStore):
    PassageIndex(open_store()).close()

    def write(writer: int) -> None:
        index = PassageIndex(open_store())
        for number in range(10):
            index.put(container("shared", f"shared text of {writer}"))
            index.put(container(f"c{writer}-{number}", f"zebra {writer} {number}"))
        index.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    index = PassageIndex(open_store())
    assert len(index.hashes("agent")) == 41
    assert {at for at, _ in find_positions(index, "shared text")} >= {"shared"}
    assert len(index.search("zebra", ["agent"], 100)) == 40
    index.close()


@pytest.mark.parametrize("arrays_from", [0, math.inf])
def test_any_text_can_be_a_query(open_store: OpenStore, arrays_from: float):
    index = PassageIndex(open_store(), arrays_from=arrays_from)
    index.put(container("a", "plain text"), container("empty"), container("no words", "", "..."))
    for query in (
        '"',
        "a OR b",
        "NEAR(",
        "*",
        "text*",
        "-",
        "%s '; drop table passage",
        "nul \0 inside",
        "😀",
        "",
        "x" * 20_000,
        "plain " * 5_000,
    ):
        index.search(query, ["agent"], 5)
    index.remove("agent", "empty", "no words", "never there")
    assert index.hashes("agent").keys() == {"a"}
    index.close()


WORDS = st.sampled_from(("zebra", "river", "Porto", "crossing", "5 May", "Anna", "what?", "über"))
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)
STEPS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(SCOPES), st.lists(TEXTS, max_size=4)),
    max_size=12,
)


@settings(max_examples=examples(0.25))
@given(steps=STEPS, queries=st.lists(TEXTS, min_size=1, max_size=2))
def test_both_stores_rank_alike_in_memory_and_in_the_store(
    steps: list[tuple[str, str, list[str]]], queries: list[str], postgres: Postgres
):
    """A container without texts is removed instead."""
    stores: list[PassageStore] = [SqlitePassages(None), PostgresPassages(postgres.url())]
    indexes = [PassageIndex(store, arrays_from=at) for at in (math.inf, 0) for store in stores]
    brought = container("brought", "the river in Porto", "Anna crossing what?", scope="session")
    try:
        for writer in indexes[:2]:
            writer.clear()
        for name, scope, texts in steps:
            for writer in indexes[:2]:
                if texts:
                    writer.put(container(name, *texts, scope=scope, day=len(texts)))
                else:
                    writer.remove(scope, name)
            for query in queries:
                ranked = [index.search(query, SCOPES[:3], 20, [brought]) for index in indexes]
                for other in ranked[1:]:
                    assert_same(ranked[0], other)
    finally:
        for store in stores:
            store.close()


def assert_same(hits: list[PassageHit], others: list[PassageHit]) -> None:
    places, same = (
        [(hit.scope, hit.container, hit.position) for hit in each] for each in (hits, others)
    )
    assert places == same
    for hit, other in zip(hits, others, strict=True):
        assert hit.scored.parts == pytest.approx(other.scored.parts)
        assert hit.scored.overlap == pytest.approx(other.scored.overlap)


def test_postgres_is_queried_again_after_a_lost_connection(postgres_url: str, postgres: Postgres):
    index = PassageIndex(PostgresPassages(postgres_url))
    index.put(container("a", "the zebra crossed"))
    postgres.disconnect()
    with suppress(StoreFailed):  # the connection is found lost
        find_positions(index, "zebra")
    assert find_positions(index, "zebra") == [("a", 0)]
    index.close()
