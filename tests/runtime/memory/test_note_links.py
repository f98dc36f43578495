"""Notes in a small store are linked by what they name, and a change that is in progress is written
into the description of what it changes."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.runtime.memory.memory_setup import memory_folder
from tests.runtime.memory.test_recall import no_utility, recall_notes, session_memory
from tests.runtime.memory.test_session_learning import AGENT as LEARNER
from tests.runtime.memory.test_session_learning import TUESDAY, log_of

from mainspring.runtime.memory.learning.extraction import extract_candidates
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note import INDEX_FILE, Note
from mainspring.runtime.memory.recall import Recall
from mainspring.runtime.memory.search.memory_index import MemoryHit, MemoryIndex
from mainspring.runtime.memory.session_learning import learn


def told(place: Path, *messages: str) -> MemoryFolder:
    """The memories after messages of several days."""
    folder = memory_folder(place / "memory")

    def search(query: str, limit: int) -> list[MemoryHit]:
        with closing(MemoryIndex({"agent": folder}, place / "index.db")) as index:
            return index.search(query, ["agent"], limit)

    for day, message in enumerate(messages):
        log = [
            structs.replace(event, id=f"sevt_{day}", time=TUESDAY + timedelta(days=day))
            for event in log_of(message)
        ]
        learn({"agent": folder}, search, extract_candidates(log), LEARNER)
    return folder


def notes_of(folder: MemoryFolder) -> list[Note]:
    paths = [path for path in folder.paths() if path != INDEX_FILE]
    return sorted((folder.read(path) for path in paths), key=lambda note: note.created)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (
            "The team uses Redis for session storage.",
            "The team is migrating from Redis to Valkey for cost reasons.",
            ("Redis", "Valkey"),
        ),
        (
            "We deploy with Jenkins from the main branch.",
            "We are moving from Jenkins to Buildkite this quarter.",
            ("Jenkins", "Buildkite"),
        ),
    ],
)
async def test_a_change_in_progress_links_two_notes_and_changes_the_older_description(
    tmp_path: Path, first: str, second: str, words: tuple[str, str]
):
    folder = told(tmp_path, first, second)
    old, new = notes_of(folder)
    assert old.links == (new.path,)
    assert new.links == (old.path,)
    assert old.body == first
    assert "in progress" in old.description
    assert all(word in old.description for word in words)
    assert "in progress" in folder.text(INDEX_FILE)
    assert new.path in str(old.other_fields["context"])
    assert words[0] in str(old.other_fields["keywords"])
    recall = Recall(memory=session_memory(tmp_path, folder), utility=no_utility)
    assert set((await recall_notes(recall, first))[0]) == {old.path, new.path}


def test_a_change_that_is_done_ends_the_progress(tmp_path: Path):
    folder = told(
        tmp_path,
        "The team uses Redis for session storage.",
        "The team is migrating from Redis to Valkey for cost reasons.",
        "We migrated from Redis to Valkey.",
    )
    stored = next(note for note in notes_of(folder) if "session storage" in note.body)
    assert "Valkey for session storage" in stored.body
    assert "in progress" not in stored.description


def test_notes_that_share_no_name_are_not_linked(tmp_path: Path):
    folder = told(
        tmp_path,
        "We use Postgres for orders.",
        "We use Loki for logs.",
        "The design review is on Tuesday.",
        "The security review is on Thursday.",
    )
    assert [note.links for note in notes_of(folder)] == [(), (), (), ()]


def test_notes_about_one_thing_are_linked(tmp_path: Path):
    folder = told(
        tmp_path, "Grace owns the parser of Falcon.", "The budget of Falcon is 5,000 euros a month."
    )
    assert all(len(note.links) == 1 for note in notes_of(folder))
