"""Any sequence of changes is what a dictionary would make of it, and its versions tell it again."""

import unicodedata
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.at_once import at_once
from tests.property_examples import examples

from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound, PathTaken
from mainspring.log.postgres import open_postgres
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.principal import Principal
from mainspring.service.memory_stores.memories import Memories, MemoryListing
from mainspring.service.memory_stores.memory_records import (
    ApiActor,
    CreateMemory,
    MemoryActor,
    MemoryObject,
    Precondition,
    SessionActor,
    UpdateMemory,
    UserActor,
    actor_of,
    check_path,
    content_digest,
    folder_at_depth,
    parent_folders,
)
from mainspring.service.memory_stores.memory_stores import CreateMemoryStore, MemoryStores
from mainspring.service.memory_stores.memory_versions import MemoryVersions, VersionListing

ACTOR = ApiActor(api_key_id="apikey_1")
PATHS = ("/a", "/a/b", "/a/b/c", "/b", "/b/c", "/c")
CONTENTS = ("", "one", "two")


@dataclass(frozen=True)
class Create:
    path: str
    content: str


@dataclass(frozen=True)
class Update:
    which: int
    path: str | None
    content: str | None
    expected: str | None


@dataclass(frozen=True)
class Delete:
    which: int
    expected: str | None


@dataclass(frozen=True)
class Redact:
    which: int


class StoredMemory(Protocol):
    @property
    def records(self) -> Records: ...


Opening: TypeAlias = AbstractAsyncContextManager[StoredMemory]
Act: TypeAlias = Create | Update | Delete | Redact

paths, contents = st.sampled_from(PATHS), st.sampled_from(CONTENTS)
acts: st.SearchStrategy[Act] = st.one_of(
    st.builds(Create, paths, contents),
    st.builds(
        Update, st.integers(0, 9), st.none() | paths, st.none() | contents, st.none() | contents
    ),
    st.builds(Delete, st.integers(0, 9), st.none() | contents),
    st.builds(Redact, st.integers(0, 99)),
)


