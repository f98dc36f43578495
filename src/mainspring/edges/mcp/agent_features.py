"""Agents, their sessions and approvals as tools and resources of an MCP server."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias, cast

import anyio
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.capabilities.mcp.protocol.messages import (
    SKILLS_EXTENSION,
    ResourceContent,
    ResourceTemplate,
    Text,
    ToolAnnotations,
    ToolDefinition,
)
from mainspring.capabilities.mcp.server.exchange import Exchange
from mainspring.capabilities.mcp.server.features import (
    CompletionRequest,
    FeatureChangeFeed,
    ToolReply,
    no_tool,
)
from mainspring.capabilities.mcp.server.refusals import no_resource
from mainspring.core.errors import Forbidden, InvalidInput, NotFound, StaleVersion
from mainspring.edges.mcp.agent_host import AgentHost, PendingApproval, PublishedAgent, RunReport
from mainspring.edges.mcp.memory_features import SERVED, MemoryFeatures
from mainspring.edges.mcp.skill_features import SkillFeatures
from mainspring.function_tools.json_schema import schema_problems
from mainspring.log.task_groups import unwrap_single_error

INSTRUCTIONS = (
    "Each agent is a tool. Pass a message, and the agent works until it is done. The result has a"
    " session_id; pass it to continue the session. If a call of the agent needs approval,"
    " a person is asked."
)
_MAX_CHARS = 100_000
"""The length of the part of a transcript in one result."""
_SESSION_URI = "mainspring://sessions/"
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)
_Page: TypeAlias = Annotated[int, Meta(ge=1, le=100)]
_Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200_000)]


class RunInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message: Annotated[_Text, Meta(description="What the agent should do.")] | UnsetType = UNSET
    session_id: (
        Annotated[
            str,
            Meta(
                description="Continue this session. Without a message, it resumes where it stopped."
            ),
        ]
        | UnsetType
    ) = UNSET


class ListInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    agent: Annotated[str, Meta(description="Only sessions of this agent.")] | UnsetType = UNSET
    limit: _Page = 20


class ReadInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: str
    offset: Annotated[int, Meta(ge=0, description="The first character to read.")] = 0


class SearchInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query: Annotated[_Text, Meta(description="Words that must all occur.")]
    limit: _Page = 20


class ApprovalsInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    session_id: str | UnsetType = UNSET


class AnswerInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    approval_id: str
    result: Literal["allow", "deny"]
    message: Annotated[_Text, Meta(description="Why you deny it, for the agent.")] | UnsetType = (
        UNSET
    )


class AgentFeatures:
    """`Features` over an `AgentHost`: one tool for each agent, and tools for their sessions."""

    def __init__(self, host: AgentHost) -> None:
        self.changes = FeatureChangeFeed()
        self._host = host
        self._skills = SkillFeatures(host.skills)
        self.resources = self._skills.resources
        self.skills = self._skills.skills
        self.prompts = self._skills.prompts
        self.get_prompt = self._skills.get_prompt
        self._memory = MemoryFeatures(host.memory_tools)
        self._tools: dict[str, tuple[ToolDefinition, _Handler]] = {
            definition.name: (definition, handler)
            for definition, handler in (
                (_definition("list_sessions", _LIST, ListInput), self._list),
                (_definition("read_session", _READ, ReadInput), self._read),
                (_definition("search_sessions", _SEARCH, SearchInput), self._search),
                (_definition("list_approvals", _APPROVALS, ApprovalsInput), self._approvals),
            )
        }
        if host.may_answer:
            answer = _definition("answer_approval", _ANSWER, AnswerInput, _RUNS)
            self._tools[answer.name] = (answer, self._answer)

    @property
    def capabilities(self) -> Mapping[str, Mapping[str, object]]:
        return {
            "tools": {},
            "resources": {},
            "prompts": {},
            "completions": {},
            "extensions": {SKILLS_EXTENSION: {}},
        }

    async def tools(self) -> Sequence[ToolDefinition]:
        agents = await self._agents() if self._host.may_run else {}
        runs = [_agent_tool(name, agent) for name, agent in agents.items()]
        own = [definition for definition, _ in self._tools.values()]
        return [*runs, *own, *self._memory.definitions()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, object], exchange: Exchange
    ) -> ToolReply:
        """Errors of a call are returned as text for the model that made it."""
        try:
            if name in self._tools:
                return await self._tools[name][1](arguments, exchange)
            if self._memory.has(name):
                return await self._memory.call(name, arguments, exchange)
            agents = await self._agents() if self._host.may_run else {}
            if name not in agents:
                raise no_tool(name)
            return await self._run(agents[name], arguments, exchange)
        except msgspec.ValidationError as error:
            return ToolReply.text(f"The input is not valid: {error}", is_error=True)
        except (Forbidden, InvalidInput, NotFound, StaleVersion) as error:
            return ToolReply.text(str(error), is_error=True)

    async def resource_templates(self) -> Sequence[ResourceTemplate]:
        return [
            ResourceTemplate(
                uri_template=f"{_SESSION_URI}{{session_id}}",
                name="session",
                description="The messages and tool calls of a session, as Markdown.",
                mime_type="text/markdown",
            )
        ]

    async def read_resource(self, uri: str, exchange: Exchange) -> Sequence[ResourceContent]:
        if uri.startswith(_SESSION_URI):
            try:
                text = await self._host.transcript(uri.removeprefix(_SESSION_URI))
            except NotFound:
                raise no_resource(uri, exchange.client.era) from None
            return [ResourceContent(uri=uri, mime_type="text/markdown", text=text)]
        return await self._skills.read_resource(uri, exchange)

    async def complete(self, request: CompletionRequest) -> Sequence[str]:
        if request.is_prompt or request.argument != "session_id":
            return []
        lines = await self._host.sessions(agent=None, limit=100)
        return [line.session_id for line in lines if line.session_id.startswith(request.value)]

    # Tools

    async def _run(
        self, agent: PublishedAgent, arguments: Mapping[str, object], exchange: Exchange
    ) -> ToolReply:
        params = _run_input(agent, arguments)
        session_id = exchange.note.decode()
        if not session_id:  # else the client repeats a request whose session has begun
            session_id = await self._begin(agent, params)
        while True:
            report = await self._run_with_progress(agent, session_id, exchange)
            if report.status != "requires_action":
                return _reply(report)
            waiting = await self._host.approvals(session_id)
            answerable = [item for item in waiting if item.is_yours]
            if not answerable or not exchange.can_ask():
                return _reply(report, waiting)
            for item in answerable:
                await self._ask_person(item, session_id, exchange)

    async def _begin(self, agent: PublishedAgent, params: RunInput) -> str:
        if isinstance(params.session_id, UnsetType):
            if isinstance(params.message, UnsetType):
                raise InvalidInput("pass a message, a session_id, or both")
            return await self._host.begin(agent.id, params.message)
        if not isinstance(params.message, UnsetType):
            await self._host.send(agent.id, params.session_id, params.message)
        return params.session_id

    async def _ask_person(
        self, approval: PendingApproval, session_id: str, exchange: Exchange
    ) -> None:
        """Ask the person behind the client; without an answer, the call is denied."""
        reason = f"\n{approval.reason}" if approval.reason else ""
        question = f"Allow {approval.tool}?\n{approval.what[:4_000]}{reason}"
        answer = await exchange.elicit(
            approval.id, question, _DECISION_FORM, note=session_id.encode()
        )
        is_allowed = answer.action == "accept" and answer.content.get("decision") == "allow"
        message = answer.content.get("message")
        await self._host.answer(
            approval.id,
            "allow" if is_allowed else "deny",
            message if isinstance(message, str) and message and not is_allowed else None,
        )

    async def _run_with_progress(
        self, agent: PublishedAgent, session_id: str, exchange: Exchange
    ) -> RunReport:
        steps, received = anyio.create_memory_object_stream[str](math.inf)
        steps.send_nowait(f"session {session_id}")

        async def send_steps() -> None:
            async for text in received:
                await exchange.step(text)

        reports: list[RunReport] = []
        with unwrap_single_error():
            async with anyio.create_task_group() as group:
                group.start_soon(send_steps)
                with steps:
                    reports += [await self._host.run(agent.id, session_id, steps.send_nowait)]
        return reports[0]

    async def _list(self, arguments: Mapping[str, object], _exchange: Exchange) -> ToolReply:
        params = msgspec.convert(arguments, ListInput)
        lines = await self._host.sessions(agent=params.agent or None, limit=params.limit)
        return _structured({"sessions": lines})

    async def _read(self, arguments: Mapping[str, object], _exchange: Exchange) -> ToolReply:
        params = msgspec.convert(arguments, ReadInput)
        text = await self._host.transcript(params.session_id)
        end = params.offset + _MAX_CHARS
        more = f"\n\n(to read on, use the offset {end})" if end < len(text) else ""
        return ToolReply.text(
            f"{text[params.offset : end]}{more}" or "(the session has no text at this offset)"
        )

    async def _search(self, arguments: Mapping[str, object], _exchange: Exchange) -> ToolReply:
        params = msgspec.convert(arguments, SearchInput)
        hits = await self._host.search(params.query, limit=params.limit)
        return _structured({"hits": hits})

    async def _approvals(self, arguments: Mapping[str, object], _exchange: Exchange) -> ToolReply:
        params = msgspec.convert(arguments, ApprovalsInput)
        return _structured({"approvals": await self._host.approvals(params.session_id or None)})

    async def _answer(self, arguments: Mapping[str, object], _exchange: Exchange) -> ToolReply:
        params = msgspec.convert(arguments, AnswerInput)
        await self._host.answer(params.approval_id, params.result, params.message or None)
        word = "Allowed" if params.result == "allow" else "Denied"
        return ToolReply.text(f"{word}. To continue, run the agent with its session_id.")

    async def _agents(self) -> dict[str, PublishedAgent]:
        """The agents by the names of their tools; a number is appended if a name is taken."""
        tools: dict[str, PublishedAgent] = {}
        for agent in await self._host.agents():
            base = re.sub(r"[^A-Za-z0-9_-]", "_", agent.name)[:56] or "agent"
            name, number = base, 2
            while name in tools or name in _RESERVED:
                name, number = f"{base}_{number}", number + 1
            tools[name] = agent
        return tools


_Handler: TypeAlias = Callable[[Mapping[str, object], Exchange], Awaitable[ToolReply]]
_RESERVED = frozenset(
    (
        *("list_sessions", "read_session", "search_sessions", "list_approvals"),
        *("answer_approval", *SERVED),
    )
)
_LIST = "List sessions of the agents, the newest first."
_READ = "Read the messages and tool calls of a session, as Markdown."
_SEARCH = "Search the messages of all sessions."
_APPROVALS = "List tool calls of sessions that wait for a person to allow or deny them."
_ANSWER = (
    "Allow or deny a tool call that waits. A person must decide: ask the user before you call this."
)
_DECISION_FORM: dict[str, object] = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["allow", "deny"], "title": "Decision"},
        "message": {
            "type": "string",
            "title": "Reason",
            "description": "The agent reads it if you deny the call.",
        },
    },
    "required": ["decision"],
}


def _agent_tool(name: str, agent: PublishedAgent) -> ToolDefinition:
    definition = _definition(name, _agent_text(agent), RunInput, _RUNS)
    if agent.input_schema is None:
        return definition
    own = cast("dict[str, object]", agent.input_schema.get("properties", {}))
    default_properties = cast("dict[str, object]", definition.input_schema["properties"])
    properties = {**own, "session_id": default_properties["session_id"]}
    schema = {**agent.input_schema, "properties": properties}
    return msgspec.structs.replace(definition, input_schema=schema)


def _run_input(agent: PublishedAgent, arguments: Mapping[str, object]) -> RunInput:
    """The input of a run. For an agent with its own schema, the arguments become its message, as
    JSON.

    Raises: InvalidInput, msgspec.ValidationError.
    """
    if agent.input_schema is None:
        return msgspec.convert(arguments, RunInput)
    own = {name: value for name, value in arguments.items() if name != "session_id"}
    session = {"session_id": arguments["session_id"]} if "session_id" in arguments else {}
    if not own and session:
        return msgspec.convert(session, RunInput)
    if problems := list(schema_problems(own, dict(agent.input_schema))):
        raise InvalidInput(f"The input is not valid: {'; '.join(problems[:10])}")
    message = msgspec.json.format(msgspec.json.encode(own), indent=2).decode()
    return msgspec.convert({"message": message, **session}, RunInput)


def _agent_text(agent: PublishedAgent) -> str:
    what = agent.description or "An agent that works in its own folder."
    return (
        f"{what[:1_500]} Runs until it is done or needs approval; returns its text and session_id."
    )


def _definition(
    name: str, description: str, input_: type[Struct], annotations: ToolAnnotations = _READS
) -> ToolDefinition:
    _, components = msgspec.json.schema_components([input_])
    schema = {key: value for key, value in components[input_.__name__].items() if key != "title"}
    return ToolDefinition(
        name=name, description=description, input_schema=schema, annotations=annotations
    )


def _structured(content: dict[str, object]) -> ToolReply:
    encoded = msgspec.json.encode(content)
    return ToolReply(
        content=[Text(encoded.decode())], structured_content=msgspec.json.decode(encoded)
    )


def _reply(report: RunReport, waiting: Sequence[PendingApproval] = ()) -> ToolReply:
    fields: dict[str, object] = msgspec.to_builtins(report)
    lines = [report.text] if report.text else []
    if waiting:
        fields["waiting_for"] = [msgspec.to_builtins(item) for item in waiting]
        lines += ["Waiting for a person to allow or deny:"]
        lines += [f"- {item.tool}: {item.what[:500]} (approval {item.id})" for item in waiting]
    elif report.status not in ("completed", "compacted"):
        lines += [f"The run ended: {report.status}. {report.detail or ''}".strip()]
    lines += [f"(session {report.session_id})"]
    is_error = report.status in _FAILED
    return ToolReply(
        content=[Text("\n\n".join(lines))], structured_content=fields, is_error=is_error
    )


_FAILED = frozenset(("model_error", "failed", "terminated"))
