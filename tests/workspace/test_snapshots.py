"""Snapshots: a workspace kept, compared and brought back."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.at_once import at_once
from tests.workspace.trees import picture
from tests.written_files import write_file

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.workspace_scan import ScanLimits
from mainspring.core.errors import InvalidInput, ToolEnvironmentError
from mainspring.core.ports import FileChange


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git/objects").mkdir(parents=True)
    (made / ".git/HEAD").write_bytes(b"ref: refs/heads/main\n")
    (made / "src/empty").mkdir(parents=True)
    (made / "src/a.py").write_bytes(b"a = 1\n")
    (made / "src/run.sh").write_bytes(b"#!/bin/sh\n")
    (made / "src/run.sh").chmod(0o755)
    (made / "link").symlink_to("src/a.py")
    (made / "broken").symlink_to("../nowhere")
    (made / os.fsdecode(b"caf\xe9\n")).write_bytes(b"odd name")
    write_file(made / ".mainspring/state", b"ours")
    return made


@pytest.fixture
def snapshots(root: Path) -> WorkspaceSnapshots:
    return WorkspaceSnapshots(
        FolderWorkspace(root, hidden=[".mainspring"]), root / ".mainspring/snapshots"
    )


async def test_a_workspace_is_restored_completely(root: Path, snapshots: WorkspaceSnapshots):
    before = picture(root)
    taken, files = await snapshots.take()
    assert files == 6
    shutil.rmtree(root / "src")
    (root / "src").write_bytes(b"a file now")
    shutil.rmtree(root / ".git")
    (root / "link").unlink()
    write_file(root / "link/inside", b"")
    (root / "broken").unlink()
    (root / os.fsdecode(b"caf\xe9\n")).write_bytes(b"changed")
    write_file(root / "new/deep/file", b"new")
    await snapshots.restore(taken)
    assert picture(root) == before
    assert (root / ".mainspring/state").read_bytes() == b"ours"
    assert await snapshots.diff(taken) == []
    assert await snapshots.restore(taken) == []


async def test_an_unchanged_workspace_has_the_same_snapshot(
    root: Path, snapshots: WorkspaceSnapshots
):
    first = await snapshots.take()
    (root / "src/a.py").write_bytes(b"a = 2\n")
    second = await snapshots.take()
    (root / "src/a.py").write_bytes(b"a = 1\n")
    assert await snapshots.take() == first != second


async def test_changes_are_listed_without_touching_files(root: Path, snapshots: WorkspaceSnapshots):
    taken, _ = await snapshots.take()
    untouched = (root / ".git/HEAD").stat()
    (root / "src/a.py").write_bytes(b"a = 2\n")
    (root / "src/run.sh").chmod(0o644)
    write_file(root / "new/file", b"")
    (root / "hollow").mkdir()
    (root / "broken").unlink()
    later, _ = await snapshots.take()
    expected = [
        FileChange("broken", "removed"),
        FileChange("hollow", "added"),
        FileChange("new/file", "added"),
        FileChange("src/a.py", "modified"),
        FileChange("src/run.sh", "modified"),
    ]
    assert await snapshots.diff(taken) == await snapshots.diff(taken, later) == expected
    back = await snapshots.restore(taken)
    assert {item.path for item in back} == {item.path for item in expected}
    assert (root / ".git/HEAD").stat() == untouched
    assert await snapshots.restore(later) == expected


async def test_a_file_changed_right_after_a_snapshot_is_detected(
    root: Path, snapshots: WorkspaceSnapshots
):
    """Same size, same inode, and its time put back: only the time of the change may tell."""
    file = root / "src/a.py"
    for number in range(40):
        taken, _ = await snapshots.take()
        times = file.stat()
        file.write_bytes(b"a = %d\n" % (number % 9))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert await snapshots.diff(taken) == [FileChange("src/a.py", "modified")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_unreadable_files_are_left_unchanged(root: Path, snapshots: WorkspaceSnapshots):
    write_file(root / "closed/inside", b"1")
    (root / "private").write_bytes(b"2")
    for name in ("closed", "private"):
        (root / name).chmod(0)
    taken, _ = await snapshots.take()
    (root / "closed").chmod(0o755)
    (root / "private").chmod(0o644)
    await snapshots.restore(taken)
    assert (root / "closed/inside").read_bytes() == b"1"
    assert (root / "private").read_bytes() == b"2"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
async def test_read_only_folders_are_restored_with_their_modes(
    root: Path, snapshots: WorkspaceSnapshots
):
    (root / "src/empty").chmod(0o500)
    taken, _ = await snapshots.take()
    before = picture(root)
    (root / "src/a.py").unlink()
    (root / "src/empty").chmod(0o700)
    (root / "src/empty/new").write_bytes(b"")
    (root / "src/empty").chmod(0)
    (root / "src").chmod(0)
    await snapshots.restore(taken)
    assert picture(root) == before


async def test_fifos_and_setuid_bits_are_left_out(root: Path, snapshots: WorkspaceSnapshots):
    os.mkfifo(root / "pipe")
    (root / "src/run.sh").chmod(0o4755)
    taken, files = await snapshots.take()
    assert files == 6
    (root / "src/run.sh").unlink()
    with anyio.fail_after(60):
        await snapshots.restore(taken)
    assert stat.S_IMODE((root / "src/run.sh").stat().st_mode) == 0o755
    assert (root / "pipe").is_fifo()


async def test_a_removed_folder_is_removed_with_its_fifos(
    root: Path, snapshots: WorkspaceSnapshots
):
    taken, _ = await snapshots.take()
    (root / "new").mkdir()
    os.mkfifo(root / "new/pipe")
    await snapshots.restore(taken)
    assert not (root / "new").exists()


async def test_a_restore_follows_no_link_outside(
    root: Path, snapshots: WorkspaceSnapshots, tmp_path: Path
):
    outside = tmp_path / "outside"
    write_file(outside / "a.py", b"theirs")
    taken, _ = await snapshots.take()
    shutil.rmtree(root / "src")
    (root / "src").symlink_to(outside)
    os.link(outside / "a.py", root / "linked")
    later, _ = await snapshots.take()
    await snapshots.restore(taken)
    assert os.listdir(outside) == ["a.py"]
    await snapshots.restore(later)
    (root / "linked").write_bytes(b"mine")
    await snapshots.restore(later)
    assert (root / "src").is_symlink()
    assert (outside / "a.py").read_bytes() == b"theirs"


@pytest.mark.parametrize("bound", [ScanLimits(max_files=3), ScanLimits(max_bytes=10)])
async def test_a_workspace_over_the_limit_is_refused(root: Path, tmp_path: Path, bound: ScanLimits):
    snapshots = WorkspaceSnapshots(FolderWorkspace(root), tmp_path / "store", limits=bound)
    with pytest.raises(ToolEnvironmentError, match="the workspace is too large"):
        await snapshots.take()


async def test_only_referenced_snapshots_are_kept(root: Path, snapshots: WorkspaceSnapshots):
    old, _ = await snapshots.take()
    (root / "src/a.py").write_bytes(b"only here\n")
    middle, _ = await snapshots.take()
    (root / "src/a.py").write_bytes(b"a = 3\n")
    new, _ = await snapshots.take()
    assert await snapshots.keep_only([old, new]) == 1
    with pytest.raises(ToolEnvironmentError, match="no snapshot"):
        await snapshots.restore(middle)
    with pytest.raises(ToolEnvironmentError, match="no snapshot"):
        await snapshots.keep_only(["0" * 64])
    await snapshots.restore(old)
    assert (root / "src/a.py").read_bytes() == b"a = 1\n"
    (root / "src/a.py").write_bytes(b"only here\n")
    assert (await snapshots.take())[0] == middle
    await snapshots.restore(new)
    await snapshots.restore(middle)
    assert (root / "src/a.py").read_bytes() == b"only here\n"


async def test_a_damaged_store_is_reported_before_any_change(
    root: Path, snapshots: WorkspaceSnapshots
):
    taken, _ = await snapshots.take()
    shutil.rmtree(root / "src")
    before = picture(root)
    shutil.rmtree(root / ".mainspring/snapshots/objects")
    with pytest.raises(ToolEnvironmentError, match="no longer stored"):
        await snapshots.restore(taken)
    assert picture(root) == before
    for wrong in ("../../x", "f" * 64, ""):
        with pytest.raises(ToolEnvironmentError):
            await snapshots.restore(wrong)


def test_a_store_visible_in_the_workspace_is_refused(root: Path):
    with pytest.raises(InvalidInput, match="inside the workspace"):
        WorkspaceSnapshots(FolderWorkspace(root), root / "store")


async def test_concurrent_sessions_on_one_workspace_take_the_same_snapshot(root: Path):
    tree = FolderWorkspace(root, hidden=[".mainspring"])
    taken = await at_once(
        lambda _: WorkspaceSnapshots(tree, root / ".mainspring/snapshots").take(), range(8)
    )
    assert len(set(taken)) == 1


CHILD = """
import os, signal, sys, anyio
from pathlib import Path
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace

