"""The image in the clipboard, by the programs that desktops have for it."""

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
    """Where the clipboard's image was saved; `None` if there is none. Blocks."""
    for program, *options in _PROGRAMS:
        if (path := shutil.which(program)) is None:
            continue
        try:
            done = subprocess.run(
                [path, *options], capture_output=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.startswith(_PNG) and len(done.stdout) <= _MAX_BYTES:
            file = folder / f"pasted-{hashlib.sha256(done.stdout).hexdigest()[:12]}.png"
            write_atomic(file, done.stdout)
            return file
    return None
