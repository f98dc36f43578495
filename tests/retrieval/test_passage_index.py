"""Passages: found by what they and their surroundings say, within the scopes that were asked."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.sqlite_passages import SqlitePassages


def container(name: str, *texts: str, scope: str = "agent", day: int = 1) -> Container:
    time = datetime(2026, 5, day, tzinfo=UTC)
    passages = [Passage(text=text, time=time) for text in texts]
    return Container(scope=scope, name=name, hash=str(hash(texts)), passages=passages)


def found(index: PassageIndex, query: str, *scopes: str) -> list[tuple[str, int]]:
    hits = index.search(query, scopes or ("agent",), 10)
    return [(hit.container, hit.position) for hit in hits]


def test_a_passage_is_found_by_other_forms_of_its_words_and_explains_its_rank():
    index = PassageIndex(SqlitePassages(None))
    index.put(
        container("a", "Anna is moving to Porto.", "She packs boxes."), container("b", "Rain.")
    )
    (first, *_) = index.search("Where does Anna move?", ["agent"], 3)
    assert (first.container, first.position) == ("a", 0)
    assert first.scored.parts["own"] > 0
    assert abs(sum(first.scored.parts.values()) - first.scored.score) < 1e-9


def test_a_container_is_replaced_and_removed_with_all_its_words(tmp_path: Path):
    index = PassageIndex(SqlitePassages(tmp_path / "index.db"))
    index.put(container("a", "the zebra crossed", "the river"), container("b", "a zebra slept"))
    index.put(container("a", "an okapi crossed"))
    assert found(index, "zebra") == [("b", 0)]
    assert found(index, "okapi") == [("a", 0)]
    index.remove("agent", "b")
    index.purge()
    assert found(index, "zebra") == []
    index.close()
    assert not any(b"zebra" in file.read_bytes() for file in tmp_path.iterdir())


def test_no_query_finds_what_another_scope_wrote():
    index, random = PassageIndex(SqlitePassages(None)), Random(7)
    words = [f"word{number}" for number in range(60)]
    for number in range(300):
        texts = [" ".join(random.choices(words, k=8)) for _ in range(3)]
        index.put(container(f"c{number}", *texts, scope=f"user{number % 10}", day=number % 28 + 1))
    for _ in range(1_000):
        scope = f"user{random.randrange(10)}"
        query = " ".join(random.choices([*words, "May", "5"], k=4))
        hits = index.search(query, [scope], 10)
        assert {hit.scope for hit in hits} <= {scope}
    assert index.search("word1", [], 10) == []


def test_a_reopened_index_finds_the_same_and_an_index_of_other_stems_starts_over(tmp_path: Path):
    index = PassageIndex(SqlitePassages(tmp_path / "index.db"))
    index.put(container("a", "the zebra crossed"))
    index.close()
    again = PassageIndex(SqlitePassages(tmp_path / "index.db"))
    assert found(again, "zebras") == [("a", 0)]
    again.close()
    store = SqlitePassages(tmp_path / "index.db")
    store.require("other stems")
    assert store.hashes("agent") == {}


def test_any_text_is_a_query():
    index = PassageIndex(SqlitePassages(None))
    index.put(container("a", "plain text"))
    for query in (
        '"',
        "a OR b",
        "NEAR(",
        "*",
        "text*",
        "-",
        "😀",
        "",
        "x" * 20_000,
        "plain " * 5_000,
    ):
        index.search(query, ["agent"], 5)