root, store, act, deadly = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
CHANGES = {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.symlink", "os.chmod", "open"}
left = deadly

def count(event, _):
    global left
    if event in CHANGES:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

snapshots = WorkspaceSnapshots(FolderWorkspace(root), store)
if act == "take":
    wanted = snapshots.take
else:
    wanted = lambda: snapshots.restore(act)

async def main():
    await anyio.to_thread.run_sync(int)  # the thread is there before we count
    sys.addaudithook(count)
    await wanted()

anyio.run(main)
"""


def run_until_killed(root: Path, store: Path, act: str, deadly: int) -> bool:
    """Let another process do it, and end it at its n-th change to a disk; whether it was ended."""
    argv = [sys.executable, "-c", CHILD, str(root), str(store), act, str(deadly)]
    status = subprocess.run(argv, timeout=60, check=False).returncode
    assert status in (0, -9)
    return status == -9


async def test_a_snapshot_killed_at_any_point_can_be_repeated(root: Path, tmp_path: Path):
    store = tmp_path / "store"
    for deadly in (4, 11, 14, 17, 24):
        (root / "src/a.py").write_bytes(b"a = %d\n" % deadly)
        (root / f"more_{deadly}").write_bytes(b"%d" % deadly)
        assert run_until_killed(root, store, "take", deadly) or deadly > 20
        snapshots = WorkspaceSnapshots(FolderWorkspace(root), store)
        taken, _ = await snapshots.take()
        before = picture(root)
        shutil.rmtree(root / "src")
        await snapshots.restore(taken)
        assert picture(root) == before
        assert os.listdir(store / "objects/unfinished") == []


async def test_a_restore_killed_at_any_point_can_be_repeated(root: Path, tmp_path: Path):
    store = tmp_path / "store"
    snapshots = WorkspaceSnapshots(FolderWorkspace(root), store)
    before = picture(root)
    taken, _ = await snapshots.take()
    ends: list[bool] = []
    for deadly in (9, 17, 20, 23, 26, 29):
        shutil.rmtree(root / "src")
        (root / "src").write_bytes(b"in the way")
        (root / "link").unlink()
        write_file(root / "link/deep/file", b"")
        (root / ".git/HEAD").write_bytes(b"changed")
        ends.append(run_until_killed(root, store, taken, deadly))
        await snapshots.restore(taken)
        assert picture(root) == before
    assert sum(ends) >= 3
