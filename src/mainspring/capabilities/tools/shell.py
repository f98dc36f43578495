"""The bash tool: one command at a time in the session's sandbox, as if in one shell."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from mainspring.capabilities.tools.define import tool
from mainspring.capabilities.tools.shell_script import MAX_COMMAND_BYTES, wrapped
from mainspring.capabilities.tools.shell_text import LiveText, read_captured
from mainspring.capabilities.tools.wrap import filtered
from mainspring.core.content import TextBlock
from mainspring.core.errors import HandsError, SandboxFailed
from mainspring.core.events import Failure
from mainspring.core.hands import Captured, Exec, Ran, Sandbox, Stopped
from mainspring.core.tool import Call, Outcome, Tool, Traits

Judge: TypeAlias = Callable[[str], tuple[bool, bool]]
"""Whether a command only reads, and whether it destroys."""

_MAX_OUTPUT_BYTES = 200_000
_EMPTY = Captured()
_UNCHANGED = "the shell is as it was before this command"
_STOPPED: Mapping[Stopped, str] = {
    "memory": f"stopped: it used more memory than there is for it; {_UNCHANGED}",
    "disk": f"stopped: it wrote more than there is room for; {_UNCHANGED}",
    "output": f"stopped: it wrote more output than anyone can read; {_UNCHANGED}",
    "cancelled": f"stopped before it was done; {_UNCHANGED}",
    "lost": (
        "the system stopped while this ran. Whether it took effect, and how much of it, is not"
        " known: look before you do it again"
    ),
}
_FAILURES: Mapping[Stopped, Failure] = {
    "time": "timed_out",
    "cancelled": "cancelled",
    "lost": "in_doubt",
}
# Generous on purpose: a command that has one of these in a quoted string runs alone instead of
# beside others, and that is all.
_CHANGES_SHELL = re.compile(
    r"(?<![\w-])(?:cd|pushd|popd|dirs|export|unset|declare|typeset|local|readonly|source|eval|exec"
    r"|set|shopt|trap|umask|ulimit|read|mapfile|readarray|getopts|let|function|exit|printf\s+-v)"
    r"(?![\w-])"
    r"|\(\s*\)|\(\(|(?:^|[\s;&|({])\.\s|(?:^|[\s;&|({!])\w+(?:\[[^]]*\])?\+?=",
    re.MULTILINE,
)


def bash(
    sandbox: Sandbox,
    *,
    judge: Judge,
    default_seconds: float = 120,
    max_seconds: float = 600,
    resumed: bool = False,
) -> Tool:
    """Run commands in the sandbox; the folder, exported variables and functions last.

    A command that only reads, and cannot change the shell, runs beside others and leaves the shell
    as it was. Results of other commands are kept by the sandbox until the next such command
    starts, so that must not be before they are in the log.

    Args:
        sandbox: the session's.
        judge: what a command is like, by its words.
        default_seconds: how long a command may take, unless the call says.
        max_seconds: the longest that a call can ask for.
        resumed: the session had a shell before this process, so a fresh one is a loss to tell.
    """
    shell = _Shell(sandbox, judge, default_seconds, resumed=resumed)

    @tool(name="bash", description=_description(default_seconds, max_seconds))
    async def bash(
        call: Call, command: str = "", restart: bool = False, timeout_ms: int = 0
    ) -> Outcome:
        """Run a command.

        Args:
            command: The bash command to run.
            restart: Forget the folder, variables and functions of earlier commands first.
            timeout_ms: Stop the command after this many milliseconds.
        """
        return await shell.run(call, command, restart=restart, seconds=timeout_ms / 1000)

    def refusal(given: Mapping[str, object]) -> str | None:
        return _refusal(given, max_seconds)

    async def preview(call: Call) -> str | None:
        command = call.input.get("command")
        return command if isinstance(command, str) and command else "(start the shell anew)"

    made = replace(bash, traits=shell.traits, probe=shell.probe, preview=preview)
    return filtered(made, refusal)


def _description(default_seconds: float, max_seconds: float) -> str:
    return (
        "Run a bash command in the session's sandbox. The working folder, exported variables and"
        " functions last from one command to the next; nothing that a command starts outlives it"
        " (use service_start for what has to keep running). Standard output and standard error come"
        " back together, with the exit status if it is not 0. There is no terminal and nobody to"
        f" answer prompts. A command is stopped after {default_seconds:g} s, or after timeout_ms,"
        f" at most {max_seconds * 1000:.0f}."
    )


def _refusal(given: Mapping[str, object], max_seconds: float) -> str | None:
    command, timeout = str(given.get("command", "")), given.get("timeout_ms", 0)
    if not command.strip() and not given.get("restart"):
        return "The input is not valid:\n- command: missing (or restart: true)"
    if "\0" in command:
        return "The input is not valid:\n- command: has a NUL character"
    if len(command.encode("utf-8", "replace")) > MAX_COMMAND_BYTES:
        return (
            f"The input is not valid:\n- command: over {MAX_COMMAND_BYTES} bytes; write it to a"
            " file and run that"
        )
    if isinstance(timeout, int) and not 0 <= timeout <= max_seconds * 1000:
        return f"The input is not valid:\n- timeout_ms: must be 1 to {max_seconds * 1000:.0f}"
    return None


@dataclass(slots=True)
class _Shell:
    """What is remembered between the calls of one session in this process."""

    sandbox: Sandbox
    judge: Judge
    default_seconds: float
    resumed: bool = field(kw_only=True)
    used: set[str] = field(default_factory=set[str])
    """Shells that have run something here: if their state is gone, that is a loss."""
    collected: set[str] = field(default_factory=set[str])
    """Keys whose results were given to the harness, and which the sandbox still keeps."""

    def traits(self, given: Mapping[str, object]) -> Traits:
        command = str(given.get("command", ""))
        read_only, destructive = self.judge(command) if command.strip() else (True, False)
        stateless = read_only and not self._keeps_state(given)
        return Traits(
            read_only=read_only,
            concurrent=stateless,
            destructive=destructive,
            in_doubt="retry" if stateless else "probe",
            cascades=not stateless,  # a read that fails changes nothing for the next one
        )

    def _keeps_state(self, given: Mapping[str, object]) -> bool:
        command = str(given.get("command", ""))
        if given.get("restart") or not command.strip():
            return True
        return _CHANGES_SHELL.search(command) is not None or not self.judge(command)[0]

    async def run(self, call: Call, command: str, *, restart: bool, seconds: float) -> Outcome:
        shell = _name(call)
        keeps_state = self._keeps_state(call.input)
        if keeps_state:
            await self._forget_collected()
        wanted = Exec(
            key=call.idempotency_key,
            argv=wrapped(
                command,
                shell=shell,
                keeps_state=keeps_state,
                was_used=self.resumed or shell in self.used,
                restart=restart,
            ),
            wall_seconds=seconds or self.default_seconds,
            max_bytes=_MAX_OUTPUT_BYTES,
        )
        try:
            ran = await self.sandbox.run(wanted, LiveText(call.say))
            if ran.stopped == "lost" and not keeps_state:
                await self.sandbox.forget(wanted.key)  # it only reads: once more does no harm
                ran = await self.sandbox.run(wanted, LiveText(call.say))
        except SandboxFailed as error:
            return Outcome.text(f"Not run: {error}", ok=False, error="unavailable")
        self.used.add(shell)
        return self._outcome(call, ran)

    async def probe(self, call: Call) -> Outcome | None:
        try:
            ran = await self.sandbox.found(call.idempotency_key)
        except SandboxFailed:
            ran = Ran(status=-1, stdout=_EMPTY, stderr=_EMPTY, stopped="lost")
        return None if ran is None else self._outcome(call, ran)

    def _outcome(self, call: Call, ran: Ran) -> Outcome:
        self.collected.add(call.idempotency_key)
        asked = call.input.get("timeout_ms")
        seconds = asked / 1000 if isinstance(asked, int) and asked else self.default_seconds
        return _told(ran, seconds, is_restart=not str(call.input.get("command", "")).strip())

    async def _forget_collected(self) -> None:
        while self.collected:
            key = self.collected.pop()
            with suppress(HandsError):  # what it keeps too long costs a little memory, no more
                await self.sandbox.forget(key)


def _name(call: Call) -> str:
    """Each thread has a shell of its own."""
    whole = f"{call.session_id}/{call.thread_id}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]


def _told(ran: Ran, seconds: float, *, is_restart: bool) -> Outcome:
    output = (read_captured(ran.stdout) + read_captured(ran.stderr)).strip("\n")
    notes: list[str] = []
    if ran.stopped == "time":
        notes.append(f"[stopped: it took longer than {seconds:g} s; {_UNCHANGED}]")
    elif ran.stopped is not None:
        notes.append(f"[{_STOPPED[ran.stopped]}]")
    elif ran.status != 0:
        notes.append(f"[exit status {ran.status}]")
    elif not output:
        notes.append("(the shell was started anew)" if is_restart else "(no output)")
    ok = ran.stopped is None and ran.status == 0
    error = None if ok else _FAILURES.get(ran.stopped, "failed") if ran.stopped else "failed"
    details = {"status": ran.status, "stopped": ran.stopped, "milliseconds": ran.milliseconds}
    text = "\n".join([*([output] if output else []), *notes])
    return Outcome((TextBlock(text),), ok, details, error)
