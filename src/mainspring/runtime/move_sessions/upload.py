"""A bundle that a client has sent: checked as a whole before anything of it is used.

`tarfile` reads headers of any size into memory and lets one header change another. So the headers
are first checked here, and only an archive of the few kinds that we write ourselves is opened.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.runtime.move_sessions.archive import MAX_ENTRIES

_BLOCK = 512
_MAX_PAX = 16_384
_FILE, _LINK, _FOLDER, _PAX = b"0", b"2", b"5", b"x"
_PAX_NAMES = frozenset({"path", "linkpath"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    max_bytes: int = 1 << 30
    """Of all of it."""
    max_log_bytes: int = 64 << 20
    max_events: int = 50_000
    max_entries: int = MAX_ENTRIES


def check_headers(file: Path, limits: UploadLimits) -> None:
    """Raises: InvalidInput, TooLarge."""
    size = file.stat().st_size
    if size > limits.max_bytes:
        raise TooLarge(f"a session that is pushed has {limits.max_bytes:,} bytes at most")
    with file.open("rb") as opened:
        at = count = 0
        before = b""
        while (header := _header(opened, at)) is not None:
            kind, length = header
            count += kind != _PAX
            if count > limits.max_entries:
                raise TooLarge(f"a session that is pushed has {limits.max_entries:,} files at most")
            if kind == _PAX:
                if before == _PAX:
                    raise InvalidInput("the bundle has two headers for one file")
                _check_pax(opened.read(length))
            before = kind
            at += _BLOCK + -(-length // _BLOCK) * _BLOCK
            if at > size:
                raise InvalidInput("the bundle ends too early")


def _header(opened: IO[bytes], at: int) -> tuple[bytes, int] | None:
    """Kind and length of what follows; `None` at the end of the archive."""
    opened.seek(at)
    block = opened.read(_BLOCK)
    if len(block) < _BLOCK:
        raise InvalidInput("the bundle ends too early")
    if block == bytes(_BLOCK):
        return None
    kind, digits = block[156:157], block[124:136].rstrip(b"\0 ")
    if kind not in (_FILE, _LINK, _FOLDER, _PAX):
        raise InvalidInput("the bundle has something that is no file, folder or link")
    if not digits or not all(48 <= digit <= 55 for digit in digits):
        raise InvalidInput("the bundle has a file without a size")
    length = int(digits, 8)
    if (kind in (_LINK, _FOLDER) and length) or (kind == _PAX and length > _MAX_PAX):
        raise InvalidInput("the bundle has a header that is too large")
    return kind, length


def _check_pax(content: bytes) -> None:
    """Only long names may be there: a `size` would move everything that follows."""
    while content:
        digits, _, rest = content.partition(b" ")
        if not digits.isdigit() or not len(digits) < 6:
            raise InvalidInput("the bundle has a header that cannot be read")
        length = int(digits)
        record = content[:length]
        name, is_there, _ = rest[: length - len(digits) - 1].partition(b"=")
        is_whole = len(record) == length and length > len(digits) + 1 and record.endswith(b"\n")
        if not is_whole or not is_there or name.decode(errors="replace") not in _PAX_NAMES:
            raise InvalidInput("the bundle has a header that is not one of ours")
        content = content[length:]


def open_checked(file: Path, limits: UploadLimits) -> tarfile.TarFile:
    """Raises: InvalidInput, TooLarge."""
    check_headers(file, limits)
    try:
        return tarfile.open(file, "r:")
    except tarfile.TarError as error:
        raise InvalidInput(f"what has arrived is no bundle of a session: {error}") from error
