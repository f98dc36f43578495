"""The agent that a session began with: it keeps to it, whatever becomes of the files."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from mainspring.core.envelope import KnownPayload, message_text
from mainspring.core.events import UserMessage
from mainspring.core.facts import AgentAdopted
from mainspring.log.upcast import read_payload
from mainspring.runtime.agent import Agent
from mainspring.runtime.folder.definition import Definition, agent_of, definition_of
from mainspring.runtime.kit import Opening
from mainspring.runtime.skills.catalogue import is_over, with_room
from mainspring.runtime.skills.usage import usage


async def adopted(opening: Opening, *, window: int) -> tuple[Agent, tuple[KnownPayload, ...]]:
    """Who the agent is in this session, and what the log has to know of it.

    Model, limits and tools that are code are the caller's word each time; all else is kept.
    `window` is the model's, in tokens: of many skills, only some are listed.
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
        return replace(given, skills=with_room(given.skills, window=window)), ()
    if is_over(given.skills, window=window):
        counts = {name: use.uses for name, use in (await usage(opening.log)).items()}
        query = await _first_message(opening)
        listed = with_room(given.skills, window=window, uses=counts, query=query)
        given = replace(given, skills=listed)
    content = msgspec.json.encode(definition_of(given))
    blob = await opening.writer.put_blob(content, media_type="application/json")
    return given, (AgentAdopted(definition=blob.hash, version=given.version),)


async def _first_message(opening: Opening) -> str:
    """What the session begins with, if that waits in its inbox."""
    types = frozenset((str(UserMessage.__struct_config__.tag),))
    session_id = opening.writer.session_id
    items = await opening.log.store.pending(session_id, types=types, limit=1)
    return "".join(message_text(read_payload(i.type, i.body, i.version)) for i in items)
