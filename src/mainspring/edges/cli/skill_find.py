"""`mainspring skill find`."""

from __future__ import annotations

from pathlib import Path

import aiohttp
from anyio import to_thread

from mainspring.config import Settings
from mainspring.core.atomic_file import read_bounded
from mainspring.core.errors import InvalidInput, NetworkRefused, TooLarge
from mainspring.edges.cli.printing import print_list
from mainspring.runtime.skills.published_skills import (
    PublishedSkill,
    best_entries,
    entries_in,
    entries_of,
)

_MAX_BYTES = 20_000_000
_MAX_RESULTS = 20
_DOWNLOAD_SECONDS = 60.0


async def find(settings: Settings, *, query: str, catalogue: str, json: bool) -> int:
    """Exit status 1: no match.

    Raises: InvalidInput, NetworkRefused.
    """
    entries = await _read_entries(settings, catalogue)
    matches = await to_thread.run_sync(best_entries, entries, query, _MAX_RESULTS)
    print_list(
        settings,
        matches,
        json=json,
        heads=["NAME", "SOURCE", "DESCRIPTION"],
        row=lambda entry: [(entry.name, "bold"), (entry.source, "dim"), (entry.description, "")],
        empty=f"none of the {len(entries)} skills matches {query!r}",
    )
    return 0 if matches else 1


async def _read_entries(settings: Settings, catalogue: str) -> list[PublishedSkill]:
    if catalogue.startswith("https://"):
        return entries_of(await _download(catalogue, max_bytes=_MAX_BYTES))
    return await to_thread.run_sync(_local_entries, Path(settings.folder), catalogue)


def _local_entries(folder: Path, catalogue: str) -> list[PublishedSkill]:
    place = folder / Path(catalogue).expanduser()
    if place.is_dir():
        return entries_in(place)
    content = read_bounded(place, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{catalogue}: there is no such file or folder")
    return entries_of(content)


async def _download(url: str, *, max_bytes: int) -> bytes:
    """The proxy settings of the user apply.

    Raises: NetworkRefused, TooLarge.
    """
    timeout = aiohttp.ClientTimeout(total=_DOWNLOAD_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.get(url) as response,
        ):
            if response.status != 200:
                raise NetworkRefused(f"{url}: the server answered {response.status}")
            content = await response.content.read(max_bytes + 1)
            while len(content) <= max_bytes and (piece := await response.content.read(max_bytes)):
                content += piece
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise NetworkRefused(f"{url}: no answer ({type(error).__name__}: {error})") from error
    if len(content) > max_bytes:
        raise TooLarge(f"{url}: more than {max_bytes:,} bytes")
    return content
