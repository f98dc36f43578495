"""The Python that the agent runs on inside a sandbox, where there is little besides /usr."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = Path("/usr")


@dataclass(frozen=True, slots=True)
class Interpreter:
    path: Path
    home: Path | None
    """What has to be readable for it, if that is not in /usr."""


def agent_interpreter() -> Interpreter:
    """Ours, if it is the system's; else the system's own; else ours, with all that it needs."""
    prefix = Path(sys.base_prefix).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    ours = prefix / "bin" / version
    if prefix.is_relative_to(_SYSTEM) and os.access(ours, os.X_OK):
        return Interpreter(ours, None)
    for minor in range(20, 8, -1):
        system = _SYSTEM / "bin" / f"python3.{minor}"
        if os.access(system, os.X_OK):
            return Interpreter(system, None)
    return Interpreter(ours, prefix)
