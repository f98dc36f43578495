"""Packages that a person trusts, each pinned to the hash of its contents at that time."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.packages.package_contents import ContentItem, contents_hash, read_contents
from mainspring.runtime.packages.scan_rule import Severity

PINS_FILE = ".mainspring/skills.json"
"""The path below the user's home folder, so that a project cannot trust itself."""

TrustStatus: TypeAlias = Literal[
    "unknown",  # never trusted
    "trusted",  # trusted, and unchanged since
    "changed",  # trusted, but changed since
]


class TrustPin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    hash: str
    when: datetime
    severity: Severity | None = None
    """The most severe hit of the scan."""
    source: str = ""
    """Where it was installed from; empty if it was trusted in place."""
    commit: str = ""


class TrustPins:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: tuple[tuple[int, int, int], dict[str, TrustPin]] | None = None

    def of(self, place: Path) -> TrustPin | None:
        """The pin of a package, whether or not it still matches.

        Raises: InvalidInput: the pins file cannot be read.
        """
        return self._load().get(os.path.realpath(place))

    def status(self, place: Path) -> TrustStatus:
        """Raises: InvalidInput: the pins file cannot be read."""
        pin = self.of(place)
        if pin is None:
            return "unknown"
        try:
            current = contents_hash(read_contents(place))
        except MainspringError:  # what was trusted could be read in full
            return "changed"
        return "trusted" if current == pin.hash else "changed"

    def trusted_contents(self, place: Path) -> tuple[ContentItem, ...] | None:
        """The contents, if they are unchanged since somebody trusted them: exactly the bytes that
        were hashed.

        Raises: InvalidInput: the pins file cannot be read.
        """
        pin = self.of(place)
        try:
            contents = read_contents(place)
        except MainspringError:
            return None
        return contents if pin is not None and contents_hash(contents) == pin.hash else None

    def is_pinned(self, place: Path) -> bool:
        """Whether a package is byte for byte what somebody trusted."""
        return self.status(place) == "trusted"

    def trusted_hash(self, place: Path) -> str | bool | None:
        """The hash of a package if it is unchanged since it was pinned, false if it has changed,
        `None` if it was never pinned."""
        pin = self.of(place)
        return None if pin is None else self.status(place) == "trusted" and pin.hash

    def pin(self, place: Path, pin: TrustPin) -> None:
        """Raises: InvalidInput."""
        self._save({**self._load(), os.path.realpath(place): pin})

    def unpin(self, place: Path) -> bool:
        """Withdraw the trust; False if there was none.

        Raises: InvalidInput.
        """
        pins = dict(self._load())
        was_pinned = pins.pop(os.path.realpath(place), None) is not None
        if was_pinned:
            self._save(pins)
        return was_pinned

    def _load(self) -> dict[str, TrustPin]:
        """Called once per skill, so the file is read again only if it has changed."""
        try:
            status = os.stat(self._file)
        except OSError:
            return {}
        state = (status.st_ino, status.st_mtime_ns, status.st_size)
        if self._read is None or self._read[0] != state:
            self._read = state, self._decode(read_bounded(self._file))
        return self._read[1]

    def _decode(self, content: bytes | None) -> dict[str, TrustPin]:
        try:
            return {} if content is None else msgspec.json.decode(content, type=dict[str, TrustPin])
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidInput(f"{self._file}: {error}; remove it to start over") from error

    def _save(self, pins: dict[str, TrustPin]) -> None:
        content = msgspec.json.format(msgspec.json.encode(pins, order="sorted"), indent=2)
        write_atomic(self._file, content + b"\n")
