"""The agent that a session began with, as data: it is stored in the log, and the session keeps
to it when the files change.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
from msgspec import Struct, field

from mainspring.core.envelope import event_types, message_text
from mainspring.core.events import AgentAdopted, KnownPayload, UserMessage
from mainspring.core.model import Effort
from mainspring.harness.answer_checks import AnswerCheck
from mainspring.harness.limits import Limits
from mainspring.log.upcast import read_payload
from mainspring.runtime.agent import Agent, AgentSubagent
from mainspring.runtime.session_context import SetupRequest
from mainspring.runtime.skills.catalogue import exceeds_window, fit_to_window
from mainspring.runtime.skills.skill import Skill
from mainspring.runtime.skills.skill_usage import read_skill_usage
from mainspring.runtime.subagent import Subagent


class AgentDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of an `Agent` that the log keeps; the caller passes tools that are code again."""

    name: str
    description: str = ""
    instructions: str = ""
    model: str = "default"
    effort: Effort = "none"
    built_ins: tuple[str, ...] = field(default=(), name="tools")
    rules: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    subagents: tuple[Subagent, ...] = ()
    skills: tuple[Skill, ...] = ()
    max_depth: int = 2
    max_at_once: int = 20
    is_coordinator: bool = False
    checks: tuple[AnswerCheck, ...] = ()
    require_evidence: tuple[str, ...] = ()
    version: str | None = None


def definition_of(agent: Agent) -> AgentDefinition:
    """Subagents that are code are the caller's word each time, as tools are."""
    stored = [item for item in agent.subagents if not isinstance(item, AgentSubagent)]
    checks = [item for item in agent.checks if isinstance(item, AnswerCheck)]
    plain = replace(agent, subagents=stored, checks=checks)
    return msgspec.convert(plain, AgentDefinition, from_attributes=True)


def agent_of(definition: AgentDefinition) -> Agent:
    return Agent(**msgspec.structs.asdict(definition))


async def pin_agent(setup: SetupRequest, *, window: int) -> tuple[Agent, tuple[KnownPayload, ...]]:
    """Who the agent is in this session, and what the log has to know of it.

    Model, limits, memory and tools that are code are the caller's word each time; all else is kept.
    `window` is the model's, in tokens: of many skills, only some are listed.
    """
    given, known = setup.agent, setup.thread.session_state.definition
    if known is not None:
        definition = msgspec.json.decode(await setup.log.blob(known), type=AgentDefinition)
        kept = replace(
            agent_of(definition),
            model=given.model,
            limits=given.limits,
            tools=given.tools,
            client_tools=given.client_tools,
            output_type=given.output_type,
            output_retries=given.output_retries,
            hooks=given.hooks,
            memory=given.memory,
        )
        code = [item for item in given.subagents if isinstance(item, AgentSubagent)]
        functions = [item for item in given.checks if not isinstance(item, AnswerCheck)]
        return replace(
            kept,
            subagents=[*kept.subagents, *code],
            checks=[*kept.checks, *functions],
            handoffs=given.handoffs,
            folder=given.folder,
        ), ()
    is_too_long = bool(given.skills) and exceeds_window(given.skills, window=window)
    if given.version is None:
        listed = fit_to_window(given.skills, window=window) if is_too_long else given.skills
        return replace(given, skills=listed), ()
    if is_too_long:
        counts = {name: use.uses for name, use in (await read_skill_usage(setup.log)).items()}
        query = await _first_message(setup)
        listed = fit_to_window(given.skills, window=window, uses=counts, query=query)
        given = replace(given, skills=listed)
    content = msgspec.json.encode(definition_of(given))
    blob = await setup.writer.put_blob(content, media_type="application/json")
    return given, (AgentAdopted(definition=blob.hash, version=given.version),)


async def _first_message(setup: SetupRequest) -> str:
    """The first message of the session, if it waits in the inbox."""
    types = event_types(UserMessage)
    session_id = setup.writer.session_id
    items = await setup.log.store.pending(session_id, types=types, limit=1)
    return "".join(message_text(read_payload(i.type, i.body, i.version)) for i in items)
