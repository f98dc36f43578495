"""A session that moves between two stores goes on in one of them, wherever the move is cut off."""

import io
import os
import stat
import tarfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.log.sample_sessions import asks, opened, says
from tests.senders import TESTER

from mainspring.core.errors import InvalidInput, SessionGone, StaleVersion
from mainspring.core.events import (
    PermissionUpdate,
    PermissionUpdated,
    PolicyAdopted,
    SessionCreated,
)
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.log.container import import_lines
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify
from mainspring.runtime.move_sessions.session_bundle import (
    BundleSource,
    SessionBundle,
    write_bundle,
)
from mainspring.runtime.move_sessions.session_handover import receive, seal
from mainspring.runtime.move_sessions.workspace_archive import unpack

TRANSFER = "tran_" + "0" * 32


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[SessionLog]:
    async with opened(tmp_path / "here.db") as log:
        yield log


@pytest.fixture
async def there(tmp_path: Path) -> AsyncGenerator[SessionLog]:
    async with opened(tmp_path / "there.db") as log:
        yield log


async def create_session(log: SessionLog) -> str:
    session = await log.create(SessionCreated(agent_name="fixer"))
    writer = await log.hold(session.id, owner="worker")
    rules = PermissionUpdate(type="setMode", mode="bypassPermissions")
    await writer.append(
        asks("mend it"),
        PolicyAdopted(policy="sha256:rules", mode="default"),
        PermissionUpdated(updates=(rules,), by="operator"),
        says("done"),
    )
    await writer.release()
    return session.id


def workspace_at(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / "src" / ".mainspring").mkdir(parents=True)
    (place / ".mainspring").mkdir()
    (place / ".mainspring" / "vault.json").write_text("secret")
    (place / "src" / "run.sh").write_text("echo hi")
    (place / "src" / "run.sh").chmod(0o4755)
    (place / "src" / "inside").symlink_to("../notes.txt")
    (place / "outside").symlink_to("../../etc/passwd")
    (place / "absolute").symlink_to("/etc/passwd")
    (place / "notes.txt").write_text("notes")
    os.mkfifo(place / "pipe")
    return place


async def pack_session(log: SessionLog, session_id: str, tmp_path: Path) -> Path:
    source = BundleSource(
        session_id=session_id,
        transfer_id=TRANSFER,
        workspace=workspace_at(tmp_path),
        hidden=(".mainspring",),
    )
    return await write_bundle(log, source, tmp_path / "bundles")


async def test_a_moved_session_continues_in_only_one_store(
    here: SessionLog, there: SessionLog, tmp_path: Path
):
    session_id = await create_session(here)
    await seal(here, session_id, TRANSFER)
    with pytest.raises(SessionGone):
        await here.hold(session_id, owner="worker")
    with pytest.raises(SessionGone):
        await here.submit(session_id, asks("more"), sender=TESTER)
    with pytest.raises(SessionGone):
        await seal(here, session_id, "tran_of_another")
    await seal(here, session_id, TRANSFER)  # as after a crash

    file = await pack_session(here, session_id, tmp_path)
    with tarfile.open(file) as archive:
        bundle = SessionBundle.read(archive, session_id=session_id, transfer_id=TRANSFER)
        async with aclosing(bundle.lines()) as lines:
            await import_lines(there, lines)
    with pytest.raises(SessionGone):  # killed after the log was stored
        await there.hold(session_id, owner="worker")

    place = tmp_path / "laptop"
    for _ in range(2):  # killed after all of it was done
        await receive(there, file, session_id=session_id, transfer_id=TRANSFER, workspace=place)
    await (await there.hold(session_id, owner="worker")).release()
    with pytest.raises(SessionGone):
        await here.hold(session_id, owner="worker")
    assert (await verify(there, session_id)).ok

    kinds = [event.type for event in await there.read(session_id)]
    assert kinds[-2:] == ["session.moved", "session.received"]
    state = ThreadTree.of(
        await there.read(session_id), (await there.session(session_id)).thread_id
    ).main.thread.session_state
    assert (state.policy, state.workspace) == (None, str(place))

    found = sorted(path.relative_to(place).as_posix() for path in place.rglob("*"))
    assert found == ["notes.txt", "src", "src/inside", "src/run.sh"]
    assert (place / "src/inside").read_text() == "notes"
    assert stat.S_IMODE((place / "src/run.sh").stat().st_mode) == 0o755


