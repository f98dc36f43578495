"""What a command gives back once its arguments are understood."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mainspring.config import Settings

Action: TypeAlias = Callable[[Settings], Awaitable[int]]
"""Does what was asked; the exit status comes out."""
