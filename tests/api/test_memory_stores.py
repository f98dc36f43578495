from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta.memory_stores import BetaManagedAgentsMemory
from tests.api.api_server import Served, ids, served
from tests.api.memory_api import digest, error_of, routes
from tests.at_once import at_once


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served(tmp_path, routes) as running:
        yield running


async def test_a_store_is_created_read_changed_archived_and_deleted(acme: AsyncAnthropic):
    stores = acme.beta.memory_stores
    made = await stores.create(name="Notes", metadata={"user": "ada"})
    assert made.id.startswith("memstore_")
    assert (made.description, made.archived_at) == ("", None)
    assert await stores.retrieve(made.id) == made
    changed = await stores.update(
        made.id, description="About Ada", metadata={"user": None, "team": "core"}
    )
    assert (changed.name, changed.description) == ("Notes", "About Ada")
    assert changed.metadata == {"team": "core"}
    archived = await stores.archive(made.id)
    assert archived.archived_at is not None
    assert await stores.archive(made.id) == archived
    assert await ids(stores.list()) == []
    assert await ids(stores.list(include_archived=True)) == [made.id]
    gone = await stores.delete(made.id)
    assert (gone.id, gone.type) == (made.id, "memory_store_deleted")
    with pytest.raises(anthropic.NotFoundError):
        await stores.retrieve(made.id)


async def test_stores_are_listed_in_pages_and_by_time(acme: AsyncAnthropic):
    stores = acme.beta.memory_stores
    made = [await stores.create(name=f"s{n}") for n in range(5)]
    assert await ids(stores.list(limit=2)) == [item.id for item in made[::-1]]
    moment = made[2].created_at
    late = await ids(stores.list(created_at_gte=moment))
    early = await ids(stores.list(created_at_lte=moment))
    assert set(late) & set(early) == {made[2].id}
    with pytest.raises(anthropic.BadRequestError, match="created_at"):
        await stores.list(created_at_gte="2026-01-01T00:00:00")


