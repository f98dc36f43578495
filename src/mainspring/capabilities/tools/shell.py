"""The bash tool: one command at a time in the session's sandbox, as if in one shell, with its
terminal output as plain text."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from mainspring.capabilities.tools.shell_script import MAX_COMMAND_BYTES, wrap_command
from mainspring.core.content import TextBlock
from mainspring.core.errors import SandboxFailed, ToolEnvironmentError
from mainspring.core.events import Failure
from mainspring.core.ports import CapturedOutput, ExecRequest, ExecResult, Sandbox, StopCause
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import filtered

# Each alternative stops at the next ESC, so matching is linear in the text.
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colors, cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]*[0-OQ-WYZ\\`a-~]"  # any other
)
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)\Z|\r\Z")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_MAX_INCOMPLETE = 200  # characters of an escape sequence that a later piece may end


def strip_escapes(text: str) -> str:
    """Remove control sequences; a carriage return ends a line like a newline."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", _ESCAPES.sub("", lines))


def captured_text(stream: CapturedOutput) -> str:
    """A stream as text; if its middle was dropped, with the size of the gap."""
    if stream.left_out <= 0:
        return strip_escapes((stream.head + stream.tail).decode("utf-8", "replace"))
    head = stream.head.decode("utf-8", "replace")
    tail = stream.tail.decode("utf-8", "replace")
    left_out = f"[... {stream.left_out} bytes left out ...]"
    return f"{strip_escapes(head)}\n{left_out}\n{strip_escapes(tail)}"


