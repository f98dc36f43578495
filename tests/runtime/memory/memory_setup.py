"""A folder of memories with a clock that moves one minute a change."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

from mainspring.core.sender import Sender
from mainspring.log.provenance import Provenance
from mainspring.runtime.memory.memory_folder import FolderOptions, MemoryFolder
from mainspring.runtime.memory.memory_versions import Change
from mainspring.runtime.memory.note import Note, note_path

ANNA = Change(author=Sender(kind="person", id="anna"), reason="as discussed")
AGENT = Change(author=Sender(kind="agent", id="agent_1"), reason="learned", session_id="sesn_1")

_KEY = bytes(range(32))
"""Of the installation, whose tests run in several processes."""


def memory_folder(
    place: Path, *, refuse: Callable[[str], str | None] = lambda _: None, first: int = 1
):
    """`first`: the first number of its ids, and its first minute."""
    minutes = count(first - 1)
    numbers = count(first)
    return MemoryFolder(
        place,
        clock=lambda: datetime(2026, 5, 1, tzinfo=UTC) + timedelta(minutes=next(minutes)),
        new_id=lambda kind: f"{kind}_{next(numbers):04}",
        refuse=refuse,
        options=FolderOptions(provenance=partial(Provenance, _KEY)),
    )


def a_note(name: str, body: str, **more: object) -> Note:
    return Note(path=note_path("project", name), name=name, body=body, type="project", **more)  # pyright: ignore[reportArgumentType]
