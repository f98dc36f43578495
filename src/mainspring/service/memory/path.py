"""Paths of memories: what one may be, and which stand in each other's way. Pure."""

from __future__ import annotations

import unicodedata

from mainspring.core.errors import InvalidInput

MAX_BYTES = 1024
MAX_SEGMENTS = 20
_FORBIDDEN = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories: controls, formats, halves of pairs, separators of lines and paragraphs."""
BEYOND = "\U0010ffff"
"""Comes after all that a path may have: paths in a folder are before the folder's and this."""


def checked_path(path: str) -> str:
    """Raises: InvalidInput."""
    if not path.startswith("/"):
        raise InvalidInput("path: it begins with /")
    _check(path, path[1:].split("/"))
    return path


def checked_prefix(prefix: str) -> str:
    """Of a list: `/`, or a path and `/`.

    Raises: InvalidInput.
    """
    if not prefix.startswith("/") or not prefix.endswith("/"):
        raise InvalidInput("path_prefix: it begins with / and ends with /")
    if prefix != "/":
        _check(prefix, prefix[1:-1].split("/"))
    return prefix


def _check(path: str, segments: list[str]) -> None:
    if len(path.encode(errors="surrogatepass")) > MAX_BYTES:
        raise InvalidInput(f"path: at most {MAX_BYTES} bytes")
    if len(segments) > MAX_SEGMENTS:
        raise InvalidInput(f"path: at most {MAX_SEGMENTS} segments")
    if any(each in ("", ".", "..") for each in segments):
        raise InvalidInput("path: no segment is empty, . or ..")
    if any(_is_forbidden(each) for each in path):
        raise InvalidInput("path: no control, format or separator characters")
    if not unicodedata.is_normalized("NFC", path):
        raise InvalidInput("path: it must be in Unicode normalization form C")


def _is_forbidden(character: str) -> bool:
    is_noncharacter = ord(character) & 0xFFFE == 0xFFFE
    return is_noncharacter or unicodedata.category(character) in _FORBIDDEN


def folders(path: str) -> list[str]:
    """Those that it is in, as paths of memories would be: none of them may be one."""
    segments = path.split("/")
    return ["/".join(segments[:end]) for end in range(2, len(segments))]


def rolled_up(path: str, prefix: str, depth: int) -> str | None:
    """The folder that stands for it in a list so deep; `None`: it stands there itself."""
    below = path[len(prefix) :].split("/")
    if depth == 0 or len(below) <= depth:
        return None
    return f"{prefix}{'/'.join(below[:depth])}/"
