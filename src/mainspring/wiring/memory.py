"""The memories that a person or a session reaches: the agent's in its folder, and the user's."""

from __future__ import annotations

from pathlib import Path

from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings
from mainspring.core import clock, ids
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_index import INDEX_PATH, MemoryIndex
from mainspring.wiring.user_vault import known_secrets

AGENT, USER = "agent", "user"


def memory_folders(settings: Settings) -> dict[str, MemoryFolder]:
    """By scope."""
    scrub = Scrubber(known_secrets(settings))

    def refuse(text: str) -> str | None:
        content = text.encode(errors="replace")
        return None if scrub(content) == content else "it has a secret, which memory must not"

    places = {
        AGENT: Path(settings.folder) / "memory",
        USER: Path(settings.home) / ".mainspring/memory",
    }
    return {
        scope: MemoryFolder(place, clock=clock.now, new_id=ids.new_id, refuse=refuse)
        for scope, place in places.items()
    }


def open_memory_index(folders: dict[str, MemoryFolder]) -> MemoryIndex:
    """One file for each set of folders; beside the agent's memories, and not one of them."""
    present = {scope: folder for scope, folder in folders.items() if folder.root.is_dir()}
    home = present.get(AGENT) or present.get(USER)
    if home is None:
        return MemoryIndex({})
    path = home.root / INDEX_PATH
    path.parent.mkdir(exist_ok=True)
    return MemoryIndex(present, path)
