"""What a hostile program in the workspace tries on us, while we read and write in it."""

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from tests.written_files import write_file

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.workspace_roots import Root
from mainspring.core.errors import FileRefused, OutsideWorkspace, ToolEnvironmentError

SECRET = b"the secret"
LIMIT = 1_000_000
ROUNDS = 2000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (tmp_path / "secret").write_bytes(SECRET)
    write_file(made / ".mainspring/key", SECRET)
    return made


@pytest.fixture
def tree(root: Path) -> FolderWorkspace:
    return FolderWorkspace(root, hidden=[".mainspring"])


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "a/../../secret",
        "new/../../secret",
        "/etc/passwd",
        "/",
        "~",
        "~/secret",
        "~root/x",
        "nul\0byte",
        "\ud800",
        "x/" * 3000,
        "{root}/../secret",
        "{root}secret",
        "/proc/self/cwd/../secret",
    ],
)
async def test_no_path_leads_out_of_the_workspace(tree: FolderWorkspace, root: Path, path: str):
    path = path.replace("{root}", str(root))
    with pytest.raises(OutsideWorkspace):
        tree.locate(path)
    with pytest.raises(OutsideWorkspace):
        await tree.read(path, max_bytes=LIMIT)
    with pytest.raises(OutsideWorkspace):
        await tree.write(path, b"")
    with pytest.raises(OutsideWorkspace):
        await tree.walk(path)


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "..", "deep/../../secret", "/"])
async def test_no_link_leads_out_of_the_workspace(tree: FolderWorkspace, root: Path, target: str):
    (root / "deep").mkdir()
    (root / "link").symlink_to(target)
    (root / "chain").symlink_to("link")
    for path in ("link", "link/secret", "chain", "chain/x"):
        with pytest.raises(OutsideWorkspace):
            await tree.read(path, max_bytes=LIMIT)
        with pytest.raises(OutsideWorkspace):
            await tree.write(path, b"")
        with pytest.raises(OutsideWorkspace):
            tree.locate(path)
        with pytest.raises(OutsideWorkspace):
            await tree.walk(path)


async def test_writing_through_a_dangling_link_creates_no_file(
    tree: FolderWorkspace, root: Path, tmp_path: Path
):
    (root / "link").symlink_to("../planted")
    with pytest.raises(OutsideWorkspace):
        await tree.write("link", b"x")
    assert not (tmp_path / "planted").exists()


async def test_circular_links_are_refused(tree: FolderWorkspace, root: Path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "self").symlink_to("self/self")
    for path in ("a", "b/x", "self"):
        with pytest.raises(FileRefused, match="too many links"):
            await tree.read(path, max_bytes=LIMIT)


@pytest.mark.parametrize(
    "path",
    [
        ".mainspring",
        ".mainspring/key",
        "./.MainSpring/key",
        ".MAINSPRING",
        ".main\u200cspring/key",
        ".ｍainspring/key",
        ".mainſpring/key",
        ".mainspring./key",
        "new/../.mainspring/key",
        "link",
        "link/key",
        "to_key",
    ],
)
async def test_hidden_paths_cannot_be_accessed(tree: FolderWorkspace, root: Path, path: str):
    (root / "link").symlink_to(".mainspring")
    (root / "to_key").symlink_to(root / ".mainspring/key")
    with pytest.raises(OutsideWorkspace, match="not accessible to this session"):
        await tree.read(path, max_bytes=LIMIT)
    with pytest.raises(OutsideWorkspace):
        await tree.write(path, b"")
    with pytest.raises(OutsideWorkspace):
        tree.locate(path)
    assert (root / ".mainspring/key").read_bytes() == SECRET


async def test_hidden_paths_are_not_listed(tree: FolderWorkspace, root: Path):
    (root / "seen").mkdir()
    (root / ".MAINSPRING").mkdir(exist_ok=True)
    assert [str(entry.path) for entry in await tree.walk()] == ["seen"]


async def test_hidden_paths_are_recognized_by_inode(root: Path):
    """As a file system with other ideas of equal names would give it, or a second mount."""
    (root / "same_folder").mkdir()
    (root / ".hidden").symlink_to("same_folder")
    real = str(root / "same_folder")
    tree = FolderWorkspace(root, hidden=[".mainspring", real, "secret_file"])
    (root / "secret_file").write_bytes(SECRET)
    os.link(root / "secret_file", root / "second_name")
    for path in ("same_folder", ".hidden/x", "second_name"):
        with pytest.raises(OutsideWorkspace):
            await tree.read(path, max_bytes=LIMIT)
    assert [str(entry.path) for entry in await tree.walk()] == [".hidden"]


async def test_hidden_paths_are_hidden_in_every_root(root: Path, tmp_path: Path):
    other = tmp_path / "other"
    (other / ".mainspring").mkdir(parents=True)
    tree = FolderWorkspace(root, hidden=[".mainspring"], extra=[Root(path=other)])
    with pytest.raises(OutsideWorkspace):
        await tree.write(str(other / ".mainspring/x"), b"")


