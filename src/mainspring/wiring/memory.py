"""The memories that a person or a session reaches: the agent's in its folder, and the user's."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings
from mainspring.core import clock, ids
from mainspring.core.sender import Sender
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_index import MemoryIndex
from mainspring.runtime.memory.session_memory import SessionMemory
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.utility.utility_table import UtilityTable
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


def session_memory(
    settings: Settings, setup: SetupRequest, workspace: Path
) -> SessionMemory | None:
    """`None`: nobody has a folder for memories, which is how memory is off. Subagents have none of
    their own, and a session of the service has no folder of a person's."""
    if setup.subagent is not None or setup.options.is_served:
        return None
    folders = memory_folders(replace(settings, folder=str(workspace)))
    present = {scope: folder for scope, folder in folders.items() if folder.is_present}
    if not present:
        return None
    state = setup.thread.session_state
    return SessionMemory(
        folders=present,
        index_path=index_file(settings, present),
        warn=setup.options.warn,
        recalled=state.recalled,
        has_read_others=lambda: state.has_read_others,
        session_id=setup.writer.session_id,
        author=Sender(kind="agent", id=setup.agent.name),
        clock=clock.now,
    )


def open_memory_index(settings: Settings, folders: dict[str, MemoryFolder]) -> MemoryIndex:
    """One file for each set of folders."""
    present = {scope: folder for scope, folder in folders.items() if folder.is_present}
    return MemoryIndex(present, index_file(settings, present) if present else None)


def index_file(settings: Settings, folders: dict[str, MemoryFolder]) -> Path:
    """Outside of any workspace: what programs there could replace is not opened as a database."""
    places = "\0".join(str(folder.root.resolve()) for folder in folders.values())
    name = hashlib.sha256(places.encode()).hexdigest()[:24]
    return Path(settings.home) / ".mainspring/memory-index" / f"{name}.db"


def open_utility_table(settings: Settings) -> UtilityTable:
    """Derived from the logs of one store. Blocks."""
    name = hashlib.sha256(settings.store.encode()).hexdigest()[:24]
    return UtilityTable(Path(settings.home) / ".mainspring/memory-index" / f"utility-{name}.db")