class LiveText:
    """Live output in chunks; no chunk ends inside a character or an escape sequence."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._incomplete = ""

    def __call__(self, piece: bytes) -> None:
        text = self._incomplete + self._decoder.decode(piece)
        self._incomplete = _unfinished_escape(text)
        visible_text = strip_escapes(text[: len(text) - len(self._incomplete)])
        if visible_text:
            self._say(visible_text)


def _unfinished_escape(text: str) -> str:
    """The end of a text that may be the beginning of an escape sequence or of a line end."""
    finished = max((escape.end() for escape in _ESCAPES.finditer(text)), default=0)
    match = _BEGUN.search(text, finished)
    incomplete = "" if match is None else match[0]
    return incomplete if len(incomplete) <= _MAX_INCOMPLETE else ""


CommandJudge: TypeAlias = Callable[[str], tuple[bool, bool]]
"""Whether a command only reads, and whether it is destructive."""

_MAX_OUTPUT_BYTES = 200_000  # kept of a command; the model sees less of it
_EMPTY = CapturedOutput()
_UNCHANGED = "the shell is as it was before this command"
_STOPPED: Mapping[StopCause, str] = {
    "memory": f"stopped: it exceeded the memory limit; {_UNCHANGED}",
    "disk": f"stopped: it exceeded the disk limit; {_UNCHANGED}",
    "output": f"stopped: it exceeded the output limit; {_UNCHANGED}",
    "cancelled": f"stopped before it finished; {_UNCHANGED}",
    "lost": (
        "the system stopped while this ran. Whether it took effect, and how much of it, is not"
        " known: look before you do it again"
    ),
}
_FAILURES: Mapping[StopCause, Failure] = {
    "time": "timed_out",
    "cancelled": "cancelled",
    "lost": "in_doubt",
}
# Broad on purpose: a command with one of these in a quoted string only loses concurrency.
_CHANGES_SHELL = re.compile(
    r"(?<![\w-])(?:cd|pushd|popd|dirs|export|unset|declare|typeset|local|readonly|source|eval|exec"
    r"|set|shopt|trap|umask|ulimit|read|mapfile|readarray|getopts|let|function|exit|printf\s+-v)"
    r"(?![\w-])"
    r"|\(\s*\)|\(\(|(?:^|[\s;&|({])\.\s|(?:^|[\s;&|({!])\w+(?:\[[^]]*\])?\+?=",
    re.MULTILINE,
)


def bash(  # parameters: one tool, and what its caller may set
    sandbox: Sandbox,
    *,
    judge: CommandJudge,
    default_seconds: float = 120,
    max_seconds: float = 600,
    resumed: bool = False,
    variables: Mapping[str, str] | None = None,
    max_output_bytes: int | None = None,
) -> Tool:
    """Run commands in the sandbox; the folder, exported variables and functions persist.

    A command that only reads and cannot change the shell runs concurrently, and leaves the shell
    unchanged. The sandbox keeps the result of any other command only until the next such command
    starts, so the result must be in the log by then.

    Args:
        sandbox: the session's sandbox.
        judge: classifies a command by its words.
        default_seconds: the time limit of a command, unless the call sets one.
        max_seconds: the longest time limit that a call can set.
        resumed: the session had a shell before this process, so the loss of its state is reported.
        variables: added to the environment of every command.
        max_output_bytes: how much of a command's output is returned.
    """
    shell = _Shell(
        sandbox,
        judge,
        default_seconds,
        resumed=resumed,
        variables=variables or {},
        max_output_bytes=max_output_bytes or _MAX_OUTPUT_BYTES,
    )

    @tool(name="bash", description=_description(default_seconds, max_seconds))
    async def bash(
        call: Call, command: str = "", restart: bool = False, timeout_ms: int = 0
    ) -> ToolResult:
        """Run a command.

        Args:
            command: The bash command to run.
            restart: Forget the folder, variables and functions of earlier commands first.
            timeout_ms: Stop the command after this many milliseconds.
        """
        return await shell.run(call, command, restart=restart, seconds=timeout_ms / 1000)

    async def preview(call: Call) -> str | None:
        command = call.input.get("command")
        return command if isinstance(command, str) and command else "(restart the shell)"

    shell_tool = replace(bash, traits=shell.traits, probe=shell.probe, preview=preview)
    return filtered(shell_tool, partial(_refusal, max_seconds))


def _description(default_seconds: float, max_seconds: float) -> str:
    return (
        "Run a bash command in the session's sandbox. The working folder, exported variables and"
        " functions last from one command to the next; nothing that a command starts outlives it"
        " (use service_start for what has to keep running). Standard output and standard error come"
        " back together, with the exit status if it is not 0. There is no terminal and nobody to"
        f" answer prompts. A command is stopped after {default_seconds:g} s, or after timeout_ms,"
        f" at most {max_seconds * 1000:.0f}."
    )


def _refusal(max_seconds: float, args: Mapping[str, object]) -> str | None:
    command, timeout = str(args.get("command", "")), args.get("timeout_ms", 0)
    if not command.strip() and not args.get("restart"):
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
    """The state kept between the calls of one session in this process."""

    sandbox: Sandbox
    judge: CommandJudge
    default_seconds: float
    resumed: bool = field(kw_only=True)
    variables: Mapping[str, str] = field(kw_only=True)
    max_output_bytes: int = field(kw_only=True)
    used: set[str] = field(default_factory=set[str])
    """Shells that have run a command in this process: the loss of their state is reported."""
    collected: set[str] = field(default_factory=set[str])
    """Keys of results that the harness has received, and that the sandbox still stores."""

    def traits(self, args: Mapping[str, object]) -> Traits:
        command = str(args.get("command", ""))
        read_only, destructive = self.judge(command) if command.strip() else (True, False)
        stateless = read_only and not self._keeps_state(args)
        return Traits(
            read_only=read_only,
            concurrent=stateless,
            destructive=destructive,
            in_doubt="retry" if stateless else "probe",
            cascades=not stateless,  # a failed read changes nothing for the next call
        )

    def _keeps_state(self, args: Mapping[str, object]) -> bool:
        command = str(args.get("command", ""))
        if args.get("restart") or not command.strip():
            return True
        return _CHANGES_SHELL.search(command) is not None or not self.judge(command)[0]

    async def run(self, call: Call, command: str, *, restart: bool, seconds: float) -> ToolResult:
        # The id of the shell; each thread has its own.
        whole = f"{call.session_id}/{call.thread_id}"
        shell = hashlib.sha256(whole.encode()).hexdigest()[:16]
        keeps_state = self._keeps_state(call.input)
        if keeps_state:
            await self._forget_collected()
        exec_request = ExecRequest(
            key=call.idempotency_key,
            argv=wrap_command(
                command,
                shell=shell,
                keeps_state=keeps_state,
                was_used=self.resumed or shell in self.used,
                restart=restart,
            ),
            wall_seconds=seconds or self.default_seconds,
            max_bytes=self.max_output_bytes,
            env=self.variables,
        )
        try:
            ran = await self.sandbox.run(exec_request, LiveText(call.say))
            if ran.stop_cause == "lost" and not keeps_state:
                # it only reads: running it again is safe
                await self.sandbox.forget(exec_request.key)
                ran = await self.sandbox.run(exec_request, LiveText(call.say))
        except SandboxFailed as error:
            return ToolResult.text(f"Not run: {error}", ok=False, error="unavailable")
        self.used.add(shell)
        return self._outcome(call, ran)

    async def probe(self, call: Call) -> ToolResult | None:
        try:
            ran = await self.sandbox.find_result(call.idempotency_key)
        except SandboxFailed:
            ran = ExecResult(status=-1, stdout=_EMPTY, stderr=_EMPTY, stop_cause="lost")
        return None if ran is None else self._outcome(call, ran)

    def _outcome(self, call: Call, result: ExecResult) -> ToolResult:
        self.collected.add(call.idempotency_key)
        timeout = call.input.get("timeout_ms")
        seconds = timeout / 1000 if isinstance(timeout, int) and timeout else self.default_seconds
        is_restart = not str(call.input.get("command", "")).strip()
        return _command_result(result, seconds, is_restart=is_restart)

    async def _forget_collected(self) -> None:
        while self.collected:
            key = self.collected.pop()
            with suppress(ToolEnvironmentError):  # a result kept too long only costs memory
                await self.sandbox.forget(key)


def _command_result(result: ExecResult, seconds: float, *, is_restart: bool) -> ToolResult:
    output = (captured_text(result.stdout) + captured_text(result.stderr)).strip("\n")
    notes: list[str] = []
    if result.stop_cause == "time":
        notes.append(f"[stopped: it took longer than {seconds:g} s; {_UNCHANGED}]")
    elif result.stop_cause is not None:
        notes.append(f"[{_STOPPED[result.stop_cause]}]")
    elif result.status != 0:
        notes.append(f"[exit status {result.status}]")
    elif not output:
        notes.append("(the shell was restarted)" if is_restart else "(no output)")
    ok = result.stop_cause is None and result.status == 0
    cause = result.stop_cause
    error = None if ok else _FAILURES.get(cause, "failed") if cause else "failed"
    details = {"status": result.status, "stopped": cause, "milliseconds": result.milliseconds}
    text = "\n".join([*([output] if output else []), *notes])
    return ToolResult((TextBlock(text),), ok, details, error)
