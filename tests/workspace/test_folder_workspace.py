"""A workspace: what can be read and written in it, and how."""

import os
import stat
from pathlib import Path

import pytest
from tests.written_files import write_file

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.workspace_roots import Root
from mainspring.core.errors import FileChanged, FileMissing, FileRefused, InvalidInput, IsFolder

LIMIT = 1_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


async def read(tree: FolderWorkspace, path: str) -> bytes:
    return (await tree.read(path, max_bytes=LIMIT)).content


async def test_a_file_is_read_by_relative_and_absolute_path(root: Path):
    write_file(root / "src/a.py", b"x = 1\n")
    tree = FolderWorkspace(root)
    assert await read(tree, "src/a.py") == b"x = 1\n"
    assert await read(tree, "./src/../src//a.py") == b"x = 1\n"
    assert await read(tree, str(root / "src/a.py")) == b"x = 1\n"
    assert tree.locate("src/a.py") == tree.root / "src/a.py"


async def test_a_link_inside_the_workspace_is_followed(root: Path):
    write_file(root / "real/a", b"a")
    (root / "by_name").symlink_to("real")
    (root / "by_path").symlink_to(root / "real")
    (root / "real/up").symlink_to("../by_name/a")
    tree = FolderWorkspace(root)
    for path in ("by_name/a", "by_path/a", "real/up", "by_name/up"):
        assert await read(tree, path) == b"a"
        assert tree.locate(path) == tree.root / "real/a"


async def test_writing_through_a_link_replaces_its_target(root: Path):
    (root / "real").write_bytes(b"old")
    (root / "link").symlink_to("real")
    await FolderWorkspace(root).write("link", b"new")
    assert (root / "link").is_symlink()
    assert (root / "real").read_bytes() == b"new"


async def test_a_path_can_be_located_before_it_exists(root: Path):
    (root / "real").mkdir()
    (root / "link").symlink_to("real")
    tree = FolderWorkspace(root)
    assert tree.locate("link/new/deep/file") == tree.root / "real/new/deep/file"
    assert tree.locate("new/../other") == tree.root / "other"
    assert tree.locate(".") == tree.root


async def test_the_version_depends_on_content_and_mode(root: Path):
    tree = FolderWorkspace(root)
    first = await tree.write("a", b"1")
    assert (await tree.read("a", max_bytes=9)).version == first.version
    (root / "a").chmod(0o700)
    second = await tree.read("a", max_bytes=9)
    (root / "a").write_bytes(b"2")
    assert len({first.version, second.version, (await tree.read("a", max_bytes=9)).version}) == 3
    assert second.mode == 0o700


async def test_a_write_creates_folders_and_leaves_nothing_else(root: Path):
    tree = FolderWorkspace(root)
    written = await tree.write("a/b/c.txt", b"hi", expected="")
    assert written == await tree.read("a/b/c.txt", max_bytes=LIMIT)
    assert os.listdir(root / "a/b") == ["c.txt"]


async def test_a_write_checks_the_expected_version(root: Path):
    tree = FolderWorkspace(root)
    first = await tree.write("a", b"1", expected="")
    with pytest.raises(FileChanged, match="exists already"):
        await tree.write("a", b"2", expected="")
    (root / "a").write_bytes(b"theirs")
    with pytest.raises(FileChanged, match="has changed since it was read"):
        await tree.write("a", b"2", expected=first.version)
    with pytest.raises(FileChanged):
        await tree.write("gone/b", b"2", expected=first.version)
    assert (root / "a").read_bytes() == b"theirs"
    assert os.listdir(root) == ["a"]


async def test_a_write_keeps_the_mode_without_setuid_bits(root: Path):
    tree = FolderWorkspace(root)
    (root / "run").write_bytes(b"#!/bin/sh\n")
    (root / "run").chmod(0o4755)
    await tree.write("run", b"#!/bin/sh\necho\n")
    assert stat.S_IMODE((root / "run").stat().st_mode) == 0o755
    await tree.write("new", b"", mode=0o6750)
    assert stat.S_IMODE((root / "new").stat().st_mode) == 0o750


