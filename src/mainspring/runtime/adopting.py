"""The agent that a session began with: it keeps to it, whatever becomes of the files."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from mainspring.core.envelope import KnownPayload
from mainspring.core.facts import AgentAdopted
from mainspring.runtime.agent import Agent
from mainspring.runtime.folder.definition import Definition, agent_of, definition_of
from mainspring.runtime.kit import Opening


async def adopted(opening: Opening) -> tuple[Agent, tuple[KnownPayload, ...]]:
    """Who the agent is in this session, and what the log has to know of it.

    Model, limits and tools that are code are the caller's word each time; all else is kept.
    """
    given, known = opening.agent, opening.thread.gear.definition
    if known is not None:
        definition = msgspec.json.decode(await opening.log.blob(known), type=Definition)
        kept = replace(
            agent_of(definition),
            model=given.model,
            limits=given.limits,
            tools=given.tools,
            client_tools=given.client_tools,
        )
        return kept, ()
    if given.version is None:
        return given, ()
    content = msgspec.json.encode(definition_of(given))
    blob = await opening.writer.put_blob(content, media_type="application/json")
    return given, (AgentAdopted(definition=blob.hash, version=given.version),)
