"""Contents by their hash, in a folder of ours. Each is kept once, and whole or not at all."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase
from pathlib import Path

from mainspring.core.errors import HandsError

CHUNK = 1 << 20


def pieces_of(file: BufferedIOBase) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece


class Objects:
    """Programs of the session never reach this folder, so plain paths are safe in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unfinished = folder / "unfinished"

    def prepare(self) -> None:
        """Clear away what a crash has left. Only with the lock: nobody else is writing then."""
        for name in (self._folder, self._unfinished):
            name.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._unfinished.iterdir():
            left.unlink()

    def known(self) -> set[str]:
        """The hashes of all that is kept."""
        return {
            shelf.name + kept
            for shelf in self._folder.iterdir()
            if len(shelf.name) == 2
            for kept in os.listdir(shelf)
        }

    def put(self, pieces: Iterable[bytes]) -> str:
        """Keep a content; its hash."""
        aside = self._unfinished / secrets.token_hex(8)
        digest = hashlib.sha256()
        with aside.open("xb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        place = self._place(digest.hexdigest())
        place.parent.mkdir(mode=0o700, exist_ok=True)
        aside.rename(place)
        return digest.hexdigest()

    def copy(self, name: str, write: Callable[[bytes], None]) -> None:
        """Give out a content, piece by piece.

        Raises:
            HandsError: it is not kept, or not as it was; the pieces are worth nothing then.
        """
        digest = hashlib.sha256()
        try:
            with self._place(name).open("rb") as file:
                for piece in pieces_of(file):
                    digest.update(piece)
                    write(piece)
        except FileNotFoundError:
            raise HandsError(f"the snapshot has lost the content {name}") from None
        if digest.hexdigest() != name:
            raise HandsError(f"the snapshot has a damaged content {name}")

    def keep_only(self, names: set[str]) -> int:
        """Remove all others; how many went."""
        gone = self.known() - names
        for name in gone:
            self._place(name).unlink()
        return len(gone)

    def _place(self, name: str) -> Path:
        return self._folder / name[:2] / name[2:]
