"""Prints the results of slash commands, which `runtime.slash_commands` runs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from mainspring.edges.cli.render.event_summary import short_id, truncate
from mainspring.edges.cli.render.printing import (
    Screen,
    StyledText,
    dollars,
    pad,
    plural,
    token_count,
)
from mainspring.edges.cli.render.renderer import key_argument
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
    ("\\ at the end", "continues on the next line, as an open ``` fence does"),
    ("Alt-Enter", "a new line"),
    ("@path, @url", "attaches the file or page to the message"),
    ("!command", "runs a command; the agent reads its output"),
    ("#rule", "adds a line to the instructions"),
    ("Tab", "completes a command or a path"),
    ("Ctrl-R", "searches earlier messages"),
    ("Ctrl-V", "attaches the image in the clipboard"),
    ("Esc", "interrupts the reply; pressed twice, clears the line or goes back"),
    ("Shift-Tab", "next mode: default, acceptEdits, plan"),
    ("Up", "takes back a message from the queue, or an earlier one"),
    ("Ctrl-O", "shows the whole transcript, with all outputs"),
    ("Ctrl-T", "shows the agent's list of tasks"),
    ("Ctrl-B", "puts a running !command into the background"),
    ("Ctrl-G", "edits the line in $EDITOR"),
    ("Ctrl-L", "draws the screen again"),
    ("Ctrl-C", "interrupts the reply; a second press leaves"),
    ("Ctrl-D", "leaves"),
)


def print_reply(notes: Screen, result: SlashCommandResult) -> None:
    match result:
        case SubmittedResult(text=text) | TextResult(text=text):
            notes.paragraph((text, "dim"))
        case CostResult():
            notes.paragraph((_cost_text(result), ""))
        case ContextResult():
            _print_context(notes, result)
        case AgentsResult():
            _print_agents(notes, result)
        case SkillsResult():
            _print_skills(notes, result)
        case PendingCallsResult():
            _print_waiting(notes, result)


def print_help(notes: Screen, commands: Sequence[SlashCommand]) -> None:
    usages = [command.usage for command in commands] + [key for key, _ in KEY_BINDINGS]
    width = max(map(len, usages)) + 2
    for command in commands:
        style = "bold" if command.kind == "built-in" else "bold cyan"
        notes.line(("  ", ""), pad((command.usage, style), width), (truncate(command.about), ""))
    for key, about in KEY_BINDINGS:
        notes.line(("  ", ""), pad((key, "bold"), width), (about, "dim"))


def print_without_session(notes: Screen, agent: Agent, name: str) -> None:
    """Print the result of a command that runs before a session exists."""
    match name:
        case "agents":
            print_reply(notes, AgentsResult(types=agent_types(agent), threads=()))
        case "skills":
            print_reply(notes, skills_of(agent))
        case _:
            notes.paragraph(("nothing yet", "dim"))


def print_unknown_command(notes: Screen, name: str, commands: Sequence[SlashCommand]) -> None:
    similar = " or ".join(f"/{item}" for item in similar_names(name, commands))
    hint = f"did you mean {similar}?" if similar else "/help lists the commands"
    notes.paragraph((f"there is no /{name}: nothing was sent. ", "yellow"), (hint, ""))


def _cost_text(result: CostResult) -> str:
    share = cached_share(result.usage) or 0
    return (
        f"{plural(result.turns, 'turn')}, {token_count(prompt_tokens(result.usage))} in"
        f" ({share:.0%} cached), {token_count(result.usage.output_tokens)} out,"
        f" {dollars(Decimal(result.cost_usd))}"
    )


def _print_context(notes: Screen, result: ContextResult) -> None:
    tokens, window = result.parts, result.window
    about = "" if tokens.is_measured else "about "
    of = f" of {token_count(window)} ({tokens.total / window:.0%})" if window else ""
    notes.paragraph(
        (f"{about}{token_count(tokens.total)} tokens{of}", "bold"),
        (f" in {plural(result.messages, 'message')}, {result.model}", "dim"),
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


def _print_agents(notes: Screen, result: AgentsResult) -> None:
    if not result.types:
        notes.paragraph(("this agent calls no subagents", "dim"))
    for item in result.types:
        origin = "" if item.scope is None else f" ({item.scope})"
        name: StyledText = (f"  {item.name}{origin}", "bold")
        notes.line(pad(name, 22), (truncate(item.description), ""))
    if result.threads:
        notes.paragraph((f"called in this session: {len(result.threads)}", "dim"))
        heads = ("SUBAGENT", "STATUS", "TURNS", "COST", "ID", "TASK")
        notes.table(heads, [_thread_row(thread) for thread in result.threads])


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


def _print_skills(notes: Screen, result: SkillsResult) -> None:
    if not result.skills:
        notes.paragraph(("this agent has no skills and no commands of its own", "dim"))
    for skill in result.skills:
        name = f"/{skill.name}" if skill.for_user else skill.name
        marks = [
            skill.scope,
            "" if skill.is_trusted else "not trusted: text only",
            "" if skill.for_model else "only by you",
            "" if skill.for_user else "only by the agent",
        ]
        notes.line(
            pad((f"  {name}", "bold"), 22),
            (f"({', '.join(filter(None, marks))}) ", "dim"),
            (truncate(skill.description), ""),
        )


def _print_waiting(notes: Screen, result: PendingCallsResult) -> None:
    if not result.calls:
        notes.paragraph(("nothing waits for you", "dim"))
        return
    for call in result.calls:
        caller = " > ".join((*call.path, call.name))
        notes.line(
            (f"  {call.number}  ", "bold yellow"),
            (caller, "bold"),
            (f" {key_argument(call.input)}", ""),
        )
        if call.reason:
            notes.paragraph((f"asked because {call.reason}", "dim"), indent=5)
    notes.paragraph(("/approve 1 yes|no|always", "dim"))
