"""What can go wrong with a file: every fault has its error, loses nothing, and can be got over."""

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import anyio
import pytest
from tests.log.sample_sessions import opened, says, texts, told
from tests.unprivileged import unprivileged

from mainspring.core.errors import (
    StoreCorrupt,
    StoreFailed,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreUnavailable,
)
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.log.verify import verify
from mainspring.log.writer import Writer

PAGE = 4096
HOLD_A_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up at once on what lasts for longer than the test."""
    monkeypatch.setattr("mainspring.log.task_groups.RETRY_SECONDS", ())


@pytest.fixture
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory that other users can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def limit_file_size(size: int) -> Generator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def hold_lock(path: Path) -> Generator[None]:
    """Another process is in the midst of writing."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_LOCK, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"locked\n"
    try:
        yield
    finally:
        holder.communicate(timeout=60)


async def write_until_failure(writer: Writer) -> tuple[list[str], StoreFailed]:
    said: list[str] = []
    for number in count():
        text = f"{number} " * 400
        try:
            await writer.append(says(text), says(f"and {number}"))
        except StoreFailed as error:
            return said, error
        said += [text, f"and {number}"]
    raise AssertionError


async def test_a_full_disk_refuses_writes_loses_nothing_and_recovers(small_disk: Path):
    (small_disk / "ballast").write_bytes(bytes(300_000))
    async with opened(small_disk / "log.db") as log:
        session = await log.create()
        writer = await log.hold(session.id, owner="w")
        said, error = await write_until_failure(writer)
        assert isinstance(error, StoreFull)
        assert texts(await log.read(session.id)) == said
        (small_disk / "ballast").unlink()
        await writer.append(says("room again"))
        assert texts(await log.read(session.id)) == [*said, "room again"]
    async with opened(small_disk / "log.db") as log:
        assert texts(await log.read(session.id)) == [*said, "room again"]
        assert (await verify(log, session.id)).ok


async def test_a_failed_write_is_rolled_back_and_can_be_repeated(log: SessionLog):
    session = await log.create()
    writer = await log.hold(session.id, owner="w")
    with limit_file_size(300_000):
        said, error = await write_until_failure(writer)
        assert error.retryable
        assert texts(await log.read(session.id)) == said
    await writer.append(says("room again"))
    assert texts(await log.read(session.id)) == [*said, "room again"]
    assert (await verify(log, session.id)).ok


async def test_a_read_only_file_is_reported_as_read_only(shared_folder: Path):
    path = shared_folder / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "hello")
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    before = path.read_bytes()
    with unprivileged(), pytest.raises(StoreReadOnly, match=r"log\.db"):
        async with opened(path) as log:
            await log.create()
    assert path.read_bytes() == before
    shared_folder.chmod(0o777)
    path.chmod(0o666)
    with unprivileged():
        async with opened(path) as log:
            await log.create()
            assert texts(await log.read(session_id)) == ["hello"]


async def test_a_read_only_file_in_a_writable_folder_is_reported_as_read_only(shared_folder: Path):
    path = shared_folder / "log.db"
    async with opened(path) as log:
        await told(log, "hello")
    path.chmod(0o444)
    with unprivileged(), pytest.raises(StoreReadOnly, match=r"log\.db"):
        async with opened(path) as log:
            await log.create()


@pytest.mark.parametrize("name", ["log.db", "deeper/log.db"])
async def test_a_read_only_folder_is_reported_as_read_only(shared_folder: Path, name: str):
    shared_folder.chmod(0o555)
    with unprivileged(), pytest.raises(StoreReadOnly, match=r"log\.db"):
        async with opened(shared_folder / name):
            pass
    assert list(shared_folder.iterdir()) == []


async def test_an_impossible_path_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed, match=r"log\.db"):
        async with opened(tmp_path / "file" / "log.db"):
            pass
    with pytest.raises(StoreFailed, match="cannot be opened"):
        async with opened(tmp_path):
            pass


