"""Reads the image in the clipboard with the programs that desktops have for it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from mainspring.files.atomic_file import write_atomic

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_PNG = b"\x89PNG\r\n\x1a\n"
_SECONDS = 5
_MAX_BYTES = 20_000_000
_PROGRAMS = (
    ("wl-paste", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-t", "image/png", "-o"),
    ("pngpaste", "-"),
)


def save_clipboard_image(folder: Path) -> Path | None:
    """Save the clipboard's image. Returns its file, or `None` if there is no image. Blocks."""
    for program, *options in _PROGRAMS:
        if (path := shutil.which(program)) is None:
            continue
        try:
            image = subprocess.run(
                [path, *options], capture_output=True, timeout=_SECONDS, check=False
            ).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        if image.startswith(_PNG) and len(image) <= _MAX_BYTES:
            file = folder / f"pasted-{hashlib.sha256(image).hexdigest()[:12]}.png"
            write_atomic(file, image)
            return file
    return None
