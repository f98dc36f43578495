"""Slash commands that work the same in every client.

A command is a function over a session's log that returns a value, which the client displays.
Commands that only a client can carry out (leave, start over) are listed here and implemented
there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Literal

import msgspec
from msgspec import Struct

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.envelope import event_types
from mainspring.core.errors import InvalidInput
from mainspring.core.events import (
    ClientPayload,
    CompactionRequested,
    PermissionUpdate,
    PermissionUpdated,
    UserMessage,
    UserToolConfirmation,
)
from mainspring.core.sender import Sender
from mainspring.harness.context.xray import token_breakdown
from mainspring.harness.permissions.always_allow import always_allow_rule, rule_update
from mainspring.harness.permissions.grant_state import GrantState, apply
from mainspring.harness.permissions.policy import Mode, parse_mode
from mainspring.harness.permissions.rule import rule_text
from mainspring.harness.permissions.rule_descriptions import MODE_DESCRIPTIONS
from mainspring.harness.state.thread_tree import ThreadNode, ThreadTree
from mainspring.log.session_log import SessionLog
from mainspring.log.upcast import read_payload
from mainspring.runtime.agent import Agent
from mainspring.runtime.command_results import (
    AgentsResult,
    AgentType,
    ContextResult,
    CostResult,
    PendingCallsResult,
    PendingCallView,
    SkillsResult,
    SlashCommandResult,
    SubmittedResult,
    TextResult,
    ThreadView,
)
from mainspring.runtime.feedback import Rating, feedback_on_last_message
from mainspring.runtime.session import session_summary
from mainspring.runtime.session.xrays import read_shots

_MODE_EVENT_TYPES = event_types(
    events.PolicyAdopted, events.PermissionUpdated, events.SessionReceived
)


async def mode_of(log: SessionLog, session_id: str) -> Mode:
    """The mode according to the log and the inbox."""
    grants, initial_mode = GrantState(), "default"
    for event in await log.read(session_id, types=_MODE_EVENT_TYPES):
        grants = apply(grants, event.payload)
        if isinstance(event.payload, events.PolicyAdopted):
            initial_mode = event.payload.mode
        elif isinstance(event.payload, events.SessionReceived):
            initial_mode = "default"
    for item in await log.store.pending(session_id):
        grants = apply(grants, read_payload(item.type, item.body, item.version))
    return grants.mode or parse_mode(initial_mode)


_COMMAND_PATTERN = re.compile(r"/(?P<name>[\w.:-]{0,128})(?P<arguments>\s.*)?$", re.DOTALL)
PROMPT_PREFIX = "mcp__"
"""A prompt of an MCP server: the session reads it from its own connection."""
PLAN_APPROVED_MESSAGE = "The plan is approved; carry it out."


class SlashCommand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    about: str
    hint: str = ""
    """The arguments, for display."""
    kind: Literal["built-in", "skill", "command"] = "built-in"
    is_clients: bool = False
    """The client runs it, because it concerns the client's own state."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.hint}".rstrip()


COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand(name="help", about="what can be typed", is_clients=True),
    SlashCommand(name="plan", hint="[WHAT]", about="plan: nothing is changed until you approve it"),
    SlashCommand(name="mode", hint="[MODE]", about="what may be done without asking"),
    SlashCommand(
        name="approve", hint="[N yes|no|always]", about="what waits for your answer, or give it"
    ),
    SlashCommand(
        name="agents", hint="[new NAME WHEN]", about="subagents: types and calls; write a new one"
    ),
    SlashCommand(name="skills", about="skills and commands of this agent"),
    SlashCommand(name="context", about="the parts of the last request"),
    SlashCommand(name="compact", hint="[WHAT TO KEEP]", about="summarize older messages"),
    SlashCommand(name="cost", about="tokens and cost of the session so far"),
    SlashCommand(name="good", hint="[WHY]", about="rate the last reply: it was good"),
    SlashCommand(name="bad", hint="[WHY]", about="rate the last reply: it was bad"),
    SlashCommand(
        name="mcp",
        hint="[WHAT SERVER]",
        about="MCP servers: tools, reconnect, enable, disable",
        is_clients=True,
    ),
    SlashCommand(
        name="memory",
        hint="[WHAT]",
        about="memories: ls, show, search, add, edit, forget; on, read_only, off",
        is_clients=True,
    ),
    SlashCommand(
        name="guide",
        hint="QUESTION",
        about="ask about Mainspring and this set-up, outside the session",
        is_clients=True,
    ),
    SlashCommand(name="model", hint="NAME", about="continue with another model", is_clients=True),
    SlashCommand(
        name="resume", hint="[SESSION]", about="continue another session", is_clients=True
    ),
    SlashCommand(
        name="rewind", hint="[N]", about="go back to before a message, files too", is_clients=True
    ),
    SlashCommand(name="diff", about="what this session changed in files", is_clients=True),
    SlashCommand(
        name="export", hint="[FILE]", about="write it to .md, .html or .jsonl", is_clients=True
    ),
    SlashCommand(name="fork", about="continue in a copy of this session", is_clients=True),
    SlashCommand(name="clear", about="start over: a new session of this agent", is_clients=True),
    SlashCommand(name="init", about="have the agent write or improve AGENTS.md", is_clients=True),
    SlashCommand(
        name="review", hint="[WHAT]", about="have the agent review your changes", is_clients=True
    ),
    SlashCommand(name="config", about="the settings that apply here", is_clients=True),
    SlashCommand(name="permissions", about="the rules that apply here", is_clients=True),
    SlashCommand(name="hooks", about="the hooks that apply here", is_clients=True),
    SlashCommand(
        name="add-dir",
        hint="FOLDER",
        about="let file tools work in another folder",
        is_clients=True,
    ),
    SlashCommand(name="effort", hint="[LEVEL]", about="how much the model thinks", is_clients=True),
    SlashCommand(name="output-style", hint="[NAME]", about="how the agent writes", is_clients=True),
    SlashCommand(name="todos", about="the agent's list of tasks", is_clients=True),
    SlashCommand(name="bashes", about="your commands in the background", is_clients=True),
    SlashCommand(name="vim", about="keys of vi, or of Emacs again", is_clients=True),
    SlashCommand(name="doctor", about="check this machine", is_clients=True),
    SlashCommand(name="exit", about="leave", is_clients=True),
)
ALIASES = {"usage": "cost", "quit": "exit", "checkpoint": "rewind", "reset": "clear",
           "new": "clear", "allowed-tools": "permissions", "tasks": "bashes",
           "settings": "config"}  # fmt: skip
"""Other programs' names for these commands, unless the agent has a command of that name."""


class ParsedSlashCommand(Struct, frozen=True):
    name: str
    arguments: str


def parse_command(message: str) -> ParsedSlashCommand | None:
    """Parse a message as a command; a message that starts with `//` or a path is not one."""
    match = _COMMAND_PATTERN.match(message)
    return (
        None
        if match is None
        else ParsedSlashCommand(match["name"], (match["arguments"] or "").strip())
    )


def named_command(command: ParsedSlashCommand | None, agent: Agent) -> ParsedSlashCommand | None:
    """The command under our own name, if it has one of `ALIASES`."""
    if command is None or command.name not in ALIASES:
        return command
    if any(skill.name == command.name for skill in agent.skills):
        return command
    return ParsedSlashCommand(ALIASES[command.name], command.arguments)


def unescape_message(message: str) -> str:
    """The text of a message that is not a command."""
    return message[1:] if message.startswith("//") else message


REPLACEABLE = frozenset(("init", "review"))
"""Commands that are only a message to the agent: a skill of that name is used instead."""


def available_commands(agent: Agent) -> list[SlashCommand]:
    """The built-in commands, then the agent's, which replace none but those of `REPLACEABLE`."""
    own_names = {skill.name for skill in agent.skills if skill.for_user}
    built_in = [item for item in COMMANDS if item.name not in REPLACEABLE & own_names]
    built_in_names = {command.name for command in built_in}
    skill_commands = [
        SlashCommand(
            name=skill.name,
            about=skill.description.partition("\n")[0],
            hint=skill.argument_hint,
            kind=skill.kind,
        )
        for skill in agent.skills
        if skill.for_user and skill.name not in built_in_names
    ]
    return [*built_in, *skill_commands]


