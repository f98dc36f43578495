"""`/memory` in chat: the memories of the agent and the user, and whether the session uses them."""

from __future__ import annotations

from dataclasses import replace

from mainspring.config import Settings
from mainspring.core.errors import InvalidInput
from mainspring.core.events import SessionUpdated
from mainspring.edges.cli.memories import memory, memory_proposals, memory_usage
from mainspring.edges.cli.render.printing import Screen
from mainspring.runtime.agent import Agent
from mainspring.runtime.memory.memory_mode import (
    MEMORY_MODES,
    MemoryMode,
    read_memory_mode,
    with_memory_mode,
)
from mainspring.runtime.session.session import Session
from mainspring.runtime.session.session_updates import read_metadata, record_updates

USAGE = (
    "/memory [ls], show|edit|forget PATH, search QUERY, add TEXT, proposals, accept|reject ID,"
    " on|read_only|off"
)
_NAME_WORDS = 8  # of a note's text that become its name


async def run_memory_command(
    settings: Settings, notes: Screen, agent: Agent, session: Session | None, arguments: str
) -> Agent:
    """Returns the agent to continue with; it differs if the user has changed the memory mode.

    Raises:
        InvalidInput: there is no such command, or the memory cannot be written.
        NotFound: there is no such memory.
    """
    word, _, text = arguments.partition(" ")
    text = text.strip()
    if word in MEMORY_MODES and not text:
        mode = read_memory_mode(word)
        if session is not None:
            await _record(session, mode)
        notes.paragraph((f"memory is {mode} from the next message on", "dim"))
        return replace(agent, memory=mode)
    if word in ("", "ls"):
        await memory.ls(settings)
        notes.paragraph((f"memory is {agent.memory} in this session; {USAGE}", "dim"))
        return agent
    if word == "proposals":
        await memory_proposals.proposals_(settings)
        return agent
    if not text:
        raise InvalidInput(USAGE)
    await _run(settings, word, text)
    return agent


async def _record(session: Session, mode: MemoryMode) -> None:
    """Record the mode in the session, so that other processes use it too."""
    metadata = with_memory_mode(await read_metadata(session.log, session.id), mode)
    await session.submit(SessionUpdated(metadata=metadata))
    await record_updates(session.log, session.id)


async def _run(settings: Settings, word: str, text: str) -> None:
    match word:
        case "show":
            await memory.show(settings, path=text)
        case "search":
            await memory.search(settings, query=text)
        case "edit":
            await memory.edit(settings, path=text)
        case "forget":
            await memory_usage.forget(settings, path=text)
        case "accept":
            await memory_proposals.accept_(settings, id=text)
        case "reject":
            await memory_proposals.reject_(settings, id=text)
        case "add":
            name = " ".join(text.split()[:_NAME_WORDS])
            await memory.add(settings, memory=memory.NewMemory(text=text, name=name))
        case _:
            raise InvalidInput(USAGE)
