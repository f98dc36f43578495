"""The folder for state of this machine in an agent's folder, which git ignores."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_GITIGNORE = """\
# Made by Mainspring: sessions, snapshots and the state of sandboxes stay on this machine.
*
# What a team shares can be committed.
!/settings.json
!/models.toml
!/mcp.json
!/rules/
!/rules/**
!/skills/
!/skills/**
!/agents/
!/agents/**
!/commands/
!/commands/**
!/plugins/
!/plugins/**
"""


def ignore_state_in_git(store: Path) -> None:
    """Make git ignore the folder of a new store from the beginning."""
    if os.path.lexists(store):
        return
    with suppress(OSError):  # the store reports a wrong folder; an existing file stays
        store.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(store.parent / ".gitignore", flags, 0o600), "w") as file:
            file.write(_GITIGNORE)