def similar_names(name: str, commands: Iterable[SlashCommand]) -> list[str]:
    """Names that the user may have meant."""
    names = [command.name for command in commands]
    completions = [item for item in names if name and item.startswith(name)]
    alike = get_close_matches(name, names, n=3, cutoff=0.7)
    return list(dict.fromkeys((*completions, *alike)))[:3]


class CommandContext(Struct, frozen=True, kw_only=True):
    """Where a command runs."""

    log: SessionLog
    session_id: str
    agent: Agent
    sender: Sender
    """The user who runs it."""
    window: int | None = None
    """The context window of the agent's model, in tokens."""

    async def submit(self, *payloads: ClientPayload) -> tuple[str, ...]:
        """Appends events to the inbox and returns their ids."""
        items = [
            await self.log.submit(self.session_id, payload, sender=self.sender)
            for payload in payloads
        ]
        return tuple(item.event_id for item in items)


async def run_command(
    context: CommandContext, name: str, arguments: str = ""
) -> SlashCommandResult | None:
    """Run a built-in command; `None` if there is no such command, or if the client must run it.

    Raises:
        InvalidInput: the arguments are not valid; nothing was done.
    """
    handler = _HANDLERS.get(name)
    return None if handler is None else await handler(context, arguments.strip())


async def _compact(context: CommandContext, keep: str) -> SlashCommandResult:
    event_ids = await context.submit(CompactionRequested(instructions=keep or None))
    return SubmittedResult(
        text="older messages will be summarized", is_work=True, event_ids=event_ids
    )


async def _plan(context: CommandContext, task: str) -> SlashCommandResult:
    event_ids = await context.submit(
        mode_update("plan"), *([UserMessage(content=(TextBlock(task),))] if task else ())
    )
    text = f"mode plan: {MODE_DESCRIPTIONS['plan']}"
    return SubmittedResult(text=text, is_work=bool(task), event_ids=event_ids)


async def _mode(context: CommandContext, name: str) -> SlashCommandResult:
    if not name:
        mode = await mode_of(context.log, context.session_id)
        return TextResult(text=f"mode {mode}: {MODE_DESCRIPTIONS[mode]}")
    mode = parse_mode(name)
    if mode == "bubble":
        raise InvalidInput("bubble is a mode of subagents")
    event_ids = await context.submit(mode_update(mode))
    return SubmittedResult(text=f"mode {mode}: {MODE_DESCRIPTIONS[mode]}", event_ids=event_ids)


def mode_update(mode: str) -> PermissionUpdated:
    return PermissionUpdated(updates=(PermissionUpdate(type="setMode", mode=mode),))


async def _cost(context: CommandContext, _: str) -> SlashCommandResult:
    summary = await session_summary.summarize_session(
        context.log, await context.log.session(context.session_id)
    )
    return CostResult(turns=summary.turns, usage=summary.usage, cost_usd=str(summary.cost_usd))


async def _context(context: CommandContext, _: str) -> SlashCommandResult:
    shots = await read_shots(context.log, await context.log.session(context.session_id))
    if not shots:
        return TextResult(text="no model has been called yet")
    last = shots[-1]
    return ContextResult(
        model=last.request.model,
        parts=token_breakdown(last),
        messages=len(last.request.messages),
        window=context.window,
    )


async def _agents(context: CommandContext, _: str) -> SlashCommandResult:
    session = await context.log.session(context.session_id)
    thread_tree = ThreadTree.of(await context.log.read(session.id), session.thread_id)
    children = [node for node in thread_tree.nodes.values() if node.created_event is not None]
    return AgentsResult(
        types=agent_types(context.agent), threads=tuple(map(_thread_view, children))
    )


def agent_types(agent: Agent) -> tuple[AgentType, ...]:
    return msgspec.convert(agent.subagents, tuple[AgentType, ...], from_attributes=True)