async def test_a_memory_is_created_read_changed_renamed_and_deleted(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    made = await memories.create(store.id, path="/notes/café.md", content="Grüße")
    assert (made.id[:4], made.memory_version_id[:7]) == ("mem_", "memver_")
    assert (made.content, made.content_size_bytes) == (None, 7)
    assert made.content_sha256 == digest("Grüße")
    assert (await memories.retrieve(made.id, memory_store_id=store.id)).content == "Grüße"
    assert await memories.retrieve(made.id, memory_store_id=store.id, view="basic") == made
    changed = await memories.update(made.id, memory_store_id=store.id, content="two", view="full")
    assert (changed.content, changed.path) == ("two", made.path)
    renamed = await memories.update(made.id, memory_store_id=store.id, path="/b.md")
    assert (renamed.id, renamed.path) == (made.id, "/b.md")
    assert renamed.content_sha256 == digest("two")
    assert (await memories.retrieve(made.id, memory_store_id=store.id)).content == "two"
    gone = await memories.delete(made.id, memory_store_id=store.id)
    assert (gone.id, gone.type) == (made.id, "memory_deleted")
    with pytest.raises(anthropic.NotFoundError):
        await memories.retrieve(made.id, memory_store_id=store.id)
    assert (await memories.create(store.id, path="/b.md", content="", view="full")).content == ""


async def test_an_update_needs_the_expected_content_hash(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    made = await memories.create(store.id, path="/a", content="one")
    expected = {"type": "content_sha256", "content_sha256": made.content_sha256}

    async def change(content: str) -> BetaManagedAgentsMemory:
        return await memories.update(
            made.id,
            memory_store_id=store.id,
            content=content,
            precondition=expected,  # pyright: ignore[reportArgumentType]
        )

    await change("two")
    with pytest.raises(anthropic.ConflictError) as caught:
        await change("three")
    assert error_of(caught)["type"] == "memory_precondition_failed_error"
    same = await change("two")
    assert same.content_sha256 == digest("two")
    with pytest.raises(anthropic.ConflictError) as caught:
        await memories.delete(
            made.id, memory_store_id=store.id, expected_content_sha256=made.content_sha256
        )
    assert error_of(caught)["type"] == "memory_precondition_failed_error"
    await memories.delete(made.id, memory_store_id=store.id, expected_content_sha256=digest("two"))


async def test_a_path_is_either_a_memory_or_a_folder(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    made = await memories.create(store.id, path="/a/b", content="")
    other = await memories.create(store.id, path="/z", content="")
    for path in ("/a/b", "/a", "/a/b/c/d"):
        with pytest.raises(anthropic.ConflictError) as caught:
            await memories.create(store.id, path=path, content="")
        told = error_of(caught)
        assert told["type"] == "memory_path_conflict_error"
        assert (told["conflicting_memory_id"], told["conflicting_path"]) == (made.id, "/a/b")
        with pytest.raises(anthropic.ConflictError):
            await memories.update(other.id, memory_store_id=store.id, path=path)
    deeper = await memories.update(made.id, memory_store_id=store.id, path="/a/b/c")
    assert deeper.path == "/a/b/c"
    assert (await memories.update(made.id, memory_store_id=store.id, path="/a")).path == "/a"


async def test_of_concurrent_creations_of_one_path_only_one_succeeds(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    got: list[str] = []
    refused: list[str] = []

    async def want(path: str) -> None:
        try:
            got.append((await memories.create(store.id, path=path, content=path)).path)
        except anthropic.ConflictError as error:
            refused.append(str(error))

    await at_once(want, ("/a", "/a/b", "/a/b/c", "/a", "/a/b", "/a/b/c"))
    assert len(got) == 1
    assert len([item for item in refused if "memory_path_conflict_error" in item]) == 5


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "/",
        "",
        "//a",
        "/a/",
        "/a//b",
        "/./a",
        "/a/../b",
        "/a\x00",
        "/a\nb",
        "/a\u200bb",
        "/a\u2028",
        "/cafe\u0301",
        "/a\uffff",
        "/" + "a" * 1024,
        "/é" * 20 + "é" * 500,
        "/a" * 21,
    ],
)
async def test_an_invalid_path_is_refused(path: str, acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    with pytest.raises(anthropic.BadRequestError, match="path"):
        await memories.create(store.id, path=path, content="")
    made = await memories.create(store.id, path="/good", content="")
    with pytest.raises(anthropic.BadRequestError, match="path"):
        await memories.update(made.id, memory_store_id=store.id, path=path)


async def test_contents_and_counts_over_the_limits_are_refused(acme: AsyncAnthropic):
    stores = acme.beta.memory_stores
    store = await stores.create(name="s")
    large = await stores.memories.create(store.id, path="/l", content="x" * 102_400)
    assert large.content_size_bytes == 102_400
    with pytest.raises(anthropic.BadRequestError, match="102400"):
        await stores.memories.create(store.id, path="/m", content="x" * 102_401)
    with pytest.raises(anthropic.BadRequestError, match="content"):
        await stores.memories.create(store.id, path="/m", content=None)
    for n in range(29):
        await stores.memories.create(store.id, path=f"/{n}", content="")
    with pytest.raises(anthropic.BadRequestError, match="30 memories"):
        await stores.memories.create(store.id, path="/one-more", content="")
    for name in ("", "x" * 256, "a\tb"):
        with pytest.raises(anthropic.BadRequestError, match="name"):
            await stores.create(name=name)
    with pytest.raises(anthropic.BadRequestError, match="limit"):
        await stores.memories.list(store.id, limit=101)


async def test_memories_are_listed_by_path_and_by_folder(acme: AsyncAnthropic):
    store = await acme.beta.memory_stores.create(name="s")
    memories = acme.beta.memory_stores.memories
    paths = ["/b/x/1", "/b/x/2", "/b/y", "/a", "/b-c/1", "/c", "/d/1/2/3"]
    for path in paths:
        await memories.create(store.id, path=path, content=path)

    async def listed(prefix: str = "/", depth: int = 0, limit: int = 100) -> list[str]:
        found = memories.list(store.id, path_prefix=prefix, depth=depth, limit=limit)
        return [f"{item.type[7:]}{item.path}" async for item in found]

    for limit in (1, 2, 3, 100):
        assert await listed(limit=limit) == sorted(paths)
        assert await listed(depth=1, limit=limit) == [
            "/a",
            "prefix/b-c/",
            "prefix/b/",
            "/c",
            "prefix/d/",
        ]
        assert await listed("/b/", 1, limit) == ["prefix/b/x/", "/b/y"]
        assert await listed(depth=2, limit=limit) == [
            "/a",
            "/b-c/1",
            "prefix/b/x/",
            "/b/y",
            "/c",
            "prefix/d/1/",
        ]
    assert await listed("/b/x/") == ["/b/x/1", "/b/x/2"]
    assert await listed("/nothing/") == []
    full = await memories.list(store.id, view="full", limit=100)
    assert [item.path for item in full.data] == sorted(paths)
    assert [getattr(item, "content", None) for item in full.data] == sorted(paths)
    for prefix in ("b", "/b", "//", "/../"):
        with pytest.raises(anthropic.BadRequestError, match="path"):
            await memories.list(store.id, path_prefix=prefix)
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await memories.list(store.id, page="nonsense")


async def test_an_archived_store_is_read_only_except_for_redaction(acme: AsyncAnthropic):
    stores = acme.beta.memory_stores
    store = await stores.create(name="s")
    made = await stores.memories.create(store.id, path="/a", content="one")
    await stores.memories.update(made.id, memory_store_id=store.id, content="two")
    await stores.archive(store.id)
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await stores.update(store.id, name="t")
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await stores.memories.create(store.id, path="/b", content="")
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await stores.memories.update(made.id, memory_store_id=store.id, content="three")
    assert (await stores.memories.retrieve(made.id, memory_store_id=store.id)).content == "two"
    await stores.memory_versions.redact(made.memory_version_id, memory_store_id=store.id)
    await stores.memories.delete(made.id, memory_store_id=store.id)


async def test_deleting_a_store_deletes_all_of_its_contents(tmp_path: Path):
    async with served(tmp_path, routes) as api, api.client() as client:
        stores = client.beta.memory_stores
        store = await stores.create(name="s")
        made = await stores.memories.create(store.id, path="/a", content="of the deleted store")
        await stores.delete(store.id)
        with pytest.raises(anthropic.NotFoundError):
            await stores.memories.retrieve(made.id, memory_store_id=store.id)
        with pytest.raises(anthropic.NotFoundError):
            await stores.memories.list(store.id)
        with pytest.raises(anthropic.NotFoundError):
            await stores.memory_versions.list(store.id)
        with pytest.raises(anthropic.NotFoundError):
            await stores.memory_versions.retrieve(made.memory_version_id, memory_store_id=store.id)
        with pytest.raises(anthropic.NotFoundError):
            await stores.memories.create(store.id, path="/b", content="")
    assert b"of the deleted store" not in b"".join(item.read_bytes() for item in tmp_path.iterdir())
