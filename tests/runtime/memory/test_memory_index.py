"""Memories are found by what they say, as they are now."""

from pathlib import Path

from tests.runtime.memory.memory_setup import ANNA, a_note, memory_folder

from mainspring.runtime.memory.note import parse_note
from mainspring.runtime.memory.search.memory_index import MemoryIndex, note_parts


def test_an_edit_by_hand_is_found_by_the_next_search(tmp_path: Path):
    folder = memory_folder(tmp_path)
    folder.save(a_note("Release day", "We release on Thursdays."), ANNA)
    index = MemoryIndex({"agent": folder}, tmp_path / "other/index.db")
    assert [hit.note.path for hit in index.search("when is the release", ["agent"], 5)] == [
        "project_release_day.md"
    ]
    (tmp_path / "loose.md").write_text("The coffee machine needs descaling.")
    (hit,) = index.search("descale coffee machines", ["agent"], 5)
    assert (hit.note.path, hit.line, hit.text) == (
        "loose.md",
        1,
        "The coffee machine needs descaling.",
    )
    (tmp_path / "loose.md").unlink()
    assert index.search("descale coffee machines", ["agent"], 5) == []


def test_after_two_hundred_updates_only_the_newer_facts_are_found(tmp_path: Path):
    folder = memory_folder(tmp_path)
    for number in range(200):
        folder.write(f"person{number}.md", f"Person{number} lives in Oldtown{number}.", ANNA)
        folder.write(f"person{number}.md", f"Person{number} lives in Newtown{number}.", ANNA)
    index = MemoryIndex({"agent": folder})
    for number in range(0, 200, 5):
        (first, *_) = index.search(f"Where does Person{number} live?", ["agent"], 3)
        assert first.text == f"Person{number} lives in Newtown{number}."
        assert index.search(f"Oldtown{number}", ["agent"], 3) == []


def test_copies_of_one_text_are_one_hit_and_other_scopes_are_not_searched(tmp_path: Path):
    mine, yours = memory_folder(tmp_path / "a"), memory_folder(tmp_path / "b")
    for number in range(5):
        mine.write(f"copy{number}.md", "The alarm code changed.", ANNA)
    yours.write("other.md", "The alarm code is secret.", ANNA)
    index = MemoryIndex({"agent": mine, "user": yours})
    assert len(index.search("alarm code", ["agent"], 10)) == 1
    assert {hit.scope for hit in index.search("alarm code", ["agent", "user"], 10)} == {
        "agent",
        "user",
    }
    assert index.search("alarm code", ["nobody"], 10) == []


def test_a_rebuilt_index_gives_the_same_results(tmp_path: Path):
    folder = memory_folder(tmp_path)
    for number in range(40):
        folder.write(f"n{number}.md", f"Fact {number} is about topic{number % 7}.", ANNA)
    index = MemoryIndex({"agent": folder}, tmp_path / "index.db")
    before = [hit.note.path for hit in index.search("topic3 fact", ["agent"], 10)]
    assert index.rebuild() == 40
    again = [hit.note.path for hit in index.search("topic3 fact", ["agent"], 10)]
    assert sorted(again) == sorted(before)


def test_parts_of_a_long_memory_have_their_line_numbers():
    text = "---\nname: Log\n---\n\n" + "\n".join(f"- item {number} happened" for number in range(3))
    note = parse_note("2026-05-01.md", text)
    assert [(part.line, part.text) for part in note_parts(note, text)] == [
        (5, "- item 0 happened"),
        (6, "- item 1 happened"),
        (7, "- item 2 happened"),
    ]


def test_a_damaged_index_is_rebuilt(tmp_path: Path):
    folder = memory_folder(tmp_path / "memory")
    folder.write("a.md", "The zebra crossed.", ANNA)
    file = tmp_path / "index.db"
    file.write_bytes(b"not a database, " * 100)
    index = MemoryIndex({"agent": folder}, file)
    assert len(index.search("zebra", ["agent"], 3)) == 1
