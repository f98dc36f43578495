"""The routes of memory stores, for tests."""

from hashlib import sha256

import anthropic
import pytest

from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.define.memory_stores import MemoryRoutes, MemoryStoreRoutes
from mainspring.log.records import Records
from mainspring.retrieval.passage_index import PassageIndex
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_search import MemorySearch, StoreIndex
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions


def routes(records: Records):
    stores = MemoryStores(records)
    memories = Memories(records, stores, max_memories=30)
    versions = MemoryVersions(records, stores)
    search = MemorySearch(memories, StoreIndex(lambda: PassageIndex(SqlitePassages(None))))
    return routes_of(MemoryStoreRoutes(stores), MemoryRoutes(memories, versions, search))


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def error_of(caught: pytest.ExceptionInfo[anthropic.APIStatusError]) -> dict[str, str]:
    body = caught.value.body
    assert isinstance(body, dict)
    return body["error"]  # pyright: ignore[reportUnknownVariableType]
