"""Memory stores are searched as they are now, by their own tenant, on both databases."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from mainspring.core.errors import NotFound
from mainspring.log.postgres import open_postgres
from mainspring.log.sqlite import open_sqlite
from mainspring.retrieval.passage_index import PassageIndex
from mainspring.retrieval.postgres_passages import PostgresPassages
from mainspring.retrieval.sqlite_passages import SqlitePassages
from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_records import ApiActor, CreateMemory, UpdateMemory
from mainspring.service.memory_stores.memory_search import MemorySearch, SearchMemories, StoreIndex
from mainspring.service.memory_stores.memory_stores import CreateMemoryStore, MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions, VersionListing

ACTOR = ApiActor(api_key_id="apikey_1")


@dataclass(frozen=True)
class SearchSetup:
    stores: MemoryStores
    memories: Memories
    versions: MemoryVersions
    search: MemorySearch

    async def store_with(self, tenant: str, **texts: str) -> str:
        store = await self.stores.create(tenant, CreateMemoryStore(name="notes"))
        for name, text in texts.items():
            await self.add(tenant, store.id, name, text)
        return store.id

    async def add(self, tenant: str, store_id: str, name: str, text: str) -> str:
        request = CreateMemory(path=f"/{name}.md", content=text)
        return (await self.memories.create(tenant, store_id, request, ACTOR)).id

    async def found(self, tenant: str, store_id: str, query: str) -> list[tuple[str, str]]:
        request = SearchMemories(query=query)
        matches = await self.search.search(tenant, store_id, request)
        return [(match.path, match.text) for match in matches]


@pytest.fixture(params=["sqlite", "postgres"])
async def search_setup(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[SearchSetup]:
    if request.param == "sqlite":
        opening = open_sqlite(tmp_path / "mainspring.db")
        open_passages = partial(SqlitePassages, tmp_path / "passages.db")
    else:
        url: str = request.getfixturevalue("postgres_url")
        opening, open_passages = open_postgres(url), partial(PostgresPassages, url)
    async with opening as store:
        index = StoreIndex(lambda: PassageIndex(open_passages()))
        stores = MemoryStores(store.records, forget=index.forget)
        memories = Memories(store.records, stores)
        versions = MemoryVersions(store.records, stores)
        yield SearchSetup(stores, memories, versions, MemorySearch(memories, index))


async def test_a_search_sees_every_change_at_once(search_setup: SearchSetup):
    store_id = await search_setup.store_with(
        "acme", release="We release on Thursdays.\n\nNever on Fridays.", tea="Anna drinks tea."
    )
    first = await search_setup.found("acme", store_id, "When do we release?")
    assert first[0] == ("/release.md", "We release on Thursdays.\n\nNever on Fridays.")
    added = await search_setup.add("acme", store_id, "dog", "The dog is called Ada.")
    assert (await search_setup.found("acme", store_id, "name of the dog"))[0][0] == "/dog.md"
    await search_setup.memories.update(
        "acme", store_id, added, UpdateMemory(path="/cat.md", content="The cat is Ada."), ACTOR
    )
    assert await search_setup.found("acme", store_id, "dog") == []
    assert await search_setup.found("acme", store_id, "cat") == [("/cat.md", "The cat is Ada.")]
    await search_setup.memories.delete("acme", store_id, added, ACTOR)
    assert await search_setup.found("acme", store_id, "cat") == []


async def test_no_search_finds_memories_of_another_tenant_or_store(search_setup: SearchSetup):
    ours = await search_setup.store_with("acme", a="The password hint is zebra.")
    theirs = await search_setup.store_with("other", a="Nothing of interest.")
    second = await search_setup.store_with("acme", a="A second store.")
    assert len(await search_setup.found("acme", ours, "zebra")) == 1
    assert await search_setup.found("other", theirs, "zebra") == []
    assert await search_setup.found("acme", second, "zebra") == []
    with pytest.raises(NotFound):
        await search_setup.found("other", ours, "zebra")


async def test_deleted_stores_and_redacted_versions_leave_the_index(search_setup: SearchSetup):
    store_id = await search_setup.store_with("acme", a="The zebra crossed.")
    assert len(await search_setup.found("acme", store_id, "zebra")) == 1
    page = await search_setup.versions.page("acme", store_id, VersionListing())
    (memory,) = await search_setup.memories.all("acme", store_id)
    await search_setup.memories.update(
        "acme", store_id, memory.id, UpdateMemory(content="Something else."), ACTOR
    )
    await search_setup.versions.redact("acme", store_id, page.data[0].id, ACTOR)
    hashes = partial(PassageIndex.hashes, scope=f"acme/{store_id}")
    assert await search_setup.search.index.run(hashes) == {}
    assert len(await search_setup.found("acme", store_id, "else")) == 1
    await search_setup.stores.delete("acme", store_id)
    assert await search_setup.search.index.run(hashes) == {}
