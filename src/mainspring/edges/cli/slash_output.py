"""Prints the replies of slash commands. What they do is in `runtime.commands`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from mainspring.edges.cli.event_summary import short_id, truncate
from mainspring.edges.cli.printing import Screen, StyledText, dollars, pad, plural, token_count
from mainspring.edges.cli.renderer import key_argument
from mainspring.harness.context.xray import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.agent import Agent
from mainspring.runtime.command_results import (
    AgentsResult,
    ContextResult,
    CostResult,
    PendingCallsResult,
    SkillsResult,
    SlashCommandResult,
    SubmittedResult,
    TextResult,
    ThreadView,
)
from mainspring.runtime.slash_commands import (
    SlashCommand,
    agent_types,
    similar_names,
    skills_of,
)

KEY_BINDINGS = (
    ("//", "a message that begins with one /"),
    ("\\ at the end", "goes on in the next line, as an open ``` fence does"),
    ("Alt-Enter", "a new line"),
    ("@path, @url", "goes along with the message"),
    ("!command", "runs it; the agent reads the output"),
    ("#rule", "adds a line to the instructions"),
    ("Tab", "completes a command or a path"),
    ("Ctrl-R", "searches earlier messages"),
    ("Ctrl-V", "attaches the image in the clipboard"),
    ("Ctrl-C", "interrupts the reply; once more leaves"),
    ("Ctrl-D", "leaves"),
)


def print_reply(notes: Screen, slash_command_result: SlashCommandResult) -> None:
    match slash_command_result:
        case SubmittedResult(text=text) | TextResult(text=text):
            notes.paragraph((text, "dim"))
        case CostResult():
            notes.paragraph((_cost_text(slash_command_result), ""))
        case ContextResult():
            _print_context(notes, slash_command_result)
        case AgentsResult():
            _print_agents(notes, slash_command_result)
        case SkillsResult():
            _print_skills(notes, slash_command_result)
        case PendingCallsResult():
            _print_waiting(notes, slash_command_result)


def print_help(notes: Screen, slash_commands: Sequence[SlashCommand]) -> None:
    rows = [(slash_command.usage, slash_command.about) for slash_command in slash_commands]
    width = max(len(words) for words, _ in (*rows, *KEY_BINDINGS)) + 2
    brought = [
        slash_command.usage for slash_command in slash_commands if slash_command.kind != "built-in"
    ]
    for words, about in rows:
        style = "bold cyan" if words in brought else "bold"
        notes.line(("  ", ""), pad((words, style), width), (truncate(about), ""))
    for words, about in KEY_BINDINGS:
        notes.line(("  ", ""), pad((words, "bold"), width), (about, "dim"))


def print_without_session(notes: Screen, agent: Agent, name: str) -> None:
    """The reply of a command before there is a session."""
    match name:
        case "agents":
            print_reply(notes, AgentsResult(types=agent_types(agent), threads=()))
        case "skills":
            print_reply(notes, skills_of(agent))
        case _:
            notes.paragraph(("nothing yet", "dim"))


def print_unknown_command(notes: Screen, name: str, slash_commands: Sequence[SlashCommand]) -> None:
    meant = " or ".join(f"/{similar_name}" for similar_name in similar_names(name, slash_commands))
    hint = f"did you mean {meant}?" if meant else "/help lists what there is"
    notes.paragraph((f"there is no /{name}: nothing was sent. ", "yellow"), (hint, ""))


def _cost_text(cost_result: CostResult) -> str:
    share = cached_share(cost_result.usage) or 0
    return (
        f"{plural(cost_result.turns, 'turn')}, {token_count(prompt_tokens(cost_result.usage))} in"
        f" ({share:.0%} cached), {token_count(cost_result.usage.output_tokens)} out,"
        f" {dollars(Decimal(cost_result.cost_usd))}"
    )


def _print_context(notes: Screen, context_result: ContextResult) -> None:
    tokens, window = context_result.parts, context_result.window
    about = "" if tokens.is_measured else "about "
    of = f" of {token_count(window)} ({tokens.total / window:.0%})" if window else ""
    notes.paragraph(
        (f"{about}{token_count(tokens.total)} tokens{of}", "bold"),
        (f" in {plural(context_result.messages, 'message')}, {context_result.model}", "dim"),
    )
    for name, count in (
        ("tools", tokens.tools),
        ("system, static", tokens.system_static),
        ("system, dynamic", tokens.system_dynamic),
        ("history", tokens.history),
        ("newest turn", tokens.newest),
    ):
        bar = "█" * round(30 * count / (tokens.total or 1))
        notes.line(pad((f"  {name}", "dim"), 18), (f"{token_count(count):>6}  ", ""), (bar, "cyan"))


def _print_agents(notes: Screen, agents_result: AgentsResult) -> None:
    if not agents_result.types:
        notes.paragraph(("this agent calls no subagents", "dim"))
    for item in agents_result.types:
        origin = "" if item.scope is None else f" ({item.scope})"
        name: StyledText = (f"  {item.name}{origin}", "bold")
        notes.line(pad(name, 22), (truncate(item.description), ""))
    if agents_result.threads:
        notes.paragraph((f"called in this session: {len(agents_result.threads)}", "dim"))
        notes.table(
            ("SUBAGENT", "STATUS", "TURNS", "COST", "ID", "TASK"),
            [_thread_row(thread) for thread in agents_result.threads],
        )


def _thread_row(view: ThreadView) -> list[StyledText]:
    status = "done" if view.status == "completed" else view.status.replace("_", " ")
    return [
        ("  " * view.depth + (view.agent or ""), "bold"),
        (status, "green" if status == "done" else "yellow"),
        (f"{view.turns:>5}", ""),
        (dollars(Decimal(view.cost_usd)), ""),
        (short_id(view.id), "dim"),
        (truncate(view.description or ""), ""),
    ]


def _print_skills(notes: Screen, skills_result: SkillsResult) -> None:
    if not skills_result.skills:
        notes.paragraph(("this agent has no skills and no commands of its own", "dim"))
    for skill in skills_result.skills:
        name = f"/{skill.name}" if skill.for_user else skill.name
        marks = ", ".join(
            filter(
                None,
                (
                    skill.scope,
                    "" if skill.is_trusted else "not trusted: text only",
                    "" if skill.for_model else "only by you",
                    "" if skill.for_user else "only by the agent",
                ),
            )
        )
        notes.line(
            pad((f"  {name}", "bold"), 22),
            (f"({marks}) ", "dim"),
            (truncate(skill.description), ""),
        )


def _print_waiting(notes: Screen, pending_calls_result: PendingCallsResult) -> None:
    if not pending_calls_result.calls:
        notes.paragraph(("nothing waits for you", "dim"))
        return
    for call in pending_calls_result.calls:
        who = " > ".join((*call.path, call.name))
        notes.line(
            (f"  {call.number}  ", "bold yellow"),
            (who, "bold"),
            (f" {key_argument(call.input)}", ""),
        )
        if call.reason:
            notes.paragraph((f"asked because {call.reason}", "dim"), indent=5)
    notes.paragraph(("/approve 1 yes|no|always", "dim"))
