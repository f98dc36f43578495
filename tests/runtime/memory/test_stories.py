"""Short stories in two or more sessions: what people say later corrects what they said before."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct, structs, yaml
from tests.runtime.memory.memory_setup import AGENT, a_note, memory_folder
from tests.runtime.memory.test_session_learning import AGENT as LEARNER
from tests.runtime.memory.test_session_learning import TUESDAY, log_of

from mainspring.runtime.memory.learning.extraction import extract_candidates
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.note import CONFLICTS, INDEX_FILE
from mainspring.runtime.memory.search.memory_index import MemoryHit, MemoryIndex
from mainspring.runtime.memory.session_learning import learn


class Story(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    say: list[str]
    notes: int | None = None
    keep: list[str] = []
    drop: list[str] = []
    stale: list[str] = []
    conflict: bool = False


FOLDER = Path(__file__).parent
STORIES = [
    story
    for name in ("stories.yaml", "stories_later.yaml")
    if (FOLDER / name).exists()
    for story in yaml.decode((FOLDER / name).read_bytes(), type=list[Story])
]


def play(story: Story, place: Path, *, others: int = 0) -> MemoryFolder:
    """Each message is a session of its own, a day after the one before."""
    folder = memory_folder(place / "memory")
    for number in range(others):
        subject = f"harbour {number} of line {number * 7}"
        folder.save(
            replace(a_note(subject, f"The {subject} has {number} cranes."), trust="agent"), AGENT
        )
    for day, message in enumerate(story.say):
        log = [
            structs.replace(
                event,
                id=f"sevt_{day}",
                session_id=f"sesn_{day}",
                time=TUESDAY + timedelta(days=day),
            )
            for event in log_of(message)
        ]

        def search(query: str, limit: int) -> list[MemoryHit]:
            with closing(MemoryIndex({"agent": folder}, place / "index.db")) as index:
                return index.search(query, ["agent"], limit)

        learn({"agent": folder}, search, extract_candidates(log), LEARNER)
    return folder


def problems(story: Story, folder: MemoryFolder) -> list[str]:
    notes = [
        folder.read(path)
        for path in sorted(folder.paths())
        if path != INDEX_FILE and not path.startswith("project_harbour_")
    ]
    index = [line for line in folder.text(INDEX_FILE).splitlines() if "harbour" not in line]
    titles = "\n".join(
        [*index, *(f"{note.path}\n{note.name}\n{note.description}" for note in notes)]
    )
    bodies = "\n".join(note.body for note in notes)
    found = [f"not kept: {text}" for text in story.keep if text not in bodies]
    found += [f"kept: {t}" for t in story.drop if t.lower() in f"{bodies}\n{titles}".lower()]
    found += [f"in a title: {t}" for t in story.stale if t.lower() in titles.lower()]
    if story.notes is not None and len(notes) != story.notes:
        found.append(f"{len(notes)} notes instead of {story.notes}: {[n.body for n in notes]}")
    if story.conflict != any(note.other_fields.get(CONFLICTS) for note in notes):
        found.append("a conflict" if not story.conflict else "no conflict")
    return found


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title.replace(" ", "-"))
def test_what_is_said_later_corrects_what_was_said_before(story: Story, tmp_path: Path):
    assert problems(story, play(story, tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title.replace(" ", "-"))
def test_no_story_ends_differently_among_150_other_memories(story: Story, tmp_path: Path):
    assert problems(story, play(story, tmp_path, others=150)) == []
