"""Two writers of one memory, a run that was killed before it saved, and folders that are gone."""

from pathlib import Path

import pytest

from mainspring.log.sqlite import open_sqlite
from mainspring.service.memory_stores.memories import Memories, MemoryListing
from mainspring.service.memory_stores.memory_records import (
    ApiActor,
    CreateMemory,
    MemoryObject,
    UpdateMemory,
)
from mainspring.service.memory_stores.memory_stores import CreateMemoryStore, MemoryStores
from mainspring.service.memory_stores.mounted_stores import MountedStore, MountedStores

TENANT, SESSION, PERSON = "acme", "sesn_12345678", ApiActor(api_key_id="apikey_1")


async def write(workspace: Path, path: str, content: bytes) -> None:
    file = workspace / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


class MountSetup:
    """One store with one memory, in a workspace."""

    def __init__(self, memories: Memories, store_id: str, workspace: Path) -> None:
        self.memories, self.workspace = memories, workspace
        self.folder = workspace / "mnt/memory/notes"
        self.stores = [MountedStore(store_id=store_id, folder="mnt/memory/notes", is_writable=True)]
        self.mounts = MountedStores(memories, write)

    async def put(self) -> None:
        await self.mounts.put(TENANT, SESSION, self.workspace, self.stores)

    async def save(self) -> None:
        await self.mounts.save(TENANT, SESSION, self.workspace, self.stores)

    async def all(self) -> dict[str, MemoryObject]:
        listing = MemoryListing(limit=100, view="full")
        page = await self.memories.page(TENANT, self.stores[0].store_id, listing)
        return {item.path: item for item in page.data if isinstance(item, MemoryObject)}

    async def contents(self) -> dict[str, str | None]:
        return {path: memory.content for path, memory in (await self.all()).items()}

    async def change(self, text: str) -> None:
        memory = (await self.all())["/a.md"]
        update = UpdateMemory(content=text)
        await self.memories.update(TENANT, memory.memory_store_id, memory.id, update, PERSON)


@pytest.fixture
async def mount_setup(tmp_path: Path):
    async with open_sqlite(tmp_path / "log.db") as store:
        stores = MemoryStores(store.records)
        made = await stores.create(TENANT, CreateMemoryStore(name="notes"))
        memories = Memories(store.records, stores)
        await memories.create(TENANT, made.id, CreateMemory(path="/a.md", content="one"), PERSON)
        (tmp_path / "workspace").mkdir()
        yield MountSetup(memories, made.id, tmp_path / "workspace")


async def test_conflicting_writes_are_both_kept(mount_setup: MountSetup):
    await mount_setup.put()
    (mount_setup.folder / "a.md").write_text("by the agent")
    await mount_setup.change("by a person")
    await mount_setup.save()
    assert await mount_setup.contents() == {
        "/a.md": "by a person",
        "/a.conflict-12345678.md": "by the agent",
    }
    await mount_setup.put()
    assert (mount_setup.folder / "a.md").read_text() == "by a person"


async def test_changes_of_a_killed_run_are_saved_once_by_the_next(mount_setup: MountSetup):
    await mount_setup.put()
    (mount_setup.folder / "a.md").write_text("two")
    (mount_setup.folder / "new.md").write_text("new")
    await mount_setup.put()  # the run before was killed
    await mount_setup.save()
    assert await mount_setup.contents() == {"/a.md": "two", "/new.md": "new"}
    assert (await mount_setup.all())["/a.md"].memory_version_id


async def test_a_lost_workspace_deletes_no_memory_but_a_deleted_file_does(mount_setup: MountSetup):
    await mount_setup.put()
    (mount_setup.folder / "a.md").rename(mount_setup.workspace / "elsewhere")
    mount_setup.folder.rmdir()
    await mount_setup.save()
    assert await mount_setup.contents() == {"/a.md": "one"}
    await mount_setup.put()
    (mount_setup.folder / "a.md").unlink()
    await mount_setup.save()
    assert await mount_setup.contents() == {}


async def test_a_file_that_is_too_long_or_a_link_leaves_the_memory_unchanged(
    mount_setup: MountSetup,
):
    await mount_setup.put()
    (mount_setup.folder / "a.md").write_bytes(b"x" * 200_000)
    await mount_setup.save()
    (mount_setup.folder / "a.md").unlink()
    (mount_setup.folder / "a.md").symlink_to("/etc/passwd")
    await mount_setup.save()
    assert await mount_setup.contents() == {"/a.md": "one"}
    mount_setup.folder.rename(mount_setup.workspace / "moved")
    mount_setup.folder.symlink_to("/etc")
    await mount_setup.save()
    assert await mount_setup.contents() == {"/a.md": "one"}


async def test_a_kill_while_memories_are_written_duplicates_none(mount_setup: MountSetup):
    """Those that were written are not the agent's, and those that were not are not deleted."""
    store_id = mount_setup.stores[0].store_id
    for number in range(6):
        request = CreateMemory(path=f"/{number}.md", content=f"fact {number}")
        await mount_setup.memories.create(TENANT, store_id, request, PERSON)
    before = await mount_setup.contents()
    files = 0

    async def write_some(workspace: Path, path: str, content: bytes) -> None:
        nonlocal files
        files += 1
        if files == 4:
            raise KeyboardInterrupt
        await write(workspace, path, content)

    with pytest.raises(KeyboardInterrupt):
        await MountedStores(mount_setup.memories, write_some).put(
            TENANT, SESSION, mount_setup.workspace, mount_setup.stores
        )
    await mount_setup.put()
    await mount_setup.save()
    assert await mount_setup.contents() == before


async def test_an_empty_store_has_a_folder(mount_setup: MountSetup):
    (memory,) = (await mount_setup.all()).values()
    await mount_setup.memories.delete(TENANT, memory.memory_store_id, memory.id, PERSON)
    await mount_setup.put()
    assert mount_setup.folder.is_dir()
    (mount_setup.folder / "new.md").write_text("new")
    await mount_setup.save()
    assert await mount_setup.contents() == {"/new.md": "new"}
