"""Embeddings of a provider: in batches, in order, tried again, never with the key in an error; and
an index that goes on by words while there are none."""

from collections.abc import Generator

import pytest
from tests.providers.embedding_server import EmbeddingServer, embedding_server

from mainspring.capabilities.providers.embeddings import EmbeddingEndpoint
from mainspring.capabilities.providers.http_call import Endpoint, bearer_headers
from mainspring.capabilities.providers.retry import Timing
from mainspring.core.errors import ProviderFailed
from mainspring.retrieval.endpoint_vectors import EndpointEncoder
from mainspring.retrieval.passage_index import Container, Passage, PassageIndex
from mainspring.retrieval.passage_vectors import PassageVectors
from mainspring.retrieval.sqlite_passages import SqlitePassages

KEY = "sk-embedding-secret-0123456789"


@pytest.fixture
def server() -> Generator[EmbeddingServer]:
    with embedding_server() as served:
        yield served


async def no_sleep(_seconds: float) -> None:
    pass


def endpoint(server: EmbeddingServer) -> EmbeddingEndpoint:
    place = Endpoint(
        provider="openai", url=f"{server.url}/embeddings", secret=KEY, headers=bearer_headers(KEY)
    )
    return EmbeddingEndpoint(endpoint=place, model="test-embed", timing=Timing(sleep=no_sleep))


def container(name: str, text: str, hash: str = "1") -> Container:
    return Container(scope="agent", name=name, hash=hash, passages=[Passage(text=text)])


def test_many_texts_are_sent_in_batches_and_returned_in_order(server: EmbeddingServer):
    vectors = endpoint(server)([f"{'cat' if at % 2 else 'rocket'} {at}" for at in range(300)])
    assert [vector[0] for vector in vectors] == [0.0, 2.0] * 150
    assert [len(request.input) for request in server.requests] == [128, 128, 44]
    assert server.keys == {f"Bearer {KEY}"}


def test_temporary_failures_are_retried_and_others_reported_without_the_key(
    server: EmbeddingServer,
):
    server.failures = [503, 429]
    assert len(endpoint(server)(["cat"])) == 1
    assert len(server.requests) == 3
    server.failures = [401]
    with pytest.raises(ProviderFailed) as refused:
        endpoint(server)(["cat"])
    assert len(server.requests) == 4
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "reply",
    [
        b'{"data": []}',
        b'{"data": [{"embedding": []}]}',
        b'{"data": [{"embedding": ["x"]}]}',
        b'{"data": [{"embedding": [1e999]}]}',
        b"[]",
        b"{",
    ],
    ids=str,
)
def test_an_invalid_response_is_refused(server: EmbeddingServer, reply: bytes):
    server.reply = reply
    with pytest.raises(ProviderFailed):
        endpoint(server)(["cat"])


def test_search_uses_words_while_the_embedding_endpoint_fails(server: EmbeddingServer):
    seconds = [0.0]
    vectors = PassageVectors(EndpointEncoder(endpoint(server), 3, lambda: seconds[0]))
    index = PassageIndex(SqlitePassages(None), vectors=vectors)
    index.put(container("a", "The kitten sleeps."), container("b", "Launch is at noon."))
    assert len(server.requests) == 1
    assert [hit.container for hit in index.search("Who is the pet?", ["agent"], 1)] == ["a"]
    server.failures = [400]
    index.put(container("c", "My cat is called Ada."))
    assert index.problem is not None
    assert index.hashes("agent")["c"] != "1"
    asked = len(server.requests)
    hits = index.search("What is my cat called?", ["agent"], 1)
    assert [hit.container for hit in hits] == ["c"]
    assert index.problem
    assert len(server.requests) == asked  # it is not asked again at once
    seconds[0] = 61.0
    index.put(container("c", "My cat is called Ada."))
    assert index.hashes("agent")["c"] == "1"
    assert [hit.container for hit in index.search("pet", ["agent"], 2)] == ["c", "a"]
    assert index.problem is None
    server.dimensions = 4
    index.put(container("d", "A rocket engine."))
    assert "now returns vectors of 4 numbers, not 3" in (index.problem or "")
    index.close()
