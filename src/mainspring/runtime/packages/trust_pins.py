"""Skills that somebody has vouched for, each as it was then. Looking into them is `scan`'s."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput, MainspringError
from mainspring.runtime.definition_files.atomic_file import read_bounded, write_atomic
from mainspring.runtime.packages.folder_contents import ContentItem, contents_hash, read_contents
from mainspring.runtime.packages.scan_rule import Severity

PINS_FILE = ".mainspring/skills.json"
"""Below the user's folder: a project cannot vouch for itself."""

TrustStatus: TypeAlias = Literal[
    "unknown",  # nobody has vouched for it
    "trusted",  # it is what somebody has vouched for
    "changed",  # it was trusted, and is not what it was
]


class TrustPin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    hash: str
    when: datetime
    severity: Severity | None = None
    """The worst that a scan had to say of it."""
    source: str = ""
    """Where it was installed from; empty if it was trusted where it stood."""
    commit: str = ""


class TrustPins:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: tuple[tuple[int, int, int], dict[str, TrustPin]] | None = None

    def of(self, place: Path) -> TrustPin | None:
        """What is known of a skill's folder, whether or not it still holds.

        Raises: InvalidInput: the file of the pins cannot be read.
        """
        return self._load().get(os.path.realpath(place))

    def status(self, place: Path) -> TrustStatus:
        """Raises: InvalidInput: the file of the pins cannot be read."""
        known = self.of(place)
        if known is None:
            return "unknown"
        try:
            now = contents_hash(read_contents(place))
        except MainspringError:  # what cannot be read in full is not what was vouched for
            return "changed"
        return "trusted" if now == known.hash else "changed"

    def trusted_contents(self, place: Path) -> tuple[ContentItem, ...] | None:
        """All of it, if it is what somebody has vouched for: what was hashed is what is returned.

        Raises: InvalidInput: the file of the pins cannot be read.
        """
        known = self.of(place)
        try:
            contents = read_contents(place)
        except MainspringError:
            return None
        return contents if known is not None and contents_hash(contents) == known.hash else None

    def is_pinned(self, place: Path) -> bool:
        """Whether a skill is, byte for byte, what somebody has vouched for."""
        return self.status(place) == "trusted"

    def trusted_hash(self, place: Path) -> str | bool | None:
        """As `is_pinned`, with the hash of it; `None` if nobody has ever said anything of it."""
        known = self.of(place)
        return None if known is None else self.status(place) == "trusted" and known.hash

    def pin(self, place: Path, trust_pin: TrustPin) -> None:
        """Raises: InvalidInput."""
        self._save({**self._load(), os.path.realpath(place): trust_pin})

    def unpin(self, place: Path) -> bool:
        """Take it back; False if there was nothing to take back.

        Raises: InvalidInput.
        """
        known = dict(self._load())
        was_known = known.pop(os.path.realpath(place), None) is not None
        if was_known:
            self._save(known)
        return was_known

    def _load(self) -> dict[str, TrustPin]:
        """Asked for once a skill, so it is read again only if it is another file by now."""
        try:
            found = os.stat(self._file)
        except OSError:
            return {}
        state = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._read is None or self._read[0] != state:
            self._read = state, self._decoded(read_bounded(self._file))
        return self._read[1]

    def _decoded(self, content: bytes | None) -> dict[str, TrustPin]:
        try:
            return {} if content is None else msgspec.json.decode(content, type=dict[str, TrustPin])
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidInput(f"{self._file}: {error}; remove it to begin anew") from error

    def _save(self, known: dict[str, TrustPin]) -> None:
        content = msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=2)
        write_atomic(self._file, content + b"\n")
