"""Memories are files: every change is a version, and no change of a person is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.memory.memory_setup import AGENT, ANNA, a_note, memory_folder

from mainspring.core import clock, ids
from mainspring.core.errors import InvalidInput, MemoryChanged, NotFound
from mainspring.runtime.memory.memory_doctor import examine
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_purge import purge_memory
from mainspring.runtime.memory.note import Note, content_hash, parse_note, render_note


def test_a_note_is_unchanged_after_rendering_and_parsing():
    note = Note(
        path="feedback_tone.md",
        body="Be brief.\n\nWhy: asked for twice.",
        name="Tone: brief",
        description='says "no" to # long answers',
        type="feedback",
        created="2026-05-01",
        links=("user_role.md",),
        session="sesn_1",
        events=("evt_1", "evt_2"),
        trust="agent",
        other_fields={"pinned": True},
    )
    assert parse_note(note.path, render_note(note)) == note


def test_a_file_without_frontmatter_is_a_memory_named_after_its_first_line():
    note = parse_note("notes/garden.md", "# The garden\n\nTomatoes.\n")
    assert (note.name, note.type, note.trust) == ("The garden", "reference", "person")


def test_a_memory_has_a_line_in_the_index_that_is_kept_up_to_date(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Release day", "Thursdays.", description="when to release"), ANNA)
    index = tmp_path / "MEMORY.md"
    index.write_text(f"{index.read_text()}\nA line of Anna's own.\n")
    folder.save(a_note("Release day", "Fridays.", description="the day to release"), ANNA)
    assert index.read_text() == (
        "# Memory\n\n- [Release day](project_release_day.md): the day to release\n"
        "\nA line of Anna's own.\n"
    )
    folder.forget("project_release_day.md", ANNA)
    assert "project_release_day" not in index.read_text()
    assert "Anna's own" in index.read_text()


def test_history_records_author_and_reason_including_edits_on_disk(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Release day", "Thursdays."), AGENT)
    file = tmp_path / "project_release_day.md"
    file.write_text(file.read_text().replace("Thursdays", "Fridays"))
    newest, first = folder.history("project_release_day.md")
    assert (first.author.kind, first.reason, first.session_id) == ("agent", "learned", "sesn_1")
    assert (newest.author.id, newest.reason) == ("disk", "edited on disk")
    assert newest.parent == first.id
    assert "-Thursdays.\n+Fridays." in folder.diff(newest)


def test_a_revert_restores_the_earlier_text_and_readers_are_listed(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Release day", "Thursdays."), ANNA)
    wrong = folder.save(a_note("Release day", "Never."), AGENT)
    folder.note_readers("sesn_7", {wrong.path: wrong.hash})
    assert folder.readers(wrong) == ["sesn_7"]
    folder.revert(wrong, ANNA)
    assert folder.read(wrong.path).body == "Thursdays."
    forgotten = folder.forget(wrong.path, ANNA)
    folder.revert(forgotten, ANNA)
    assert folder.read(wrong.path).body == "Thursdays."
    assert "Release day" in (tmp_path / "MEMORY.md").read_text()


def test_a_write_over_a_concurrent_change_is_refused(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Release day", "Thursdays."), ANNA)
    seen = content_hash(folder.content("project_release_day.md"))
    (tmp_path / "project_release_day.md").write_text("Fridays.")
    with pytest.raises(MemoryChanged):
        folder.write("project_release_day.md", "Mondays.", AGENT, expected=seen)
    assert (tmp_path / "project_release_day.md").read_text() == "Fridays."
    with pytest.raises(MemoryChanged):
        folder.save(a_note("Release day", "Mondays."), AGENT, expected="")


async def test_a_purged_memory_is_nowhere_in_the_folder(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Door code", "It is xyzzy."), ANNA)
    folder.save(a_note("Door code", "It is plugh."), ANNA)
    with pytest.raises(NotFound):
        await purge_memory(folder, "other.md", ANNA, log=None, purge_index=lambda: None)
    await purge_memory(folder, "project_door_code.md", ANNA, log=None, purge_index=lambda: None)
    assert folder.unfinished_purges() == []
    left = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"xyzzy" not in left
    assert b"plugh" not in left
    with pytest.raises(NotFound):
        folder.read("project_door_code.md")


@pytest.mark.parametrize(
    "path", ["../out.md", "/etc/x.md", ".hidden.md", "a/.b/c.md", "x.txt", "a//b.md", "", "x\n.md"]
)
def test_a_path_out_of_the_folder_is_refused(path: str, tmp_path: Path):
    with pytest.raises(InvalidInput):
        memory_folder(tmp_path).write(path, "text", ANNA)


def test_links_are_neither_read_nor_written_through(tmp_path: Path):
    secret = tmp_path / "secret.md"
    secret.write_text("key")
    place = tmp_path / "memory"
    place.mkdir()
    (place / "linked.md").symlink_to(secret)
    (place / "folder").symlink_to(tmp_path)
    folder = memory_folder(place)
    assert folder.paths() == {}
    for path in ("linked.md", "folder/secret.md"):
        with pytest.raises((InvalidInput, NotFound)):
            folder.read(path)
    with pytest.raises(InvalidInput):
        folder.write("folder/other.md", "text", ANNA)
    assert secret.read_text() == "key"


def test_a_rejected_text_is_not_written(tmp_path: Path):
    folder = memory_folder(tmp_path, refuse=lambda text: "a secret" if "hunter2" in text else None)
    with pytest.raises(InvalidInput, match="a secret"):
        folder.save(a_note("Password", "hunter2"), AGENT)
    assert folder.paths() == {}


def test_the_doctor_finds_broken_links_and_missing_index_lines(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Release day", "Thursdays.", links=("gone.md",)), ANNA)
    (tmp_path / "loose.md").write_text("Not in the index.")
    problems = {finding.path: finding.problem for finding in examine(folder)}
    assert problems == {
        "loose.md": "not in MEMORY.md",
        "project_release_day.md": "links to gone.md, which does not exist",
    }


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.runtime.memory.memory_setup import AGENT, a_note
from mainspring.core import clock, ids
from mainspring.runtime.memory.memory_folder import MemoryFolder
folder = MemoryFolder(Path(sys.argv[1]), clock=clock.now, new_id=ids.new_id)
for number in range(100000):
    print(number, flush=True)
    folder.save(a_note("Counter", f"value {number} " * 200), AGENT)
"""


def test_a_killed_writer_leaves_a_whole_file_and_its_version(tmp_path: Path):
    project = str(Path(__file__).parents[3])
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), project], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(5):
            writer.stdout.readline()
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(60)
        writer.stdout.close()
        folder = MemoryFolder(tmp_path, clock=clock.now, new_id=ids.new_id)
        body = folder.read("project_counter.md").body
        assert len(set(body.split())) == 2
        newest = folder.history("project_counter.md")[0]
        assert newest.hash == content_hash(folder.content("project_counter.md"))
        assert newest.author.kind == "agent"
