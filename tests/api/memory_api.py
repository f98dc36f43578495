"""The routes of memory stores, for tests."""

from hashlib import sha256

import anthropic
import pytest

from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.memory_stores import MemoryRoutes, MemoryStoreRoutes
from mainspring.log.records import Records
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_stores import MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions


def routes(records: Records):
    stores = MemoryStores(records)
    memories = Memories(records, stores, max_memories=30)
    versions = MemoryVersions(records, stores)
    return (*routes_of(MemoryStoreRoutes(stores)), *routes_of(MemoryRoutes(memories, versions)))


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def error_of(caught: pytest.ExceptionInfo[anthropic.APIStatusError]) -> dict[str, str]:
    body = caught.value.body
    assert isinstance(body, dict)
    return body["error"]  # pyright: ignore[reportUnknownVariableType]
