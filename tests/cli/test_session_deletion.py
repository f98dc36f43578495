"""What `log rm` and `log expire` leave on disk: nothing of the sessions that are gone."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from tests.cli.conftest import Run, opened

from mainspring.capabilities.sandbox.readonly_mounts import open_readonly_mount, remove_folder
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import Settings, read_settings
from mainspring.core.events import SandboxOpened, SessionCreated, WorkspaceSnapshotted
from mainspring.wiring.sandbox_settings import session_paths

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="snapshots are not for Windows")


@pytest.fixture
def settings(place: Path, environ: dict[str, str]) -> Settings:
    return read_settings(folder=place, environ=environ)


def session(settings: Settings, store: Path, *states: str) -> str:
    """One that has worked here: the file had these contents, one after the other."""
    return anyio.run(_session, settings, store, states)


async def _session(settings: Settings, store: Path, states: tuple[str, ...]) -> str:
    root = Path(settings.folder)
    async with opened(store) as log:
        made = await log.create(SessionCreated(agent_name="hand"))
        places = session_paths(settings, root, made.id)
        snaps = WorkspaceSnapshots(FolderWorkspace(root, hidden=places.hidden), places.snapshots)
        writer = await log.hold(made.id, owner="worker")
        await writer.append(
            SandboxOpened(backend="bwrap", level="isolated", flags_hash="0", workspace=str(root))
        )
        for state in states:
            (root / "file").write_text(state)
            snapshot, files = await snaps.take()
            await writer.append(WorkspaceSnapshotted(snapshot=snapshot, files=files))
        await writer.release()
    places.state.mkdir(parents=True)
    (places.state / "kept").write_text("a result")
    return made.id


def contents(store: Path) -> set[str]:
    """What snapshots keep."""
    objects = store.parent.glob("snapshots/*/objects/??/*")
    return {item.read_text() for item in objects if item.is_file()}


def folders(store: Path) -> set[str]:
    return {item.name for item in (store.parent / "hands").iterdir()}


def test_rm_deletes_session_folders_and_unreferenced_snapshots(
    mainspring: Run, settings: Settings, store: Path
):
    gone = session(settings, store, "one", "two")
    stays = session(settings, store, "two", "three")
    share = open_readonly_mount(gone)
    assert contents(store) == {"one", "two", "three"}
    done = mainspring("log", "rm", gone, "--yes")
    assert done.returncode == 0, done.stderr
    assert contents(store) == {"two", "three"}
    assert folders(store) == {stays}
    assert not share.exists()


def test_expire_deletes_folders_and_snapshots_of_old_sessions(
    mainspring: Run, settings: Settings, store: Path
):
    gone = session(settings, store, "one")
    stays = session(settings, store, "two")
    with closing(sqlite3.connect(store)) as db, db:
        old = 31 * 86_400_000_000
        db.execute("update session set updated = updated - ? where id = ?", (old, gone))
    db.close()
    done = mainspring("log", "expire", "--older-than", "30d", "--yes")
    assert (done.returncode, done.stdout) == (0, f"deleted {gone}\n")
    assert contents(store) == {"two"}
    assert folders(store) == {stays}


def test_rm_does_not_follow_a_symlinked_session_folder(
    mainspring: Run, settings: Settings, store: Path, tmp_path: Path
):
    gone = session(settings, store, "one")
    other = tmp_path / "other"
    (store.parent / "hands").rename(other)
    (store.parent / "hands").symlink_to(other)
    assert mainspring("log", "rm", gone, "--yes").returncode == 0
    assert (other / gone / "kept").exists()


@pytest.mark.parametrize("name", ["..", ".", "", "../other", "a/b"])
def test_remove_folder_refuses_names_that_leave_the_folder(name: str, tmp_path: Path):
    for folder in ("hands/a/b", "other"):
        (tmp_path / folder).mkdir(parents=True)
    remove_folder(tmp_path / "hands", name)
    assert (tmp_path / "hands/a/b").is_dir()
    assert (tmp_path / "other").is_dir()
