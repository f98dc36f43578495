"""Memory as a thread is set up with it, over folders and an index that are given."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, closing
from pathlib import Path

from mainspring.core import clock
from mainspring.core.sender import Sender
from mainspring.harness.state.thread import RECALL
from mainspring.retrieval.passage_index import PassageIndex
from mainspring.runtime.memory.learning import learn_from_run
from mainspring.runtime.memory.manifest import manifest_picker
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.memory.memory_index import MemoryIndex
from mainspring.runtime.memory.past_sessions import PastSessions
from mainspring.runtime.memory.recall import Recall, UtilityValues
from mainspring.runtime.memory.session_memory import SessionMemory
from mainspring.runtime.model_question import make_ask_model
from mainspring.runtime.session_context import Models, SetupRequest

_INDEX_FOLDER = ".mainspring/memory-index"
AGENT, USER = "agent", "user"
"""Scopes of memories: those in the agent's folder, and the user's own."""


def index_file(home: Path, source: str, *, kind: str = "") -> Path:
    """The database that is derived from a source. Outside of any workspace: what programs there
    could replace is not opened as a database."""
    name = hashlib.sha256(source.encode()).hexdigest()[:24]
    return home / _INDEX_FOLDER / f"{kind}{'-' if kind else ''}{name}.db"


def folder_index_file(home: Path, folders: Mapping[str, MemoryFolder]) -> Path:
    """One for each set of folders."""
    return index_file(home, "\0".join(str(folder.root.resolve()) for folder in folders.values()))


def purge_indexes(
    home: Path,
    folders: Mapping[str, MemoryFolder],
    scope: str,
    path: str | None,
    open_index: Callable[[Path], PassageIndex],
) -> None:
    """Leave no word of a memory, or of a whole scope, in any index; each set of folders has one.
    Blocks."""
    files = {folder_index_file(home, item) for item in (folders, {scope: folders[scope]})}
    if scope == USER:  # every project has its memories beside those of the user
        every = (home / _INDEX_FOLDER).glob("*.db")
        files |= {file for file in every if "-" not in file.stem}
    for file in sorted(file for file in files if file.exists()):
        with closing(open_index(file)) as passages:
            paths = (path,) if path is not None else passages.hashes(scope)
            passages.remove(scope, *paths)
            passages.purge()


def client_memory(
    client: str,
    folders: Mapping[str, MemoryFolder],
    open_index: Callable[[], MemoryIndex],
    warn: Callable[[str], None],
    *,
    is_read_only: bool,
) -> SessionMemory:
    """Of a client that is not a session: what it writes is text of others."""
    return SessionMemory(
        folders=folders,
        open_index=open_index,
        warn=warn,
        recalled=frozenset(),
        has_read_others=lambda: True,
        session_id=f"mcp:{client}",
        author=Sender(kind="agent", id=f"mcp:{client}"),
        clock=clock.now,
        is_read_only=is_read_only,
    )


def open_session_memory(
    setup: SetupRequest,
    folders: Mapping[str, MemoryFolder],
    open_index: Callable[[], MemoryIndex],
    stack: AsyncExitStack,
    *,
    is_read_only: bool,
) -> SessionMemory:
    """When `stack` is closed, the run is over, and what it taught is remembered."""
    state = setup.thread.session_state
    memory = SessionMemory(
        folders=folders,
        open_index=open_index,
        warn=setup.options.warn,
        recalled=state.recalled,
        has_read_others=lambda: state.has_read_others,
        session_id=setup.writer.session_id,
        author=Sender(kind="agent", id=setup.agent.name),
        clock=clock.now,
        owner=setup.subagent or "",
        past=_past_sessions(setup),
        is_read_only=is_read_only,
    )
    if setup.subagent is None:
        stack.push_async_callback(learn_from_run, memory, setup.log, setup.writer)
    return memory


def _past_sessions(setup: SetupRequest) -> PastSessions | None:
    """Subagents and evals know nothing of earlier sessions."""
    if setup.subagent is not None or setup.options.memory is not None:
        return None
    return PastSessions(setup.log, setup.writer.session_id)


def session_recall(
    setup: SetupRequest,
    models: Models,
    memory: SessionMemory,
    utility: Callable[[], Awaitable[UtilityValues]],
    *,
    model: str | None,
) -> Recall:
    """By search, or by a small model that picks from the list of memories."""
    state, pick = setup.thread.session_state, None
    if model:
        ask = make_ask_model(models, models.resolve(model), purpose=RECALL)
        pick = manifest_picker(ask, lambda: state.calls)
    return Recall(memory=memory, utility=utility, pick=pick)
