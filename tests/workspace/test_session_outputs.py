"""The files that a session hands over, read from a folder that its programs can change."""

import os
from pathlib import Path

import msgspec
import pytest

from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.session_outputs import (
    FOLDER,
    OutputBytes,
    OutputFolder,
    UnreadableOutput,
    list_outputs,
    make_outputs,
    read_output,
)
from mainspring.core.errors import NotFound, OutsideWorkspace
from mainspring.log.records import Remove
from mainspring.log.sqlite import open_sqlite
from mainspring.service.resources.file_resources import Files
from mainspring.service.sessions.workspaces.output_files import KIND, OutputLimits, SessionOutputs
from mainspring.service.storage.repository import ListQuery


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    make_outputs(folder)
    make_outputs(folder)
    return folder


def test_links_hard_links_and_devices_are_not_read(workspace: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    outputs = workspace / FOLDER
    (outputs / "plain.txt").write_text("plain")
    (outputs / "link").symlink_to(secret)
    (outputs / "up").symlink_to(tmp_path)
    os.link(secret, outputs / "twin")
    os.mkfifo(outputs / "pipe")
    assert [file.path for file in list_outputs(workspace)] == ["plain.txt"]
    for path in ("link", "up/secret", "twin", "pipe", "../../secret"):
        assert isinstance(read_output(workspace, path, max_bytes=100), UnreadableOutput), path
    (outputs / "plain.txt").unlink()  # after it was listed, before it is read
    (outputs / "plain.txt").symlink_to(secret)
    assert isinstance(read_output(workspace, "plain.txt", max_bytes=100), UnreadableOutput)
    outputs.rename(workspace / "moved")
    outputs.symlink_to(tmp_path)
    assert list_outputs(workspace) == []
    assert isinstance(read_output(workspace, "secret", max_bytes=100), UnreadableOutput)


def test_aliases_resolve_to_the_workspaces_own_path(workspace: Path):
    tree = FolderWorkspace(
        workspace, hidden=[".mainspring"], aliases=["/workspace", "/mnt/session"]
    )
    for alias in ("/workspace", "/mnt/session", "/mnt/session/x/.."):
        assert tree.named(f"{alias}/.git/config") == f"{workspace}/.git/config"
        assert str(tree.locate(f"{alias}/outputs/a")) == f"{workspace}/outputs/a"
        with pytest.raises(OutsideWorkspace):
            tree.locate(f"{alias}/.mainspring/x")
    assert tree.named("/mnt/sessions/a") == "/mnt/sessions/a"
    memory = FolderWorkspace(workspace, aliases=["/mnt/memory"])
    assert memory.named("/mnt/memory/team/a.md") == f"{workspace}/mnt/memory/team/a.md"
    assert str(memory.locate("/mnt/memory/a.md")) == f"{workspace}/mnt/memory/a.md"
    for path in ("/mnt/memory/../../../etc/passwd", "/mnt/memories/a", "/mnt/a"):
        with pytest.raises(OutsideWorkspace):
            memory.locate(path)
    above = FolderWorkspace(workspace, aliases=[str(workspace.parent), str(workspace)])
    assert above.named(f"{workspace}/a") == f"{workspace}/a"
    assert str(above.locate(f"{workspace}/a")) == f"{workspace}/a"
    for path in ("/mnt/sessions/a", "/mnt/session/../a", "/workspace/../etc/passwd"):
        with pytest.raises(OutsideWorkspace):
            tree.locate(path)


def test_a_file_over_the_size_limit_is_not_read(workspace: Path):
    (workspace / FOLDER / "a").write_bytes(b"12345")
    assert isinstance(read_output(workspace, "a", max_bytes=4), UnreadableOutput)
    read = read_output(workspace, "a", max_bytes=5)
    assert isinstance(read, OutputBytes)
    assert read.content == b"12345"


async def test_a_crash_before_the_record_stores_a_file_once_and_limits_apply(
    workspace: Path, tmp_path: Path
):
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        files = Files(store.records)
        limits = OutputLimits(max_files=2, max_file_bytes=10, max_bytes=12)
        outputs = SessionOutputs(store.records, files, limits=limits)
        source = OutputFolder(workspace)

        async def names() -> list[str]:
            page = await files.page("acme", ListQuery(label="sesn_1"))
            return sorted(file.filename for file in page.data)

        (workspace / FOLDER / "a").write_bytes(b"12345678")
        assert await outputs.collect("acme", "sesn_1", source) == 1
        record = await store.records.get(KIND, "sesn_1")
        await store.records.write(Remove(row=record))
        assert await outputs.collect("acme", "sesn_1", source) == 1
        assert await outputs.collect("acme", "sesn_1", source) == 0
        assert await names() == ["a"]
        (workspace / FOLDER / "b").write_bytes(b"more than four")
        assert await outputs.collect("acme", "sesn_1", source) == 0
        (workspace / FOLDER / "b").write_bytes(b"four")
        (workspace / FOLDER / "c").write_bytes(b"")
        assert await outputs.collect("acme", "sesn_1", source) == 1
        assert await names() == ["a", "b"]
        await outputs.forget("acme", "sesn_1")
        assert await names() == []
        with pytest.raises(NotFound):
            await store.records.get(KIND, "sesn_1")


def test_all_entries_count_against_the_limit_and_long_paths_are_skipped(workspace: Path):
    outputs = workspace / FOLDER
    for number in range(10):
        (outputs / f"{number}").mkdir()
        (outputs / f"{number}" / "file").touch()
    assert len(list_outputs(workspace)) == 10
    assert len(list_outputs(workspace, max_entries=10)) == 5
    long = outputs.joinpath(*["n" * 250] * 4)
    long.mkdir(parents=True)
    (long / ("f" * 20)).touch()
    (long / ("f" * 21)).touch()
    assert [len(output.path) for output in list_outputs(workspace) if "n" in output.path] == [1024]


async def test_many_outputs_are_recorded_in_few_writes(workspace: Path, tmp_path: Path):
    folder = workspace / FOLDER
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        files = Files(store.records)
        outputs = SessionOutputs(store.records, files, limits=OutputLimits(max_files=150))
        source = OutputFolder(workspace)
        looks = 0

        async def is_stopped() -> bool:
            nonlocal looks
            looks += 1
            return looks > 1

        async def noted() -> tuple[int, list[str]]:
            record = await store.records.get(KIND, "sesn_1")
            return record.rev, sorted(msgspec.json.decode(record.body)["paths"])

        for number in range(200):
            (folder / f"{number:03}").touch()
        assert await outputs.collect("acme", "sesn_1", source, is_stopped=is_stopped) == 100
        assert await outputs.collect("acme", "sesn_1", source) == 50
        rev, paths = await noted()
        assert (rev, paths) == (2, [f"{number:03}" for number in range(150)])
        for number in range(150):
            (folder / f"{number:03}").unlink()
        assert await outputs.collect("acme", "sesn_1", source) == 0  # what is kept counts
        page = await files.page("acme", ListQuery(label="sesn_1", limit=100))
        for file in page.data:
            await files.delete("acme", file.id)
        assert await outputs.collect("acme", "sesn_1", source) == 50
        rev, paths = await noted()
        assert (rev, len(paths)) == (3, 100)
