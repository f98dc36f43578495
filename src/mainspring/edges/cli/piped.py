"""What another program pipes into a command: `git diff | mainspring run "review this"`."""

from __future__ import annotations

import os
import select
import stat
import sys

from mainspring.core.errors import TooLarge

MAX_BYTES = 2_000_000


def is_piped() -> bool:
    """Whether standard input is a pipe or a file, rather than a terminal or nothing."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # closed, or not a file at all
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def read_piped(seconds: float | None) -> str:
    """All of standard input. Blocks; a pipe that says nothing for some seconds, which may never
    end, is taken for none.

    Raises: TooLarge.
    """
    if seconds is not None and not select.select([sys.stdin], [], [], seconds)[0]:
        return ""
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        long = TooLarge(f"standard input has more than {MAX_BYTES:,} bytes")
        long.add_note("write it to a file, and name the file in the prompt")
        raise long
    return content.decode(errors="replace").strip()
