"""Instruction files on this machine's disk."""

from __future__ import annotations

from pathlib import Path, PurePosixPath


class Disk:
    """Reads regular files only: a pipe or a device could hold the reader forever."""

    def real(self, path: PurePosixPath) -> PurePosixPath:
        try:
            return PurePosixPath(Path(path).resolve())
        except (OSError, RuntimeError):  # links that lead in a circle
            return path

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes | None:
        place = Path(path)
        if not place.is_file():
            return None
        with place.open("rb") as file:
            return file.read(max_bytes)

    def names(self, folder: PurePosixPath) -> tuple[str, ...]:
        place = Path(folder)
        return tuple(sorted(entry.name for entry in place.iterdir())) if place.is_dir() else ()
