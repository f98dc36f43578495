"""What a file is by its first bytes: an image that a model can look at, or something else."""

from __future__ import annotations

_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_OTHERS = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, or a document that is one inside"),
    (b"\x1f\x8b", "gzip-compressed"),
    (b"\x7fELF", "a Linux program or library"),
    (b"\xcf\xfa\xed\xfe", "a macOS program or library"),
    (b"MZ", "a Windows program or library"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "WebAssembly"),
)


def image_type(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _IMAGES if content.startswith(start)), None)


def described(content: bytes) -> str:
    """What a file that is no text may be."""
    known = (kind for start, kind in _OTHERS if content.startswith(start))
    return next(known, "of a kind that is not known")
