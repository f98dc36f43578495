"""Commands in a skill's text, whose output takes their place: !`git status`, or a ```! block.

They are found in the text as it was written, so that no argument can bring one.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from mainspring.core.content import plain_text
from mainspring.core.errors import HandsError, InvalidInput, MainspringError
from mainspring.core.tool import Call
from mainspring.harness.calling import call_of, look_up
from mainspring.harness.desk import Desk
from mainspring.harness.pipeline import authorized
from mainspring.runtime.skills.substitution import Filling

RunCommand: TypeAlias = Callable[[str], Awaitable[str]]
"""To what it prints. Raises: MainspringError: it may not be run, or did not work; it says why."""

MAX_COMMANDS = 20
MAX_OUTPUT_CHARS = 8_000
_INLINE = re.compile(r"(?<!\S)!`([^`\n]+)`")
_OPENING, _CLOSING = "```!", "```"


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    """As it was written; of a command, what is to be run."""
    command: str | None = None


def pieces(body: str) -> Iterator[Piece]:
    """A text cut at its commands. A block that is not closed is no command."""
    lines = body.splitlines(keepends=True)
    closing = deque(index for index, line in enumerate(lines) if line.strip() == _CLOSING)
    at = 0
    while at < len(lines):
        while closing and closing[0] <= at:
            closing.popleft()
        if lines[at].strip() == _OPENING and closing:
            block = lines[at : closing[0] + 1]
            yield Piece("".join(block), "".join(block[1:-1]).strip())
            at += len(block)
        else:
            yield from _inline(lines[at])
            at += 1


def has_commands(body: str) -> bool:
    return any(piece.command for piece in pieces(body))


async def injected(body: str, filling: Filling, run: RunCommand) -> str:
    """The text with its arguments, and with what its commands print; one that cannot be run stays
    as it is, with the reason."""
    done: list[str] = []
    commands = 0
    for piece in pieces(body):
        if not piece.command:
            done.append(filling.fill(piece.text))
            continue
        commands += 1
        if commands > MAX_COMMANDS:
            done.append(_not_run(filling.fill(piece.text), f"more than {MAX_COMMANDS} commands"))
            continue
        try:
            done.append(_cut(await run(filling.fill(piece.command))))
        except MainspringError as error:
            done.append(_not_run(filling.fill(piece.text), str(error)))
    return "".join(done)


def refusing(why: str) -> RunCommand:
    async def refuse(_command: str) -> str:
        raise InvalidInput(why)

    return refuse


def at_desk(desk: Desk, call: Call) -> RunCommand:
    """As if the model had called `bash`: the same gates, hooks and sandbox. What a person would
    have to be asked about is not run; the model can still ask for it itself."""

    async def run(command: str) -> str:
        tool = look_up(desk, "bash")
        given = {"command": command}
        if tool is None or tool.traits(given).by_client:
            raise HandsError("there is no shell here")
        asked = call_of(desk, call.id, "bash", given)
        decision = await authorized(desk, asked, tool)
        desk.note(*decision.facts)
        if decision.decision != "allow":
            raise InvalidInput(decision.reason or "the permission rules do not allow it")
        if decision.updated_input is not None:
            asked = replace(asked, input=decision.updated_input)
        outcome = await tool.run(asked)
        text = plain_text(outcome.content).strip()
        if not outcome.ok:
            raise InvalidInput(f"it failed: {_cut(text)}")
        return text

    return run


def _inline(line: str) -> Iterator[Piece]:
    end = 0
    for found in _INLINE.finditer(line):
        if found.start() > end:
            yield Piece(line[end : found.start()])
        yield Piece(found[0], found[1].strip())
        end = found.end()
    if end < len(line):
        yield Piece(line[end:])


def _cut(output: str) -> str:
    if len(output) <= MAX_OUTPUT_CHARS:
        return output
    return f"{output[:MAX_OUTPUT_CHARS]}\n[... {len(output) - MAX_OUTPUT_CHARS} characters more]"


def _not_run(text: str, why: str) -> str:
    return f"{text.rstrip()} [not run: {why}]" + ("\n" if text.endswith("\n") else "")
