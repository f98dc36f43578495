from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Served, collect, ids, served
from tests.api.memory_api import digest, routes

from mainspring.service.memory_stores.memories import Memories
from mainspring.service.memory_stores.memory_records import SessionActor, UpdateMemory
from mainspring.service.memory_stores.memory_stores import MemoryStores


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served(tmp_path, routes) as running:
        yield running


async def test_an_unchanged_update_makes_no_version(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    made = await memories.create(store.id, path="/a", content="one")
    assert await memories.update(made.id, memory_store_id=store.id) == made
    same = await memories.update(made.id, memory_store_id=store.id, content="one", path="/a")
    assert same == made


async def test_a_page_with_contents_has_at_most_twenty_items(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    for n in range(22):
        await memories.create(store.id, path=f"/{n:02}", content=str(n))
    page = await memories.list(store.id, view="full", limit=100)
    assert len(page.data) == 20
    assert len([item async for item in page]) == 22
    versions = acme.beta.memory_stores.memory_versions
    first = await versions.list(store.id, view="full", limit=100)
    assert len(first.data) == 20
    assert [item.content async for item in first] == [str(n) for n in range(22)][::-1]


async def test_every_change_is_a_version_with_its_author(api: Served, acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories, versions = (acme.beta.memory_stores.memories, acme.beta.memory_stores.memory_versions)
    made = await memories.create(store.id, path="/a", content="one")
    other = await memories.create(store.id, path="/other", content="x")
    await Memories(api.records, MemoryStores(api.records)).update(
        "acme", store.id, made.id, UpdateMemory(content="two"), SessionActor(session_id="sesn_1")
    )
    await memories.update(made.id, memory_store_id=store.id, path="/b")
    await memories.delete(made.id, memory_store_id=store.id)
    found = await collect(versions.list(store.id, memory_id=made.id, limit=2))
    assert [(item.operation, item.path) for item in found] == [
        ("deleted", "/b"),
        ("modified", "/b"),
        ("modified", "/a"),
        ("created", "/a"),
    ]
    assert [i.content_sha256 for i in found] == [None, digest("two"), digest("two"), digest("one")]
    authors = [item.created_by.type for item in found if item.created_by]
    assert authors == ["api_actor", "api_actor", "session_actor", "api_actor"]
    assert all(item.content is None for item in found)
    first = await versions.retrieve(found[-1].id, memory_store_id=store.id)
    assert (first.content, first.id) == ("one", made.memory_version_id)

    async def matches(**wanted: str) -> list[str]:
        return await ids(versions.list(store.id, **wanted))  # pyright: ignore[reportArgumentType]

    assert await matches(session_id="sesn_1") == [found[2].id]
    assert len(await matches(api_key_id="key_test")) == 4
    assert await matches(operation="deleted") == [found[0].id]
    assert await matches(operation="deleted", memory_id=other.id) == []
    assert await matches(service_account_id="svac_1") == []
    moment = found[1].created_at
    assert set(await matches(created_at_gte=moment.isoformat())) == {found[0].id, found[1].id}
    before = (moment - timedelta(microseconds=1)).isoformat()
    assert found[1].id not in await matches(created_at_lte=before)
    assert found[1].id in await matches(created_at_lte=moment.isoformat())


async def test_a_redacted_version_keeps_only_the_fact_of_the_change(tmp_path: Path):
    async with served(tmp_path, routes) as api, api.client() as client:
        store = await client.beta.memory_stores.create(name="s")
        memories, versions = (
            client.beta.memory_stores.memories,
            client.beta.memory_stores.memory_versions,
        )
        made = await memories.create(store.id, path="/very-private", content="a leaked secret")
        with pytest.raises(anthropic.BadRequestError, match="current version"):
            await versions.redact(made.memory_version_id, memory_store_id=store.id)
        await memories.update(made.id, memory_store_id=store.id, path="/b", content="clean")
        cleared = await versions.redact(made.memory_version_id, memory_store_id=store.id)
        assert (cleared.path, cleared.content, cleared.content_sha256) == (None, None, None)
        assert cleared.content_size_bytes is None
        assert cleared.redacted_at is not None
        assert cleared.redacted_by is not None
        assert (cleared.operation, cleared.memory_id) == ("created", made.id)
        assert await versions.redact(made.memory_version_id, memory_store_id=store.id) == cleared
        assert await versions.retrieve(made.memory_version_id, memory_store_id=store.id) == cleared
        assert (await memories.retrieve(made.id, memory_store_id=store.id)).content == "clean"
        last = await memories.delete(made.id, memory_store_id=store.id)
        newest = (await versions.list(store.id, memory_id=last.id)).data[1]
        await versions.redact(newest.id, memory_store_id=store.id)
    left = b"".join(item.read_bytes() for item in tmp_path.iterdir())
    assert b"a leaked secret" not in left
    assert b"very-private" not in left