async def test_fifos_sockets_and_devices_are_not_opened(
    tree: FolderWorkspace, root: Path, monkeypatch: pytest.MonkeyPatch
):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener, monkeypatch.context() as patch:
        patch.chdir(root)  # a whole path may be too long for a socket
        listener.bind("socket")
    paths = ["pipe", "socket"]
    with suppress(PermissionError):
        os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
        paths.append("device")
    for path in paths:
        with anyio.fail_after(60):
            with pytest.raises(FileRefused, match="not a plain file"):
                await tree.read(path, max_bytes=LIMIT)
            with pytest.raises(FileRefused):
                await tree.write(path, b"")
            with pytest.raises(FileRefused):
                tree.open_file(path)


async def test_deeply_nested_folders_are_an_error_and_not_a_crash(
    tree: FolderWorkspace, root: Path
):
    folder = os.open(root, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(FileRefused, match="folders inside each other"):
        await tree.read("d/" * 399 + "x", max_bytes=LIMIT)
    assert len(await tree.walk()) < 300


SWAPPER = """
import ctypes, os, sys
place, evil, kept, outside = sys.argv[1:]
exchange = getattr(ctypes.CDLL(None), "renameat2", None)  # at every moment one of both is there
here, both = ctypes.c_int(-100), ctypes.c_uint(2)
names = os.fsencode(place), os.fsencode(evil)
print("begun", flush=True)
while True:
    if exchange is not None:
        exchange(here, names[0], here, names[1], both)
        if not os.path.islink(place) and not os.path.islink(evil):  # it was repaired: once more
            os.rename(evil, kept + str(os.times().elapsed))
            os.symlink(outside, evil)
        continue
    for source, target in ((place, kept), (evil, place), (place, evil), (kept, place)):
        try:
            os.rename(source, target)
        except OSError:
            pass  # we have just put something there
"""


@contextmanager
def swap_repeatedly(place: Path, outside: Path, aside: Path | None = None) -> Generator[None]:
    """A hostile program: a name is the workspace's own now, and now a link out of it."""
    evil, kept = (aside or place.parent) / "evil", (aside or place.parent) / "kept"
    evil.symlink_to(outside)
    argv = [sys.executable, "-c", SWAPPER, str(place), str(evil), str(kept), str(outside)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as hostile:
        assert hostile.stdout is not None
        assert hostile.stdout.readline() == b"begun\n"
        try:
            yield
        finally:
            hostile.kill()


@pytest.fixture
def folder(root: Path) -> Path:
    made = root / "folder"
    write_file(made / "secret", b"mine")
    return made


def read_content(tree: FolderWorkspace, path: str) -> bytes:
    opened = tree.open_file(path)
    try:
        return os.read(opened, 100)
    finally:
        os.close(opened)


def test_a_swapped_file_reveals_nothing(tree: FolderWorkspace, root: Path, tmp_path: Path):
    (root / "file").write_bytes(b"mine")
    with swap_repeatedly(root / "file", tmp_path / "secret"):
        for _ in range(ROUNDS):
            with suppress(ToolEnvironmentError):
                assert read_content(tree, "file") == b"mine"


def test_a_swapped_folder_reveals_nothing(tree: FolderWorkspace, folder: Path, tmp_path: Path):
    with swap_repeatedly(folder, tmp_path):
        for _ in range(ROUNDS):
            with suppress(ToolEnvironmentError):
                assert read_content(tree, "folder/secret") == b"mine"


async def test_a_swapped_folder_is_not_listed(tree: FolderWorkspace, folder: Path, tmp_path: Path):
    write_file(folder / "below/mine", b"")
    outside = tmp_path / "outside"
    write_file(outside / "theirs", b"")
    with swap_repeatedly(folder / "below", outside):
        for _ in range(ROUNDS // 4):
            with suppress(ToolEnvironmentError):
                assert "theirs" not in [entry.path.name for entry in await tree.walk()]


async def test_a_folder_swapped_for_a_link_lets_no_write_escape(
    tree: FolderWorkspace, folder: Path, tmp_path: Path
):
    with swap_repeatedly(folder, tmp_path):
        for _ in range(ROUNDS // 4):
            with suppress(ToolEnvironmentError):
                await tree.write("folder/secret", b"mine")
            with suppress(ToolEnvironmentError):
                await tree.write("folder/new/deep", b"mine", expected="")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert sorted(os.listdir(tmp_path)) == ["project", "secret"]


async def test_a_target_swapped_for_a_link_is_not_written(
    tree: FolderWorkspace, root: Path, tmp_path: Path
):
    (root / "file").write_bytes(b"mine")
    with swap_repeatedly(root / "file", tmp_path / "secret"):
        for _ in range(ROUNDS // 4):
            with suppress(ToolEnvironmentError):
                await tree.write("file", b"mine")
    assert (tmp_path / "secret").read_bytes() == SECRET


async def test_a_restore_cannot_be_redirected_outside(
    tree: FolderWorkspace, folder: Path, tmp_path: Path
):
    outside, aside = tmp_path / "outside", tmp_path / "aside"
    outside.mkdir()
    aside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    snapshots = WorkspaceSnapshots(tree, tmp_path / "store")
    one, _ = await snapshots.take()
    (folder / "secret").write_bytes(b"changed")
    write_file(folder / "more/file", b"")
    two, _ = await snapshots.take()
    with swap_repeatedly(folder, outside, aside):
        for _ in range(ROUNDS // 20):
            for wanted in (one, two):
                with suppress(ToolEnvironmentError):
                    await snapshots.restore(wanted)
    assert os.listdir(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == SECRET
