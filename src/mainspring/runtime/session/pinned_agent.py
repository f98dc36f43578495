"""The agent that a session began with, stored in its log: the session keeps using it when the files
change."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from msgspec import Struct, field

from mainspring.core.envelope import event_types, message_text
from mainspring.core.events import AgentAdopted, KnownPayload, UserMessage
from mainspring.core.model import Effort
from mainspring.harness.answer_checks import AnswerCheck
from mainspring.harness.limits import Limits
from mainspring.log.provenance import OwnLog
from mainspring.log.session_log import SessionLog
from mainspring.log.upcast import read_payload
from mainspring.runtime.agent import Agent, AgentSubagent
from mainspring.runtime.run_options import RunOptions
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
    """Subagents and checks that are code are left out: like tools, the caller passes them again."""
    subagents = [item for item in agent.subagents if not isinstance(item, AgentSubagent)]
    checks = [item for item in agent.checks if isinstance(item, AnswerCheck)]
    plain = replace(agent, subagents=subagents, checks=checks)
    return msgspec.convert(plain, AgentDefinition, from_attributes=True)


def agent_of(definition: AgentDefinition) -> Agent:
    return Agent(**msgspec.structs.asdict(definition))


def with_choices(agent: Agent, options: RunOptions) -> Agent:
    """The agent with the instructions and tools that the caller chose, if any."""
    text = agent.instructions if options.instructions is None else options.instructions
    if options.more_instructions and not text.endswith(options.more_instructions):
        text = f"{text}\n\n{options.more_instructions}".strip()
    built_ins = agent.built_ins if options.built_ins is None else options.built_ins
    return replace(agent, instructions=text, built_ins=built_ins)


async def _decode(own_log: OwnLog, log: SessionLog, digest: str) -> AgentDefinition:
    """`own_log` proves that the instructions and rules are our own."""
    del own_log
    return msgspec.json.decode(await log.blob(digest), type=AgentDefinition)


async def pin_agent(setup: SetupRequest, *, window: int) -> tuple[Agent, tuple[KnownPayload, ...]]:
    """The agent of this session, and the facts for its log. Model, limits, memory, tools that are
    code and the choices in its options come from the caller each time; everything else is pinned.
    `window`: the model's context window in tokens, which limits how many skills are listed."""
    agent, digest = setup.agent, setup.thread.session_state.definition
    if digest is not None and not setup.options.ignores_pinned_agent:
        definition = await _decode(setup.writer.own_log, setup.log, digest)
        code = [item for item in agent.subagents if isinstance(item, AgentSubagent)]
        functions = [item for item in agent.checks if not isinstance(item, AnswerCheck)]
        pinned = replace(
            agent_of(definition),
            model=agent.model,
            limits=agent.limits,
            tools=agent.tools,
            client_tools=agent.client_tools,
            output_type=agent.output_type,
            output_retries=agent.output_retries,
            hooks=agent.hooks,
            memory=agent.memory,
            learning=agent.learning,
            subagents=[*definition.subagents, *code],
            checks=[*definition.checks, *functions],
            handoffs=agent.handoffs,
            folder=agent.folder,
        )
        return with_choices(pinned, setup.options), ()
    is_too_long = bool(agent.skills) and exceeds_window(agent.skills, window=window)
    if agent.version is None:
        skills = fit_to_window(agent.skills, window=window) if is_too_long else agent.skills
        return replace(agent, skills=skills), ()
    if is_too_long:
        counts = {name: use.uses for name, use in (await read_skill_usage(setup.log)).items()}
        query = await _first_message(setup)
        skills = fit_to_window(agent.skills, window=window, uses=counts, query=query)
        agent = replace(agent, skills=skills)
    content = msgspec.json.encode(definition_of(agent))
    blob = await setup.writer.put_blob(content, media_type="application/json")
    return agent, (AgentAdopted(definition=blob.hash, version=agent.version),)


async def _first_message(setup: SetupRequest) -> str:
    """The first message of the session, if it waits in the inbox."""
    types = event_types(UserMessage)
    session_id = setup.writer.session_id
    items = await setup.log.store.pending(session_id, types=types, limit=1)
    return "".join(message_text(read_payload(i.type, i.body, i.version)) for i in items)