async def test_a_session_can_move_back(here: SessionLog, there: SessionLog, tmp_path: Path):
    session_id = await create_session(here)
    await seal(here, session_id, TRANSFER)
    file = await pack_session(here, session_id, tmp_path)
    away = tmp_path / "away"
    await receive(there, file, session_id=session_id, transfer_id=TRANSFER, workspace=away)
    back = "tran_" + "1" * 32
    await seal(there, session_id, back)
    source = BundleSource(session_id=session_id, transfer_id=back, workspace=away)
    file = await write_bundle(there, source, tmp_path / "bundles")
    home = tmp_path / "home"
    await receive(here, file, session_id=session_id, transfer_id=back, workspace=home)
    assert (await verify(here, session_id)).ok
    assert (home / "notes.txt").read_text() == "notes"
    await (await here.hold(session_id, owner="worker")).release()
    with pytest.raises(SessionGone):
        await there.hold(session_id, owner="worker")


async def test_a_session_with_pending_messages_or_a_fork_cannot_move(here: SessionLog):
    session_id = await create_session(here)
    await here.submit(session_id, asks("more"), sender=TESTER)
    with pytest.raises(StaleVersion):
        await seal(here, session_id, TRANSFER)
    fork = await here.fork(session_id)
    with pytest.raises(InvalidInput, match="is a fork"):
        await seal(here, fork.id, TRANSFER)


async def test_a_changed_bundle_is_refused(here: SessionLog, there: SessionLog, tmp_path: Path):
    session_id = await create_session(here)
    await seal(here, session_id, TRANSFER)
    file = await pack_session(here, session_id, tmp_path)
    content = file.read_bytes()
    place = tmp_path / "laptop"
    for old, new in ((b"echo hi", b"echo ha"), (b"mend it", b"ruin it"), (b"tran_", b"tram_")):
        assert old in content
        file.write_bytes(content.replace(old, new))
        with pytest.raises(InvalidInput):
            await receive(there, file, session_id=session_id, transfer_id=TRANSFER, workspace=place)
        assert not place.exists()
    for short in (b"", content[:700]):
        file.write_bytes(short)
        with pytest.raises(InvalidInput):
            await receive(there, file, session_id=session_id, transfer_id=TRANSFER, workspace=place)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(f"workspace/{name}")
    entry.type, entry.linkname = kind, link
    return entry


HOSTILE: dict[str, Callable[[], list[tarfile.TarInfo]]] = {
    "above": lambda: [member("../evil")],
    "absolute": lambda: [member("/etc/evil")],
    "dot": lambda: [member("a/./b")],
    "link out": lambda: [member("a", tarfile.SYMTYPE, "../../evil")],
    "absolute link": lambda: [member("a", tarfile.SYMTYPE, "/etc")],
    "hard link": lambda: [member("a", tarfile.LNKTYPE, "workspace/b")],
    "device": lambda: [member("a", tarfile.CHRTYPE)],
    "pipe": lambda: [member("a", tarfile.FIFOTYPE)],
    "no folder": lambda: [member("a/b")],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused(case: str, tmp_path: Path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for entry in HOSTILE[case]():
            archive.addfile(entry)
    made.seek(0)
    with tarfile.open(fileobj=made) as archive, pytest.raises((InvalidInput, OSError)):
        unpack(archive, tmp_path / "new", {})
    assert not (tmp_path / "evil").exists()


def test_an_archive_is_never_unpacked_through_a_link(tmp_path: Path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(member("a", tarfile.SYMTYPE, "b"))
        archive.addfile(member("a"))
    made.seek(0)
    with tarfile.open(fileobj=made) as archive, pytest.raises(OSError, match="exists"):
        unpack(archive, tmp_path / "new", {})