class DictionaryModel:
    """A store as a dictionary has it: by id, the path and the content."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, str]] = {}

    def blocks(self, path: str, besides: str = "") -> bool:
        taken = [held for id_, (held, _) in self.held.items() if id_ != besides]
        return any(i == path or i.startswith(f"{path}/") or path.startswith(f"{i}/") for i in taken)


class HistoryRun:
    def __init__(self, records: Records, store_id: str, stores: MemoryStores) -> None:
        self.memories = Memories(records, stores)
        self.versions = MemoryVersions(records, stores)
        self.store_id = store_id
        self.model = DictionaryModel()
        self.made: list[str] = []
        self.redacted: set[str] = set()

    async def do(self, act: Act) -> None:
        match act:
            case Create():
                await self.create(act)
            case Update() if self.made:
                await self.update(act, self.made[act.which % len(self.made)])
            case Delete() if self.made:
                await self.delete(act, self.made[act.which % len(self.made)])
            case Redact() if self.made:
                await self.redact(act.which)
            case _:
                pass

    async def create(self, act: Create) -> None:
        asked = CreateMemory(path=act.path, content=act.content)
        if self.model.blocks(act.path):
            with pytest.raises(PathTaken):
                await self.memories.create("acme", self.store_id, asked, ACTOR)
            return
        made = await self.memories.create("acme", self.store_id, asked, ACTOR)
        self.made.append(made.id)
        self.model.held[made.id] = (act.path, act.content)

    async def update(self, act: Update, id_: str) -> None:
        held = self.model.held.get(id_)
        error: type[Exception] | None = None
        if held is None:
            error = NotFound
        else:
            wanted = (act.path or held[0], held[1] if act.content is None else act.content)
            if wanted != held and act.expected not in (None, held[1]):
                error = MemoryChanged
            elif wanted[0] != held[0] and self.model.blocks(wanted[0], id_):
                error = PathTaken
            else:
                self.model.held[id_] = wanted
        asked = UpdateMemory(path=act.path, content=act.content, precondition=_is(act.expected))
        if error is None:
            await self.memories.update("acme", self.store_id, id_, asked, ACTOR)
            return
        with pytest.raises(error):
            await self.memories.update("acme", self.store_id, id_, asked, ACTOR)

    async def delete(self, act: Delete, id_: str) -> None:
        held = self.model.held.get(id_)
        sha = None if act.expected is None else content_digest(act.expected.encode())
        if held is not None and act.expected in (None, held[1]):
            del self.model.held[id_]
            await self.memories.delete("acme", self.store_id, id_, ACTOR, expected_sha256=sha)
            return
        with pytest.raises(NotFound if held is None else MemoryChanged):
            await self.memories.delete("acme", self.store_id, id_, ACTOR, expected_sha256=sha)

    async def redact(self, which: int) -> None:
        page = await self.versions.page("acme", self.store_id, VersionListing(limit=100))
        version = page.data[which % len(page.data)]
        heads = {item.memory_version_id for item in await self.current()}
        if version.id in heads:
            with pytest.raises(InvalidInput):
                await self.versions.redact("acme", self.store_id, version.id, ACTOR)
            return
        await self.versions.redact("acme", self.store_id, version.id, ACTOR)
        self.redacted.add(version.id)

    async def current(self) -> list[MemoryObject]:
        listing = MemoryListing(limit=100, view="full")
        page = await self.memories.page("acme", self.store_id, listing)
        return [item for item in page.data if isinstance(item, MemoryObject)]

    async def replayed(self) -> dict[str, tuple[str, str]]:
        """What the versions alone tell, from the first to the last."""
        page = await self.versions.page("acme", self.store_id, VersionListing(limit=100))
        told: dict[str, tuple[str, str]] = {}
        for version in reversed(page.data):
            if version.operation == "deleted":
                del told[version.memory_id]
            elif version.id in self.redacted:
                assert (version.path, version.content_sha256) == (None, None)
                told[version.memory_id] = ("", "")
            else:
                full = await self.versions.get("acme", self.store_id, version.id)
                assert full.path is not None
                assert full.content is not None
                told[version.memory_id] = (full.path, full.content)
        return told


def _is(expected: str | None) -> Precondition | None:
    return (
        expected
        if expected is None
        else Precondition(content_sha256=content_digest(expected.encode()))
    )


async def play_history(history: list[Act], opened: Callable[[], Opening]) -> None:
    async with opened() as store:
        stores = MemoryStores(store.records)
        made = await stores.create("acme", CreateMemoryStore(name="s"))
        game = HistoryRun(store.records, made.id, stores)
        for act in history:
            await game.do(act)
        listed = {item.id: (item.path, item.content) for item in await game.current()}
        assert listed == game.model.held
        assert await game.replayed() == game.model.held


def test_any_history_matches_a_dictionary_and_its_versions(tmp_path: Path):
    @given(st.lists(acts, max_size=25))
    @settings(max_examples=examples(0.5))
    def tell(history: list[Act]) -> None:
        anyio.run(play_history, history, lambda: open_sqlite(tmp_path / "mainspring.db"))

    tell()


def test_any_history_matches_in_postgres(postgres_url: str):
    @given(st.lists(acts, min_size=5, max_size=25))
    @settings(max_examples=examples(0.1))
    def tell(history: list[Act]) -> None:
        anyio.run(play_history, history, lambda: open_postgres(postgres_url, max_connections=2))

    tell()


segments = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


@given(st.lists(segments, min_size=1, max_size=22).map(lambda parts: "/" + "/".join(parts)))
@example("/a/../b")
@example("/" + "é" * 511)
def test_an_accepted_path_is_safe(path: str):
    try:
        check_path(path)
    except InvalidInput:
        return
    parts = path.split("/")[1:]
    assert 1 <= len(parts) <= 20
    assert len(path.encode()) <= 1024
    assert not {"", ".", ".."} & set(parts)
    assert path == unicodedata.normalize("NFC", path)
    assert not any(unicodedata.category(item) in ("Cc", "Cf", "Zl", "Zp") for item in path)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), st.integers(0, 6))
def test_a_folder_covers_exactly_the_deeper_paths(parts: list[str], depth: int):
    path = "/" + "/".join(parts)
    folder = folder_at_depth(path, "/", depth)
    assert (folder is None) == (depth == 0 or len(parts) <= depth)
    if folder is not None:
        assert path.startswith(folder)
        assert folder.rstrip("/") in parent_folders(path)
        assert folder.count("/") == depth + 1


@pytest.mark.parametrize(
    ("key", "actor"),
    [
        ("apikey_1", ApiActor(api_key_id="apikey_1")),
        ("oidc:ada@example.com", UserActor(user_id="ada@example.com")),
    ],
)
def test_people_and_keys_are_different_authors(key: str, actor: MemoryActor):
    assert actor_of(Principal(tenant="acme", key_id=key, role="user")) == actor


async def check_concurrent_writers(records: Records) -> None:
    stores = MemoryStores(records)
    made = await stores.create("acme", CreateMemoryStore(name="s"))
    memories = Memories(records, stores)

    async def write(n: int) -> None:
        actor = SessionActor(session_id=f"sesn_{n}")
        asked = CreateMemory(path=f"/{n}", content="1")
        memory = await memories.create("acme", made.id, asked, actor)
        await memories.update("acme", made.id, memory.id, UpdateMemory(content="2"), actor)

    await at_once(write, range(20))
    assert len((await memories.page("acme", made.id, MemoryListing(limit=100))).data) == 20
    history = await MemoryVersions(records, stores).page("acme", made.id, VersionListing(limit=100))
    assert len(history.data) == 40


async def test_concurrent_writers_of_one_store_lose_nothing(tmp_path: Path):
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        await check_concurrent_writers(store.records)


async def test_concurrent_writers_lose_nothing_in_postgres(postgres_url: str):
    async with open_postgres(postgres_url, max_connections=8) as store:
        await check_concurrent_writers(store.records)


async def test_a_store_accepts_new_sessions_until_it_is_archived(tmp_path: Path):
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        stores = MemoryStores(store.records)
        made = await stores.create("acme", CreateMemoryStore(name="s"))
        assert await stores.active("acme", made.id) == made
        with pytest.raises(NotFound):
            await stores.active("rival", made.id)
        await stores.archive("acme", made.id)
        with pytest.raises(InvalidInput, match="archived"):
            await stores.active("acme", made.id)
