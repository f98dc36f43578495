"""What `mainspring skill find` does."""

from __future__ import annotations

from pathlib import Path

import msgspec
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.atomic_file import read_bounded
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.download import download
from mainspring.edges.cli.printing import Screen
from mainspring.runtime.skills.published_skills import (
    PublishedSkill,
    best_entries,
    entries_in,
    entries_of,
)

_MAX_BYTES = 20_000_000
_MAX_RESULTS = 20


async def find(settings: Settings, *, query: str, catalogue: str, json: bool) -> int:
    """Exit status 1: nothing fits.

    Raises: InvalidInput, NetworkRefused.
    """
    entries = await _read_entries(settings, catalogue)
    fitting = await to_thread.run_sync(best_entries, entries, query, _MAX_RESULTS)
    screen = Screen(settings)
    if json:
        for entry in fitting:
            screen.json(msgspec.json.encode(entry))
    elif fitting:
        screen.table(
            ["NAME", "SOURCE", "DESCRIPTION"],
            [
                [(entry.name, "bold"), (entry.source, "dim"), (entry.description, "")]
                for entry in fitting
            ],
        )
    else:
        found = f"none of the {len(entries)} skills fits {query!r}"
        Screen(settings, stderr=True).paragraph((found, "dim"))
    return 0 if fitting else 1


async def _read_entries(settings: Settings, catalogue: str) -> list[PublishedSkill]:
    if catalogue.startswith("https://"):
        return entries_of(await download(catalogue, max_bytes=_MAX_BYTES))
    return await to_thread.run_sync(_local_entries, Path(settings.folder), catalogue)


def _local_entries(folder: Path, catalogue: str) -> list[PublishedSkill]:
    place = folder / Path(catalogue).expanduser()
    if place.is_dir():
        return entries_in(place)
    content = read_bounded(place, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{catalogue}: there is no such file or folder")
    return entries_of(content)
