"""Input of chat other than messages: `!command` runs a command and shows its output to the agent;
`#rule` adds a line to the instructions; `/agents new`; the question after corrections."""

from __future__ import annotations

import difflib
import signal
import subprocess
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
from anyio.abc import Process

from mainspring.config import FOLDER
from mainspring.core.errors import InvalidInput
from mainspring.core.tagged_text import without_tags
from mainspring.edges.cli.render.printing import Screen, diff_style, sanitize_text
from mainspring.edges.cli.run.approval_prompt import ReadLine
from mainspring.edges.cli.run.terminal_input import Keyboard, interrupts
from mainspring.files.atomic_file import read_bounded, write_atomic
from mainspring.processes import signal_group, start_process
from mainspring.runtime.agent_folder.new_agent import new_subagent

_MAX_OUTPUT_CHARS = 30_000  # that the agent reads, as `bash` returns
_STOP_SECONDS = 1  # that a command which is interrupted may take to end
_INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md")
_YES = ("y", "yes")


StartWork: TypeAlias = Callable[[Callable[[], Awaitable[None]]], Callable[[], None]]
"""Makes a function that starts work, whose errors are printed."""


class ShellCommand:
    """A command with the user's permissions, without a sandbox."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.status: int | None = None
        """`None` while it runs."""
        self.screen: Screen | None = None
        """Where its output is printed as it comes; `None` in the background."""
        self.left = anyio.Event()
        """Set when it has ended, or continues in the background."""
        self._output: list[str] = []
        self._process: Process | None = None
        self._started = anyio.Event()

    async def run(self, folder: Path) -> None:
        """Raises: OSError: it cannot be started."""
        async with start_process(self.command, cwd=folder, stderr=subprocess.STDOUT) as process:
            self._process = process
            self._started.set()
            assert process.stdout is not None
            async for chunk in process.stdout:
                self._add(sanitize_text(chunk.decode(errors="replace")))
            self.status = await process.wait()
        if self._output and not self._output[-1].endswith("\n"):
            self._add("\n")

    def _add(self, text: str) -> None:
        self._output.append(text)
        if self.screen is not None:
            self.screen.text(text)

    async def stop(self) -> None:
        await self._started.wait()
        if self._process is not None:
            signal_group(self._process, signal.SIGINT)
            with anyio.move_on_after(_STOP_SECONDS):
                await self._process.wait()
            signal_group(self._process, signal.SIGKILL)

    @property
    def result(self) -> str:
        """What the agent reads about it."""
        text = "".join(self._output)
        if len(text) > _MAX_OUTPUT_CHARS:
            text = f"[the beginning is omitted]\n{text[-_MAX_OUTPUT_CHARS:]}"
        printed = without_tags(text, "shell")
        return f"<shell command={self.command!r} exit_status={self.status}>\n{printed}\n</shell>"


class ShellCommands:
    """The commands that the user runs with `!`; Ctrl-B puts the current one into the background."""

    def __init__(self, start: StartWork, keyboard: Keyboard, folder: Path) -> None:
        self._start = start
        self._keyboard = keyboard
        self._folder = folder
        self._background: list[ShellCommand] = []
        self._current: ShellCommand | None = None

    async def run(self, screen: Screen, command: str, results: list[str]) -> None:
        """Run a command and print its output until it ends, or continues in the background. Ctrl-C
        or Esc ends it. What the agent reads about it is added to `results` at its end."""
        shell = ShellCommand(command)
        shell.screen = screen
        self._current = shell
        self._start(partial(self._follow, shell, screen, results))()
        with interrupts(self._keyboard) as presses:
            async with anyio.create_task_group() as group:

                async def stop_on_press() -> None:
                    await anext(aiter(presses))
                    await shell.stop()

                group.start_soon(stop_on_press)
                await shell.left.wait()
                group.cancel_scope.cancel()
        self._current = None

    async def _follow(self, shell: ShellCommand, screen: Screen, results: list[str]) -> None:
        try:
            await shell.run(self._folder)
        finally:
            shell.left.set()
        results.append(shell.result)
        if shell in self._background:
            screen.paragraph((f"!{shell.command} ended with status {shell.status}", "yellow"))
        elif shell.status:
            screen.paragraph((f"exit status {shell.status}", "yellow"))

    def move_to_background(self) -> None:
        if (shell := self._current) is not None and shell.screen is not None:
            shell.screen.paragraph(("continues in the background; /bashes lists it", "dim"))
            shell.screen = None
            self._background.append(shell)
            shell.left.set()

    async def show(self, screen: Screen, arguments: str) -> None:
        """`/bashes`, `/bashes stop N`.

        Raises: InvalidInput: there is no such command.
        """
        word, _, number = arguments.partition(" ")
        if word == "stop":
            if not (number.isdigit() and 1 <= int(number) <= len(self._background)):
                raise InvalidInput("name its number: /bashes stop 1")
            await self._background[int(number) - 1].stop()
        for index, shell in enumerate(self._background, 1):
            state = "runs" if shell.status is None else f"ended with status {shell.status}"
            screen.line((f"  {index}  ", "bold yellow"), (shell.command, ""), (f"  {state}", "dim"))
        if not self._background:
            screen.paragraph(("none; Ctrl-B puts a running !command there", "dim"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEdit:
    file: Path
    before: str
    after: str

    def show(self, screen: Screen) -> None:
        name = self.file.name
        for line in difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), name, name, n=2, lineterm=""
        ):
            screen.paragraph((line, diff_style(line)), indent=2)

    def write(self) -> None:
        """Raises: InvalidInput: the file has changed since the diff was shown."""
        if _read(self.file) != self.before:
            raise InvalidInput(f"{self.file} has changed meanwhile: nothing was written")
        write_atomic(self.file, self.after.encode())


async def add_rule(notes: Screen, ask: ReadLine, rule: str, folder: Path) -> str | None:
    """Show a new line of the instructions as a diff, and write it if the user agrees. Returns the
    line.

    Raises:
        InvalidInput: the rule is empty, or the file cannot be read or has changed meanwhile.
    """
    edit = rule_edit(rule, folder)
    edit.show(notes)
    answer = await ask(f"add this line to {edit.file.name}? [y/n] ") or ""
    if answer.strip().lower() not in _YES:
        notes.paragraph(("nothing was changed", "dim"))
        return None
    edit.write()
    notes.paragraph((f"added to {edit.file.name}", "dim"))
    return edit.after.rstrip("\n").rpartition("\n")[2]


def rule_edit(rule: str, folder: Path) -> RuleEdit:
    """Add a line to the first instruction file of the folder that exists, else to AGENTS.md.

    Raises:
        InvalidInput: the rule is empty, or the file cannot be read.
    """
    rule = " ".join(rule.split())
    if not rule:
        raise InvalidInput("write the rule: # use spaces, not tabs")
    files = [folder / name for name in _INSTRUCTION_FILES]
    file = next((file for file in files if file.is_file()), files[0])
    before = _read(file)
    line = rule if rule.startswith(("- ", "* ")) else f"- {rule}"
    gap = "" if not before or before.endswith("\n") else "\n"
    return RuleEdit(file=file, before=before, after=f"{before}{gap}{line}\n")


def _read(file: Path) -> str:
    try:
        return (read_bounded(file) or b"").decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{file} is not UTF-8") from None


def write_subagent(notes: Screen, folder: Path, arguments: str) -> None:
    """`/agents new NAME DESCRIPTION`: write a file to edit.

    Raises:
        InvalidInput: the command is malformed, or the file exists.
    """
    word, _, definition = arguments.partition(" ")
    name, _, description = definition.strip().partition(" ")
    if word != "new" or not name:
        raise InvalidInput("to write a new subagent: /agents new NAME WHEN TO CALL IT")
    file = new_subagent(folder / FOLDER / "agents", name, description.strip())
    notes.paragraph((f"wrote {file}: edit its instructions", ""))
    notes.paragraph(("the next session has it: /clear begins one", "dim"))


async def ask_after_corrections(
    notes: Screen, ask: ReadLine
) -> Literal["send", "diagnose", "start clean"]:
    notes.paragraph(("you have corrected this twice", "yellow"))
    notes.paragraph(("  d  ", "bold"), ("let it diagnose the problem, without changes", ""))
    notes.paragraph(
        ("  c  ", "bold"), ("start clean: a new session with the goal and your corrections", "")
    )
    answer = (await ask("[d/c], or Enter to send it as it is: ") or "").strip().lower()
    return "diagnose" if answer == "d" else "start clean" if answer == "c" else "send"
