"""Vectors: what is near in meaning is found without a shared word, and never outside a scope."""

import math
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np
import pytest
from tests.retrieval.vector_tables import ROWS, write_model2vec, write_table

from mainspring.core.errors import InvalidInput
from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.passage_vectors import PassageVectors
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.retrieval.static_vectors import read_static_table

OpenIndex: TypeAlias = Callable[[Path | None, PassageVectors], PassageIndex]


def container(name: str, *texts: str, scope: str = "agent") -> Container:
    passages = [Passage(text=text) for text in texts]
    return Container(scope=scope, name=name, hash="1", passages=passages)


@pytest.fixture
def open_index() -> Generator[OpenIndex]:
    """Indexes that are closed at the end."""
    with ExitStack() as opened:

        def open_one(path: Path | None, vectors: PassageVectors) -> PassageIndex:
            return opened.enter_context(
                closing(PassageIndex(SqlitePassages(path), vectors=vectors))
            )

        yield open_one


@pytest.fixture
def vectors(tmp_path: Path) -> PassageVectors:
    return PassageVectors(read_static_table(write_table(tmp_path / "table.npz")))


def test_an_npz_table_and_a_model2vec_folder_give_the_same_vectors(tmp_path: Path):
    one = read_static_table(write_table(tmp_path / "table.npz"))
    other = read_static_table(write_model2vec(tmp_path / "model"))
    texts = ["The cats sleeps", "Rocket, launch!", "unknown", "", "Café cat"]
    assert np.allclose(one.encode(texts), other.encode(texts), atol=0.01)
    assert np.allclose(np.linalg.norm(one.encode(texts), axis=1), [1, 1, 0, 0, 1])
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken"])
def test_other_files_are_refused(tmp_path: Path, content: bytes):
    (tmp_path / "table.npz").write_bytes(content)
    with pytest.raises(InvalidInput, match="table of vectors"):
        read_static_table(tmp_path / "table.npz")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(content)
    with pytest.raises(InvalidInput, match="table of vectors"):
        read_static_table(tmp_path / "model")


def test_a_passage_is_found_by_meaning(vectors: PassageVectors, open_index: OpenIndex):
    index = open_index(None, vectors)
    index.put(container("a", "The kitten sleeps."), container("b", "Rocket launch."))
    (first, *_) = index.search("cat", ["agent"], 5)
    assert first.container == "a"
    assert first.scored.parts["vector"] > 0


def test_changes_by_another_process_are_seen(
    tmp_path: Path, vectors: PassageVectors, open_index: OpenIndex
):
    index, other = (open_index(tmp_path / "index.db", vectors) for _ in range(2))
    index.put(container("a", "Rocket launch."))
    assert [hit.container for hit in index.search("kitten", ["agent"], 1)] == ["a"]
    other.put(container("b", "The cat sleeps."))
    assert [hit.container for hit in index.search("kitten", ["agent"], 1)] == ["b"]
    other.remove("agent", "b")
    assert [hit.container for hit in index.search("kitten", ["agent"], 1)] == ["a"]


def test_another_table_resets_the_index(
    tmp_path: Path, vectors: PassageVectors, open_index: OpenIndex
):
    index = open_index(tmp_path / "index.db", vectors)
    index.put(container("a", "cat"))
    index.close()
    table = write_table(tmp_path / "other.npz", {**ROWS, "dog": (0.5, 0.5, 0.0)})
    again = open_index(tmp_path / "index.db", PassageVectors(read_static_table(table)))
    assert again.hashes("agent") == {}


def test_vector_search_stays_within_its_scope(vectors: PassageVectors, open_index: OpenIndex):
    index, random = open_index(None, vectors), Random(3)
    words = [word for word in ROWS if word.isalpha() and word != "the"]
    for number in range(200):
        texts = [" ".join(random.choices(words, k=5)) for _ in range(2)]
        index.put(container(f"c{number}", *texts, scope=f"user{number % 8}"))
    for _ in range(300):
        scope = f"user{random.randrange(8)}"
        hits = index.search(" ".join(random.choices(words, k=3)), [scope], 10)
        assert hits
        assert {hit.scope for hit in hits} == {scope}


def test_vectors_in_memory_and_in_the_store_rank_alike(vectors: PassageVectors):
    store = SqlitePassages(None)
    in_store, in_memory = (
        PassageIndex(store, vectors=vectors, arrays_from=limit) for limit in (math.inf, 0)
    )
    brought = container("brought", "a kitten on a boat", scope="session")
    for name in "abcb":
        in_store.put(container(name, "the cat sleeps", "a car drives", "my kitten", f"boat {name}"))
        for query in ("cat", "kitten on a boat", "vehicle", "nothing of this"):
            hits, others = (
                index.search(query, ["agent"], 20, [brought]) for index in (in_store, in_memory)
            )
            assert [(hit.container, hit.position) for hit in hits] == [
                (hit.container, hit.position) for hit in others
            ]
            for hit, other in zip(hits, others, strict=True):
                assert hit.scored.parts == pytest.approx(other.scored.parts, abs=1e-6)
    in_store.close()


def test_without_numpy_the_store_answers_every_search():
    script = """
import sys
sys.modules["numpy"] = None
from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.sqlite_passages import SqlitePassages
index = PassageIndex(SqlitePassages(None), arrays_from=0)
passages = [Passage(text="Anna moves to Porto")]
index.put(Container(scope="agent", name="a", hash="", passages=passages))
print([len(index.search("Porto", ["agent"], 5)) for _ in range(3)])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"[1, 1, 1]\n", b"")