def _thread_view(node: ThreadNode) -> ThreadView:
    thread = node.thread
    return ThreadView(
        id=node.id,
        agent=node.name,
        description=None if node.created_event is None else node.created_event.description,
        parent_id=node.parent_id,
        depth=node.depth,
        status="running" if thread.running else thread.last_reason or "waiting",
        turns=thread.turns,
        cost_usd=str(node.spend_account.spending.cost_usd),
    )


async def _skills(context: CommandContext, _: str) -> SlashCommandResult:
    return skills_of(context.agent)


def skills_of(agent: Agent) -> SkillsResult:
    return msgspec.convert(agent, SkillsResult, from_attributes=True)


async def _rate(rating: Rating, context: CommandContext, text: str) -> SlashCommandResult:
    feedback = await feedback_on_last_message(context.log, context.session_id, rating, text)
    event_ids = await context.submit(feedback)
    return SubmittedResult(text=f"rated {rating}: the {feedback.subject.type}", event_ids=event_ids)


async def _approve(context: CommandContext, arguments: str) -> SlashCommandResult:
    calls = await _pending_calls(context)
    if not arguments:
        return PendingCallsResult(calls=tuple(calls))
    call, verdict, reason = _answer(arguments, calls)
    if verdict == "no":
        denial = UserToolConfirmation(
            tool_use_id=call.id, result="deny", deny_message=reason or None
        )
        event_ids = await context.submit(denial)
        return SubmittedResult(text=f"{call.name} is denied", is_work=True, event_ids=event_ids)
    rule = always_allow_rule(call.name, call.input) if verdict == "always" else None
    if verdict == "always" and rule is None:
        raise InvalidInput(f"no rule is narrow enough for this {call.name}: say yes or no")
    answers: list[ClientPayload] = [UserToolConfirmation(tool_use_id=call.id, result="allow")]
    suffix = ""
    if rule is not None:
        answers.insert(0, PermissionUpdated(updates=(rule_update(rule),), tool_use_id=call.id))
        suffix = f", and {rule_text(rule)} from here on"
    event_ids = await context.submit(*answers)
    return SubmittedResult(
        text=f"{call.name} is allowed{suffix}", is_work=True, event_ids=event_ids
    )


def _answer(arguments: str, calls: Sequence[PendingCallView]) -> tuple[PendingCallView, str, str]:
    number, answer = "1", arguments
    if arguments.split(maxsplit=1)[0].isdigit():
        number, _, answer = arguments.partition(" ")
    elif len(calls) > 1:
        raise InvalidInput(f"{len(calls)} calls wait: say which, as in /approve 1 yes")
    verdict, _, reason = answer.strip().partition(" ")
    verdicts = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "a": "always", "always": "always"}
    if verdict.lower() not in verdicts:
        raise InvalidInput("say yes, no or always: /approve 1 yes")
    matches = [call for call in calls if call.number == int(number)]
    if not matches:
        raise InvalidInput("nothing waits" if not calls else f"there is no call {number}")
    if matches[0].is_question:
        raise InvalidInput(f"{matches[0].name} needs a written answer, not yes or no")
    return matches[0], verdicts[verdict.lower()], reason.strip()


async def _pending_calls(context: CommandContext) -> list[PendingCallView]:
    pending = await session_summary.read_pending_calls(
        context.log, await context.log.session(context.session_id)
    )
    return [
        PendingCallView(
            number=number,
            id=item.call.id,
            thread_id=item.thread_id,
            path=item.path,
            name=item.call.name,
            input=dict(item.call.input),
            reason=item.call.reason,
            preview=item.call.preview,
            is_question=item.call.kind != "tool" or item.call.is_suspended,
        )
        for number, item in enumerate(pending, 1)
    ]


_HANDLERS: dict[str, Callable[[CommandContext, str], Awaitable[SlashCommandResult]]] = {
    "compact": _compact,
    "plan": _plan,
    "mode": _mode,
    "cost": _cost,
    "context": _context,
    "agents": _agents,
    "skills": _skills,
    "approve": _approve,
    "good": partial(_rate, "good"),
    "bad": partial(_rate, "bad"),
}