async def test_a_write_never_changes_a_hard_linked_file_outside(root: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    os.link(outside, root / "inside")
    await FolderWorkspace(root).write("inside", b"mine")
    assert (outside.read_bytes(), (root / "inside").read_bytes()) == (b"theirs", b"mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
async def test_files_written_by_root_belong_to_the_owner_of_the_folder(root: Path):
    os.chown(root, 1234, 1235)
    tree = FolderWorkspace(root)
    await tree.write("a/b", b"")
    os.chown(root / "a/b", 77, 78)
    await tree.write("a/b", b"again")
    await tree.write("a/c", b"")
    owners = [(found.st_uid, found.st_gid) for found in map(os.stat, (root / "a", root / "a/c"))]
    assert owners == [(1234, 1235)] * 2
    assert (root / "a/b").stat().st_uid == 77


async def test_missing_files_folders_and_oversized_files_are_reported(root: Path):
    tree = FolderWorkspace(root)
    (root / "d").mkdir()
    with (root / "huge").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(FileMissing, match="nothing: there is no such"):
        await tree.read("nothing", max_bytes=LIMIT)
    with pytest.raises(FileMissing):
        await tree.read("no/such/folder", max_bytes=LIMIT)
    with pytest.raises(IsFolder):
        await tree.read("d", max_bytes=LIMIT)
    with pytest.raises(IsFolder):
        await tree.write("d", b"")
    with pytest.raises(IsFolder):
        await tree.write(".", b"")
    with pytest.raises(FileRefused, match=r"too large: 1,000,000,000,000 bytes"):
        await tree.read("huge", max_bytes=LIMIT)
    with pytest.raises(FileRefused):
        await tree.read("huge/below", max_bytes=LIMIT)


async def test_a_walk_lists_files_folders_and_links_in_order(root: Path):
    for path in ("b/z", "b/a", ".git/config", "a.txt"):
        write_file(root / path, b"12")
    (root / "loop").symlink_to(".")
    os.mkfifo(root / "pipe")
    found = await FolderWorkspace(root).walk(skip=[".git"])
    assert [str(entry.path) for entry in found] == [".git", "a.txt", "b", "b/a", "b/z", "loop"]
    assert [entry.is_folder for entry in found] == [True, False, True, False, False, False]
    assert found[-1].is_link
    assert found[1].size == 2
    assert [str(entry.path) for entry in await FolderWorkspace(root).walk("b", limit=1)] == ["b/a"]


async def test_other_roots_are_reached_by_absolute_path_and_by_link(root: Path, tmp_path: Path):
    other, library = tmp_path / "other", tmp_path / "library"
    for made in (other, library):
        write_file(made / "a", b"a")
    (root / "lib").symlink_to(library)
    tree = FolderWorkspace(root, extra=[Root(path=other), Root(path=library, read_only=True)])
    assert await read(tree, str(other / "a")) == b"a"
    assert await read(tree, "lib/a") == b"a"
    assert [entry.path for entry in await tree.walk(str(other))] == [tree.locate(str(other / "a"))]
    await tree.write(str(other / "b"), b"")
    for path in ("lib/a", "lib/new/deep", str(library / "a")):
        with pytest.raises(FileRefused, match="read-only folder"):
            await tree.write(path, b"")
    assert os.listdir(library) == ["a"]


async def test_a_read_only_root_inside_a_writable_one_stays_read_only(root: Path):
    (root / "vendor").mkdir()
    tree = FolderWorkspace(root, extra=[Root(path=root / "vendor", read_only=True)])
    with pytest.raises(FileRefused):
        await tree.write("vendor/a", b"")
    await tree.write("a", b"")


def test_a_root_must_be_a_folder(tmp_path: Path):
    with pytest.raises(InvalidInput, match="no such folder"):
        FolderWorkspace(tmp_path / "nothing")


async def test_file_names_of_any_bytes_are_listed_and_read(root: Path):
    (root / "two\nlines").write_bytes(b"1")
    (root / os.fsdecode(b"caf\xe9")).write_bytes(b"2")
    tree = FolderWorkspace(root)
    names = [str(entry.path) for entry in await tree.walk()]
    assert sorted([await read(tree, name) for name in names]) == [b"1", b"2"]


async def test_the_root_can_be_reached_through_a_link(root: Path, tmp_path: Path):
    alias = tmp_path / "alias"
    alias.symlink_to(root)
    (root / "a").write_bytes(b"a")
    (root / "b").symlink_to(alias / "a")
    tree = FolderWorkspace(alias)
    assert await read(tree, str(alias / "a")) == b"a"
    assert await read(tree, "b") == b"a"


async def test_a_guarded_path_can_be_written_only_under_its_own_name(root: Path):
    (root / ".git").mkdir()
    (root / "notes").symlink_to(".git")
    (root / "inside").mkdir()
    (root / "inside/config").symlink_to("../.git/config")
    tree = FolderWorkspace(root, is_guarded=lambda path: "/.git" in path)
    for path in ("notes/config", "inside/config", "notes/new/deeper/x", "inside/../notes/config"):
        with pytest.raises(FileRefused, match="protected"):
            await tree.write(path, b"[core]")
    assert not any((root / ".git").iterdir())
    await tree.write(".git/config", b"[core]")
    (root / "own").symlink_to("inside")
    await tree.write("own/fine", b"x")
    assert (root / "inside/fine").read_bytes() == b"x"
