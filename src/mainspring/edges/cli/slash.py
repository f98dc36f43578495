"""What slash commands have to say, on a screen. What they do is `runtime.commands`'."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from mainspring.edges.cli.gist import cut, short
from mainspring.edges.cli.render import Part, Screen, counted, dollars, padded, token_count
from mainspring.edges.cli.teller import key_argument
from mainspring.harness.context.anatomy import cached_share
from mainspring.harness.limits import prompt_tokens
from mainspring.runtime.commands import Command, near
from mainspring.runtime.replies import (
    Agents,
    Context,
    Cost,
    Reply,
    Said,
    Sent,
    Skills,
    ThreadView,
    Waiting,
)

KEYS = (
    ("//", "a message that begins with one /"),
    ("\\ at the end", "goes on in the next line, as an open ``` fence does"),
    ("Alt-Enter", "a new line"),
    ("Tab", "completes a command"),
    ("Ctrl-C", "interrupts the reply; once more leaves"),
    ("Ctrl-D", "leaves"),
)


def show(notes: Screen, reply: Reply) -> None:
    match reply:
        case Sent(text=text) | Said(text=text):
            notes.whole((text, "dim"))
        case Cost():
            notes.whole((_cost(reply), ""))
        case Context():
            _show_context(notes, reply)
        case Agents():
            _show_agents(notes, reply)
        case Skills():
            _show_skills(notes, reply)
        case Waiting():
            _show_waiting(notes, reply)


def show_help(notes: Screen, commands: Sequence[Command]) -> None:
    rows = [(each.usage, each.about) for each in commands]
    width = max(len(words) for words, _ in (*rows, *KEYS)) + 2
    brought = [each.usage for each in commands if each.kind != "built-in"]
    for words, about in rows:
        style = "bold cyan" if words in brought else "bold"
        notes.line(("  ", ""), padded((words, style), width), (cut(about), ""))
    for words, about in KEYS:
        notes.line(("  ", ""), padded((words, "bold"), width), (about, "dim"))


def show_unknown(notes: Screen, name: str, commands: Sequence[Command]) -> None:
    meant = " or ".join(f"/{each}" for each in near(name, commands))
    hint = f"did you mean {meant}?" if meant else "/help lists what there is"
    notes.whole((f"there is no /{name}: nothing was sent. ", "yellow"), (hint, ""))


def _cost(cost: Cost) -> str:
    share = cached_share(cost.usage) or 0
    return (
        f"{counted(cost.turns, 'turn')}, {token_count(prompt_tokens(cost.usage))} in"
        f" ({share:.0%} cached), {token_count(cost.usage.output_tokens)} out,"
        f" {dollars(Decimal(cost.cost_usd))}"
    )


def _show_context(notes: Screen, context: Context) -> None:
    found, window = context.parts, context.window
    about = "" if found.is_measured else "about "
    of = f" of {token_count(window)} ({found.total / window:.0%})" if window else ""
    notes.whole(
        (f"{about}{token_count(found.total)} tokens{of}", "bold"),
        (f" in {counted(context.messages, 'message')}, {context.model}", "dim"),
    )
    for name, count in (
        ("tools", found.tools),
        ("system, static", found.system_static),
        ("system, dynamic", found.system_dynamic),
        ("history", found.history),
        ("newest turn", found.newest),
    ):
        bar = "█" * round(30 * count / (found.total or 1))
        notes.line(
            padded((f"  {name}", "dim"), 18), (f"{token_count(count):>6}  ", ""), (bar, "cyan")
        )


def _show_agents(notes: Screen, agents: Agents) -> None:
    if not agents.types:
        notes.whole(("this agent calls no subagents", "dim"))
    for each in agents.types:
        origin = "" if each.scope is None else f" ({each.scope})"
        name: Part = (f"  {each.name}{origin}", "bold")
        notes.line(padded(name, 22), (cut(each.description), ""))
    if agents.threads:
        notes.whole((f"called in this session: {len(agents.threads)}", "dim"))
        notes.table(
            ("SUBAGENT", "STATUS", "TURNS", "COST", "ID", "TASK"),
            [_thread(each) for each in agents.threads],
        )


def _thread(view: ThreadView) -> list[Part]:
    status = "done" if view.status == "completed" else view.status.replace("_", " ")
    return [
        ("  " * view.depth + (view.agent or ""), "bold"),
        (status, "green" if status == "done" else "yellow"),
        (f"{view.turns:>5}", ""),
        (dollars(Decimal(view.cost_usd)), ""),
        (short(view.id), "dim"),
        (cut(view.description or ""), ""),
    ]


def _show_skills(notes: Screen, skills: Skills) -> None:
    if not skills.skills:
        notes.whole(("this agent has no skills and no commands of its own", "dim"))
    for each in skills.skills:
        name = f"/{each.name}" if each.for_user else each.name
        marks = ", ".join(
            filter(
                None,
                (
                    each.scope,
                    "" if each.is_trusted else "not trusted: text only",
                    "" if each.for_model else "only by you",
                    "" if each.for_user else "only by the agent",
                ),
            )
        )
        notes.line(
            padded((f"  {name}", "bold"), 22), (f"({marks}) ", "dim"), (cut(each.description), "")
        )


def _show_waiting(notes: Screen, waiting: Waiting) -> None:
    if not waiting.calls:
        notes.whole(("nothing waits for you", "dim"))
        return
    for each in waiting.calls:
        who = " > ".join((*each.path, each.name))
        notes.line(
            (f"  {each.number}  ", "bold yellow"),
            (who, "bold"),
            (f" {key_argument(each.input)}", ""),
        )
        if each.reason:
            notes.whole((f"asked because {each.reason}", "dim"), indent=5)
    notes.whole(("/approve 1 yes|no|always", "dim"))