async def test_a_damaged_page_is_reported_and_the_rest_stays_usable(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        first = await told(log, "the first")
        hurt = await told(log, *(f"{number} " * 300 for number in range(200)))
    whole = path.read_bytes()
    at = whole.index(b"100 " * 100) // PAGE * PAGE
    path.write_bytes(whole[:at] + os.urandom(PAGE) + whole[at + PAGE :])
    async with opened(path) as log:
        with pytest.raises(StoreCorrupt, match=r"docs/log\.md"):
            await log.read(hurt)
        assert not (await verify(log, hurt)).ok
        assert texts(await log.read(first)) == ["the first"]
    path.write_bytes(whole)
    async with opened(path) as log:
        assert len(await log.read(hurt)) == 201
        assert (await verify(log, hurt)).ok


async def test_a_changed_byte_in_a_body_is_found_by_verify(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "pay ten", "done", "thanks")
    path.write_bytes(path.read_bytes().replace(b"pay ten", b"pay tEn"))
    async with opened(path) as log:
        assert texts(await log.read(session_id))[0] == "pay tEn"
        assert [problem.seq for problem in (await verify(log, session_id)).problems] in ([2], [3])


async def test_a_truncated_write_ahead_log_leaves_a_prefix_of_the_log(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "0")
    async with opened(path) as log:
        writer = await log.hold(session_id, owner="w")
        for number in range(1, 30):
            await writer.append(says(f"{number}"), says(f"{number}"))
        copies = {name: (tmp_path / name).read_bytes() for name in ("log.db", "log.db-wal")}
        said = texts(await log.read(session_id))
    longest = len(copies["log.db-wal"])
    assert longest > 10 * PAGE
    for cut in range(0, longest, longest // 23):
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / "log.db").write_bytes(copies["log.db"])
        (folder / "log.db-wal").write_bytes(copies["log.db-wal"][:cut])
        async with opened(folder / "log.db") as log:
            kept = texts(await log.read(session_id))
            assert kept == said[: len(kept)]
            assert len(kept) % 2 == 1  # batches of two, after the first
            assert (await verify(log, session_id)).ok
            epoch = (await log.session(session_id)).epoch
            writer = await log.hold(session_id, owner="w", instead_of=("w", epoch))
            await writer.append(says("on"))
            assert texts(await log.read(session_id)) == [*kept, "on"]


async def check_left_unchanged(path: Path, why: str) -> None:
    before = path.read_bytes()
    with pytest.raises(StoreMismatch, match=why):
        async with opened(path):
            pass
    assert path.read_bytes() == before


async def test_a_file_that_is_not_a_database_is_left_unchanged(tmp_path: Path):
    path = tmp_path / "log.db"
    for content in (b"Dear diary,", b"Dear diary, " * 1000, os.urandom(5000)):
        path.write_bytes(content)
        await check_left_unchanged(path, "not a SQLite database")


async def test_an_empty_file_becomes_a_log(tmp_path: Path, log: SessionLog):
    (tmp_path / "log.db").touch()
    assert texts(await log.read(await told(log, "hello"))) == ["hello"]


@pytest.mark.parametrize("statement", ["create table t(x)", "pragma application_id = 7"])
async def test_a_database_of_another_program_is_left_unchanged(tmp_path: Path, statement: str):
    path = tmp_path / "log.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    await check_left_unchanged(path, "does not belong to Mainspring")


async def test_a_file_of_a_newer_version_is_left_unchanged(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await told(log, "hello")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 999")
    await check_left_unchanged(path, "newer Mainspring")


async def test_a_file_locked_too_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mainspring.log.sqlite.commits.BUSY_SECONDS", 0.05)
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "hello")
        writer = await log.hold(session_id, owner="w")
        with hold_lock(path):
            with anyio.fail_after(60), pytest.raises(StoreUnavailable, match="locked") as caught:
                await writer.append(says("too early"))
            assert caught.value.retryable
            assert texts(await log.read(session_id)) == ["hello"]
        await writer.append(says("free"))
        assert texts(await log.read(session_id)) == ["hello", "free"]


async def test_a_briefly_locked_file_is_waited_for(tmp_path: Path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        session_id = await told(log, "hello")
        writer = await log.hold(session_id, owner="w")
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                with hold_lock(path):
                    group.start_soon(writer.append, says("patience"))
                    assert texts(await log.read(session_id)) == ["hello"]
        assert texts(await log.read(session_id)) == ["hello", "patience"]


async def test_a_new_file_created_by_another_process_is_waited_for(tmp_path: Path):
    path = tmp_path / "log.db"
    path.touch()

    async def open_and_tell() -> None:
        async with opened(path) as log:
            await told(log, "hello")

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            with hold_lock(path):
                group.start_soon(open_and_tell)
                await anyio.wait_all_tasks_blocked()


async def test_waiting_for_a_new_file_of_another_process_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("mainspring.log.sqlite.connect.BUSY_SECONDS", 0.05)
    path = tmp_path / "log.db"
    with hold_lock(path), anyio.fail_after(60), pytest.raises(StoreUnavailable, match="locked"):
        async with open_sqlite(path):
            pass
    async with opened(path) as log:
        await told(log, "hello")
