"""Input of chat other than messages: `!command` runs a command and shows its output to the agent;
`#rule` adds a line to the instructions; `/agents new`; the question after corrections."""

from __future__ import annotations

import difflib
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
from anyio.abc import ByteReceiveStream

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
_INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md")
_YES = ("y", "yes")


async def run_shell(screen: Screen, keyboard: Keyboard, command: str, folder: Path) -> str:
    """Run a command with the user's permissions, without a sandbox, and print its output. Ctrl-C or
    Esc ends it. Returns the text that the agent reads with the next message."""
    output: list[str] = []
    status = 0
    with interrupts(keyboard) as presses:
        async with (
            start_process(command, cwd=folder, stderr=subprocess.STDOUT) as process,
            anyio.create_task_group() as group,
        ):

            async def kill_on_interrupt() -> None:
                await anext(aiter(presses))
                signal_group(process, signal.SIGINT)
                with anyio.move_on_after(1):
                    await process.wait()
                signal_group(process, signal.SIGKILL)

            group.start_soon(kill_on_interrupt)
            assert process.stdout is not None
            await _copy(process.stdout, screen, output)
            status = await process.wait()
            group.cancel_scope.cancel()
    text = "".join(output)
    if len(text) > _MAX_OUTPUT_CHARS:
        text = f"[the beginning is omitted]\n{text[-_MAX_OUTPUT_CHARS:]}"
    if status:
        screen.paragraph((f"exit status {status}", "yellow"))
    printed = without_tags(text, "shell")
    return f"<shell command={command!r} exit_status={status}>\n{printed}\n</shell>"


async def _copy(stream: ByteReceiveStream, screen: Screen, output: list[str]) -> None:
    async for chunk in stream:
        text = sanitize_text(chunk.decode(errors="replace"))
        screen.text(text)
        output.append(text)
    if output and not output[-1].endswith("\n"):
        screen.text("\n")


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
