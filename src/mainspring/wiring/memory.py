"""The memories that a person or a session reaches: the agent's in its folder, and the user's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from mainspring.capabilities.tools.html_text import html_to_text
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings, is_postgres
from mainspring.core import clock, ids
from mainspring.core.errors import InvalidInput
from mainspring.core.tool import Tool
from mainspring.harness.permissions.policy import remove_denied
from mainspring.retrieval.passage_index import PassageIndex, Vectors
from mainspring.runtime import memory_setup
from mainspring.runtime.knowledge.knowledge_folder import KnowledgeFolder
from mainspring.runtime.knowledge.knowledge_tool import knowledge_tool
from mainspring.runtime.memory.memory_files import ContentSeal
from mainspring.runtime.memory.memory_folder import FolderOptions, MemoryFolder
from mainspring.runtime.memory.memory_index import MemoryIndex, open_passages
from mainspring.runtime.memory.memory_mode import MemoryMode, strictest_memory
from mainspring.runtime.memory.memory_quota import read_quota
from mainspring.runtime.memory.memory_tools import memory_tools
from mainspring.runtime.memory.recall import Recall, utility_reader
from mainspring.runtime.memory.session_memory import SessionMemory
from mainspring.runtime.memory.vector_settings import open_vectors, set_vectors
from mainspring.runtime.memory_setup import AGENT, USER, folder_index_file, index_file
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import memory_places, subagent_memory_place
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.utility.utility_table import UtilityTable
from mainspring.wiring.providers import embedding_endpoint
from mainspring.wiring.settings_files import load_policy
from mainspring.wiring.user_vault import known_secrets, user_vault


def memory_folders(settings: Settings, own: Path | None = None) -> dict[str, MemoryFolder]:
    """By scope; `own`: the only one there is."""
    scrub = Scrubber(known_secrets(settings))

    def refuse(text: str) -> str | None:
        content = text.encode(errors="replace")
        return None if scrub(content) == content else "it has a secret, which memory must not"

    places = memory_places(Path(settings.folder), Path(settings.home))
    quota, seal = read_quota(settings.environment), memory_seal(settings)
    return {
        scope: MemoryFolder(
            place,
            clock=clock.now,
            new_id=ids.new_id,
            refuse=refuse,
            options=FolderOptions(
                quota=quota, index_above=own is None and scope == AGENT, content_seal=seal
            ),
        )
        for scope, place in zip((AGENT, USER), places if own is None else (own,), strict=False)
    }


def memory_seal(settings: Settings) -> ContentSeal:
    """With the key of the vault, which is read when something is sealed or opened first."""
    opened = cache(user_vault(settings).open_seal)
    return ContentSeal(
        seal=lambda plain: opened().seal(plain, "memory"),
        unseal=lambda sealed: opened().unseal(sealed, "memory"),
    )


def session_memory(
    settings: Settings, setup: SetupRequest, workspace: Path, stack: AsyncExitStack
) -> SessionMemory | None:
    """`None`: memory is off, or nobody has a folder for memories. A session of the service has no
    folder of a person's. When `stack` is closed, the run is over, and what it taught is
    remembered."""
    mode = strictest_memory(setup.agent.memory, setup.options.memory_mode)
    present = {} if mode == "off" else _session_folders(settings, setup, workspace)
    if not present:
        return None
    return memory_setup.open_session_memory(
        setup,
        present,
        partial(open_memory_index, settings, present),
        stack,
        is_read_only=mode == "read_only" or setup.options.memory is not None,
    )


def _session_folders(
    settings: Settings, setup: SetupRequest, workspace: Path
) -> dict[str, MemoryFolder]:
    """By scope. A subagent has a folder of its own, if its file says so, and no other."""
    if setup.options.is_served:
        return {}
    if setup.subagent is None:
        own = setup.options.memory
        folders = memory_folders(replace(settings, folder=str(workspace)), own)
        return {scope: folder for scope, folder in folders.items() if folder.is_present}
    if setup.subagent_memory is None:
        return {}
    try:
        place = subagent_memory_place(
            setup.subagent_memory, setup.subagent, workspace, Path(settings.home)
        )
    except InvalidInput as error:
        setup.options.warn(str(error))
        return {}
    return memory_folders(settings, place)


def served_memory(
    settings: Settings, options: RunOptions, modes: Sequence[MemoryMode], client: str
) -> dict[str, Tool]:
    """The tools of a client that is not a session: what it writes is text of others. A rule that
    denies a tool removes it."""
    workspace = Path(settings.folder, options.workspace or ".")
    folders = memory_folders(replace(settings, folder=str(workspace)))
    present = {scope: folder for scope, folder in folders.items() if folder.is_present}
    if not present or (mode := strictest_memory(*modes)) == "off":
        return {}
    memory = memory_setup.client_memory(
        client,
        present,
        partial(open_memory_index, settings, present),
        options.warn,
        is_read_only=mode == "read_only",
    )
    policy = load_policy(workspace, home=Path(settings.home)).policy
    return remove_denied(memory_tools(memory), policy)


def session_recall(
    settings: Settings, setup: SetupRequest, models: Models, memory: SessionMemory
) -> Recall:
    model = settings.environment.get("MAINSPRING_RECALL_MODEL")
    utility = utility_reader(setup.log, partial(open_utility_table, settings))
    return memory_setup.session_recall(setup, models, memory, utility, model=model)


def knowledge_folder(settings: Settings, workspace: Path) -> KnowledgeFolder:
    root = workspace / "knowledge"
    path = index_file(Path(settings.home), str(root.resolve()), kind="knowledge")
    return KnowledgeFolder(root, lambda: open_passages(path, _vectors(settings)), html_to_text)


def knowledge_tools(settings: Settings, setup: SetupRequest, workspace: Path) -> dict[str, Tool]:
    """By name."""
    folder = knowledge_folder(settings, workspace)
    if setup.options.is_served or not folder.is_present:
        return {}
    return {"knowledge_search": knowledge_tool(folder)}


def open_memory_index(settings: Settings, folders: dict[str, MemoryFolder]) -> MemoryIndex:
    """One file for each set of folders."""
    present = {scope: folder for scope, folder in folders.items() if folder.is_present}
    if not present or any(folder.is_encrypted for folder in present.values()):
        return MemoryIndex(present)  # in memory only, by words: made again for each search
    path = folder_index_file(Path(settings.home), present)
    return MemoryIndex(present, path, vectors=_vectors(settings))


def set_memory_vectors(settings: Settings, source: str) -> None:
    """Blocks. Raises: InvalidInput, ProviderFailed."""
    set_vectors(Path(settings.home), source, partial(embedding_endpoint, settings))


def _vectors(settings: Settings) -> Vectors | None:
    return open_vectors(Path(settings.home), partial(embedding_endpoint, settings))


def purge_indexes(settings: Settings, scope: str, path: str | None = None) -> None:
    """Leave no word of a memory, or of a whole scope, in any index. Blocks."""
    folders, vectors = memory_folders(settings), _vectors(settings)
    memory_setup.purge_indexes(
        Path(settings.home), folders, scope, path, lambda file: open_passages(file, vectors)
    )


def open_store_passages(settings: Settings) -> PassageIndex:
    """Of the memory stores of the service: in its database if that is PostgreSQL. Blocks."""
    vectors = _vectors(settings)
    if is_postgres(settings.store):  # by name: an extra, and long to import
        postgres = import_module("mainspring.retrieval.postgres_passages")
        return PassageIndex(postgres.PostgresPassages(settings.store), vectors=vectors)
    path = index_file(Path(settings.home), settings.store, kind="stores")
    return open_passages(path, vectors)


def open_utility_table(settings: Settings) -> UtilityTable:
    """Derived from the logs of one store. Blocks."""
    return UtilityTable(index_file(Path(settings.home), settings.store, kind="utility"))
