"""A canary: a version of an agent that a share of its new sessions uses, from a copy beside the
log. The id of a session decides, so that everybody who asks gets the same answer."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded, write_atomic

_FILE = "canaries.json"
_MAX_BYTES = 100_000  # of its settings


class Canary(Struct, frozen=True, kw_only=True):
    hash: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    """The hash of the version's texts. The copy's place follows from it, and is stored nowhere: a
    file that somebody else has written cannot name a folder."""
    share: Annotated[float, Meta(gt=0, lt=1)]

    def includes(self, session_id: str) -> bool:
        digest = hashlib.sha256(f"canary {self.hash} {session_id}".encode()).digest()
        return int.from_bytes(digest[:8]) / 2**64 < self.share

    def copy_in(self, place: Path, folder: Path) -> Path:
        return canary_place(place, self.hash) / folder.resolve().name


def canary_place(place: Path, digest: str) -> Path:
    return place / "canaries" / digest[:16]


def read_canary(place: Path, folder: Path) -> Canary | None:
    """The canary of the agent in a folder. `place`: where campaigns keep their copies. Blocks."""
    canary = _read(place).get(_key(folder))
    return canary if canary is not None and canary.copy_in(place, folder).is_dir() else None


def write_canary(place: Path, folder: Path, canary: Canary | None) -> None:
    """`None` ends it; sessions that have begun with it keep it. Blocks."""
    canaries = {name: item for name, item in _read(place).items() if name != _key(folder)}
    if canary is not None:
        canaries[_key(folder)] = canary
    elif not (place / _FILE).exists():
        return
    write_atomic(place / _FILE, msgspec.json.encode(canaries))


def _read(place: Path) -> dict[str, Canary]:
    try:
        content = read_bounded(place / _FILE, max_bytes=_MAX_BYTES)
        return {} if content is None else msgspec.json.decode(content, type=dict[str, Canary])
    except (InvalidInput, msgspec.MsgspecError, RecursionError):
        # then there is no canary; the log still has it
        return {}


def _key(folder: Path) -> str:
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
