"""Hooks that are programs: started outside the sandbox, with the event on stdin; their exit status
and output are the result.

The runner passes only handlers of a trusted scope.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread

from mainspring.capabilities.hooks.config import CommandHook
from mainspring.capabilities.hooks.folder_copies import FolderCopies, rewrite_to_copy
from mainspring.capabilities.hooks.scripts import Scripts, UntrustedScript, copied_scripts
from mainspring.capabilities.hooks.verdict import HandlerReply, HookFailure, read_exit
from mainspring.core.errors import InvalidInput
from mainspring.core.hook import HookEventName, HookFolder
from mainspring.processes import signal_group, start_process

if TYPE_CHECKING:
    from anyio.abc import Process

MAX_BYTES = 1_000_000
"""The limit for stdout, and for stderr: a hook that writes more is killed, and has failed."""

_DRAIN_SECONDS = 0.5  # for output that is still in the pipe when the hook has ended
_PASSED_VARIABLES = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "LANG", "LANGUAGE", "TZ", "TERM"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    )
)
_PROJECT = "CLAUDE_PROJECT_DIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEnvironment:
    """The environment of a hook's program."""

    project: Path
    """The working directory of the program."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Our environment. Programs get only variables for locations and display, none that could be a
    secret."""
    also_passed: frozenset[str] = frozenset()
    """Names of further variables that they get."""
    scripts: Scripts | None = None
    """Which files they may run from folders that an agent may write to; `None`: any."""
    folder: HookFolder | None = None
    """The plugin or the skill that the hook comes from."""
    copies: FolderCopies | None = None

    def variables(self, event: HookEventName) -> dict[str, str]:
        names = _PASSED_VARIABLES | self.also_passed
        values = self.environment.items()
        inherited = {
            name: value for name, value in values if name in names or name.startswith("LC_")
        }
        return {
            **inherited,
            _PROJECT: str(self.project),
            "MAINSPRING_PROJECT_DIR": str(self.project),
            "MAINSPRING_HOOK_EVENT": event,
        }


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The result of a program that has ended."""

    status: int
    stdout: bytes
    stderr: bytes


async def run_command(
    handler: CommandHook, event: HookEventName, payload: bytes, around: HookEnvironment
) -> HandlerReply:
    """Run a program to its end, and parse its output as that of a hook."""
    process_exit = await run_program(handler, payload, around, around.variables(event))
    if isinstance(process_exit, HookFailure):
        return process_exit
    return read_exit(
        event, process_exit.status, stdout=process_exit.stdout, stderr=process_exit.stderr
    )


async def run_program(
    handler: CommandHook, payload: bytes, around: HookEnvironment, variables: dict[str, str]
) -> ProcessExit | HookFailure:
    """Run a program to its end. On cancellation, it is killed with all its children."""
    if not hasattr(os, "killpg"):
        return HookFailure("needs a system with process groups")
    with ExitStack() as files:
        try:
            words = await _command_words(handler, around, files, variables)
        except UntrustedScript as error:
            return HookFailure(str(error), is_changed=True)
        argv = _argv(handler, words, variables)
        stdin = files.enter_context(TemporaryFile())
        await anyio.to_thread.run_sync(_write_stdin, stdin, payload)
        stdout, stderr = _Pipe(files), _Pipe(files)
        started = start_process(
            argv,
            stdin=stdin,
            stdout=stdout.writer,
            stderr=stderr.writer,
            cwd=around.project,
            env=variables,
        )
        async with AsyncExitStack() as stack:
            try:
                process = await stack.enter_async_context(started)
            except (OSError, ValueError) as error:
                # Not the error's text, which could contain the whole command.
                why = error.strerror if isinstance(error, OSError) else "it cannot be passed on"
                return HookFailure(f"could not be started: {why}")
            status = await _exit_status(process, stdout, stderr)
    if status is None:
        return HookFailure(f"wrote more than {MAX_BYTES} bytes")
    return ProcessExit(status, bytes(stdout.output), bytes(stderr.output))


async def run_settings_command(
    name: str, text: str, payload: bytes, around: HookEnvironment, *, seconds: float
) -> str:
    """The output of a command that a settings file names under `name`, run like a hook.

    Raises: InvalidInput: it failed; the error says why.
    """
    process_exit: ProcessExit | HookFailure = HookFailure(f"did not end within {seconds:g} s")
    with anyio.move_on_after(seconds):
        variables = around.variables("Notification")
        del variables["MAINSPRING_HOOK_EVENT"]
        process_exit = await run_program(CommandHook(command=text), payload, around, variables)
    if isinstance(process_exit, HookFailure):
        raise InvalidInput(f"{name}: the command {process_exit.reason}")
    if process_exit.status != 0:
        raise InvalidInput(f"{name}: the command exited with {process_exit.status}")
    return process_exit.stdout.decode(errors="replace")


async def _command_words(
    handler: CommandHook, around: HookEnvironment, files: ExitStack, variables: dict[str, str]
) -> tuple[str, ...]:
    """The words of the command, with paths of copies for the files that it runs; the folder
    variables of a plugin's or skill's hook are added to `variables`.

    Raises: UntrustedScript.
    """
    words, scripts = (handler.command, *(handler.args or ())), around.scripts
    folder, copies = around.folder, around.copies
    if folder is None or copies is None or scripts is None:
        return await anyio.to_thread.run_sync(files.enter_context, copied_scripts(words, scripts))
    copy = await copies.of(folder.root, scripts)
    variables.update(_folder_variables(folder, copy))
    if folder.data:
        await anyio.to_thread.run_sync(lambda: os.makedirs(folder.data, mode=0o700, exist_ok=True))
    rewritten = rewrite_to_copy(words, folder.root, copy, scripts)
    return await anyio.to_thread.run_sync(files.enter_context, rewritten)


def _folder_variables(folder: HookFolder, copy: Path) -> dict[str, str]:
    if folder.kind == "skill":
        return {"CLAUDE_SKILL_DIR": str(copy)}
    root = {name: str(copy) for name in ("CLAUDE_PLUGIN_ROOT", "PLUGIN_ROOT")}
    return root | {name: folder.data for name in ("CLAUDE_PLUGIN_DATA", "PLUGIN_DATA")}


def _argv(handler: CommandHook, words: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    if handler.args is not None:
        project = variables[_PROJECT]
        return [word.replace(f"${{{_PROJECT}}}", project) for word in words]
    if handler.shell == "powershell":
        return ["pwsh", "-NoProfile", "-NonInteractive", "-Command", words[0]]
    shell = shutil.which("bash", path=variables.get("PATH")) or "/bin/sh"
    return [shell, "-c", words[0]]


def _write_stdin(stdin: IO[bytes], payload: bytes) -> None:
    stdin.write(payload)
    stdin.seek(0)


class _Pipe:
    """The output of a program. We create the pipe ourselves: a background process of the hook may
    keep its other end open, and then the event loop's own pipes cannot be closed."""

    def __init__(self, files: ExitStack) -> None:
        self._reader, self.writer = os.pipe()
        files.callback(os.close, self._reader)
        self._open_end = files.enter_context(ExitStack())
        self._open_end.callback(os.close, self.writer)
        os.set_blocking(self._reader, False)
        self.output = bytearray()
        self.ended = anyio.Event()

    async def read_all(self, too_much: Callable[[], None]) -> None:
        """Read until all writers have closed the pipe."""
        self._open_end.close()
        while True:
            await anyio.wait_readable(self._reader)
            with suppress(BlockingIOError):
                chunk = os.read(self._reader, 65_536)
                if not chunk:
                    break
                self.output += chunk
                if len(self.output) > MAX_BYTES:
                    too_much()
                    break
        self.ended.set()


async def _exit_status(process: Process, stdout: _Pipe, stderr: _Pipe) -> int | None:
    """The exit status of the program; `None` if it wrote too much, and is killed."""
    is_orderly = False
    async with anyio.create_task_group() as group:
        for pipe in (stdout, stderr):
            group.start_soon(pipe.read_all, group.cancel_scope.cancel)
        await process.wait()
        with anyio.move_on_after(_DRAIN_SECONDS):
            await stdout.ended.wait()
            await stderr.ended.wait()
        is_orderly = not group.cancel_scope.cancel_called
        group.cancel_scope.cancel()
    if not is_orderly:
        signal_group(process, signal.SIGKILL)
    return process.returncode if is_orderly else None
