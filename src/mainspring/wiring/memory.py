"""The memories that a person or a session can use: the agent's in its folder, and the user's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from mainspring.capabilities.tools.html_text import html_to_text
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.config import Settings, is_postgres
from mainspring.core import clock, ids
from mainspring.core.tool import Tool
from mainspring.harness.permissions.policy import remove_denied
from mainspring.log.provenance import Provenance
from mainspring.retrieval.passage_index import PassageIndex
from mainspring.runtime import memory_setup
from mainspring.runtime.knowledge.knowledge_folder import KnowledgeFolder
from mainspring.runtime.knowledge.knowledge_tool import knowledge_tool
from mainspring.runtime.memory.memory_files import ContentSeal
from mainspring.runtime.memory.memory_folder import FolderOptions, MemoryFolder
from mainspring.runtime.memory.memory_mode import MemoryMode, strictest_memory
from mainspring.runtime.memory.memory_quota import read_quota, read_wake_up_tokens
from mainspring.runtime.memory.memory_tools import memory_tools
from mainspring.runtime.memory.recall import Recall, utility_reader
from mainspring.runtime.memory.search.index_files import IndexFiles
from mainspring.runtime.memory.search.vector_settings import open_vectors, set_vectors
from mainspring.runtime.memory.session_memory import TEAM, WAKE_UP_TOKENS, SessionMemory
from mainspring.runtime.memory_setup import AGENT, USER, MemorySources
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import memory_places
from mainspring.runtime.session_context import Models, SetupRequest
from mainspring.runtime.utility.utility_table import UtilityTable
from mainspring.wiring.providers import embedding_endpoint
from mainspring.wiring.settings_files import load_policy
from mainspring.wiring.user_vault import known_secrets, store_key, user_vault


def memory_folders(settings: Settings, own: Path | None = None) -> dict[str, MemoryFolder]:
    """The folders by scope; `own`: the only one to use."""
    scrub = Scrubber(known_secrets(settings))

    def refuse(text: str) -> str | None:
        content = text.encode(errors="replace")
        return None if scrub(content) == content else "it contains a secret, which memory must not"

    places = memory_places(Path(settings.folder), Path(settings.home))
    quota, seal = read_quota(settings.environment), memory_seal(settings)
    provenance = cache(lambda: Provenance(store_key(settings)))
    return {
        scope: MemoryFolder(
            place,
            clock=clock.now,
            new_id=ids.new_id,
            refuse=refuse,
            options=FolderOptions(
                quota=quota,
                index_above=own is None and scope == AGENT,
                content_seal=seal,
                is_of_person=scope == USER,
                provenance=provenance,
            ),
        )
        for scope, place in zip(
            (AGENT, USER, TEAM), places if own is None else (own,), strict=False
        )
    }


def memory_seal(settings: Settings) -> ContentSeal:
    """Seals with the key of the vault, which is read at the first use."""
    open_seal = cache(user_vault(settings).open_seal)
    return ContentSeal(
        seal=lambda plain: open_seal().seal(plain, "memory"),
        unseal=lambda sealed: open_seal().unseal(sealed, "memory"),
    )


def memory_sources(settings: Settings) -> MemorySources:
    return MemorySources(
        open_folders=lambda workspace, own: memory_folders(
            replace(settings, folder=str(workspace)), own
        ),
        indexes=index_files(settings),
        clock=clock.now,
        wake_up_tokens=read_wake_up_tokens(settings.environment, WAKE_UP_TOKENS),
    )


def index_files(settings: Settings) -> IndexFiles:
    home = Path(settings.home)
    return IndexFiles(home, lambda: open_vectors(home, partial(embedding_endpoint, settings)))


def served_memory(
    settings: Settings, options: RunOptions, modes: Sequence[MemoryMode], client: str
) -> dict[str, Tool]:
    """The memory tools of an MCP client. A rule that denies a tool removes it."""
    workspace = Path(settings.folder, options.workspace or ".")
    memory = memory_sources(settings).of_client(
        workspace, strictest_memory(*modes), f"mcp:{client}", options.warn
    )
    policy = load_policy(workspace, home=Path(settings.home)).policy
    return {} if memory is None else remove_denied(memory_tools(memory), policy)


def session_recall(
    settings: Settings, setup: SetupRequest, models: Models, memory: SessionMemory
) -> Recall:
    model = settings.environment.get("MAINSPRING_RECALL_MODEL")
    utility = utility_reader(setup.log, partial(open_utility_table, settings))
    caption = settings.environment.get("MAINSPRING_CAPTION_MODEL")
    return memory_setup.session_recall(
        setup, models, memory, utility, model=model, caption_model=caption
    )


def knowledge_folder(settings: Settings, workspace: Path) -> KnowledgeFolder:
    root = workspace / "knowledge"
    open_index = partial(index_files(settings).open_passages, "knowledge", str(root.resolve()))
    return KnowledgeFolder(root, open_index, html_to_text)


def knowledge_tools(settings: Settings, setup: SetupRequest, workspace: Path) -> dict[str, Tool]:
    """The knowledge tools by name."""
    folder = knowledge_folder(settings, workspace)
    if setup.options.is_served or not folder.is_present:
        return {}
    return {"knowledge_search": knowledge_tool(folder)}


def set_memory_vectors(settings: Settings, source: str) -> None:
    """Blocks. Raises: InvalidInput, ProviderFailed."""
    set_vectors(Path(settings.home), source, partial(embedding_endpoint, settings))


def open_store_passages(settings: Settings) -> PassageIndex:
    """The passages of the service's memory stores: in its database if that is PostgreSQL.
    Blocks."""
    files = index_files(settings)
    if is_postgres(settings.store):  # by name: an optional extra that is slow to import
        postgres = import_module("mainspring.retrieval.postgres_passages")
        passages = postgres.PostgresPassages(settings.store)
        return PassageIndex(passages, vectors=files.open_vectors())
    return files.open_passages("stores", settings.store)


def open_utility_table(settings: Settings) -> UtilityTable:
    """The utility table of one store, derived from its logs. Blocks."""
    return UtilityTable(index_files(settings).file("utility", settings.store))
