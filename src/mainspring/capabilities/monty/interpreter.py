"""Monty's worker processes, with limits and read-only access to files of the workspace. Importing
this needs the `monty` extra."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import pydantic_monty as monty
from anyio import CapacityLimiter, from_thread, to_thread

from mainspring.capabilities.monty.python_tool import CallTool, InterpreterResult, RunEnd
from mainspring.core.content import plain_text
from mainspring.core.errors import OutsideWorkspace, ToolEnvironmentError
from mainspring.core.ports import FileState, Workspace
from mainspring.core.tool import ToolResult

_MAX_BYTES = 10_000_000  # of one file that a program reads


class ReadOnlyFiles:
    """Handles a program's operating system calls; everything but reading is refused.

    It is called in the thread that runs the program.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def __call__(
        self,
        *,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        is_async: bool,
        **_: object,
    ) -> object:
        match name, args:
            case "open", (path, str(mode)) if not set(mode) & set("wax+"):
                self._read(str(path))  # fails now if the file does not exist
                return monty.MontyFileHandle(str(path), mode)
            case "Path.read_text", (path, *_):
                return self._read(_path(path)).content.decode("utf-8", "replace")
            case "Path.read_bytes", (path, *_):
                return self._read(_path(path)).content
            case _:
                # Not an OSError: walking a folder would treat that as an empty folder.
                raise NotImplementedError(f"{name} is not possible here: files can only be read")

    def _read(self, path: str) -> FileState:
        try:
            return from_thread.run(self._bounded_read, path)
        except OutsideWorkspace as error:
            raise PermissionError(str(error)) from None
        except ToolEnvironmentError as error:
            raise OSError(str(error)) from None

    async def _bounded_read(self, path: str) -> FileState:
        return await self._workspace.read(path, max_bytes=_MAX_BYTES)


class ToolCaller:
    """`call_tool` of a program. It is called in the thread that runs the program."""

    def __init__(self, call_tool: CallTool) -> None:
        self._call_tool = call_tool

    def __call__(self, name: object, **inputs: object) -> str:
        if not isinstance(name, str):
            raise TypeError("call_tool takes the name of a tool, then its inputs by name")
        result = from_thread.run(self._call, name, inputs)
        text = plain_text(result.content)
        if not result.ok:
            raise RuntimeError(text)
        return text

    async def _call(self, name: str, inputs: Mapping[str, object]) -> ToolResult:
        return await self._call_tool(name, inputs)


def _path(value: object) -> str:
    return value.path if isinstance(value, monty.MontyFileHandle) else str(value)


_MAX_VALUE_CHARS = 50_000  # of one value that is shown
_UNSUPPORTED = (
    NotImplementedError,
    ImportError,
    PermissionError,
    AttributeError,
    NameError,
    SyntaxError,
)
_SAYS_UNSUPPORTED = "is not supported in this environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterpreterLimits:
    seconds: float = 5.0
    memory_bytes: int = 64_000_000
    sleep_seconds: float = 1.0
    output_bytes: int = 200_000
    recursion: int = 500


class Interpreter:
    """A pool of workers for all sessions; each program has its own worker while it runs, and leaves
    no state for the next one."""

    def __init__(self, *, processes: int = 2, limits: InterpreterLimits | None = None) -> None:
        self._limits = limits or InterpreterLimits()
        self._pool = monty.Monty(
            min_processes=0,  # the first program starts the first worker
            max_processes=processes,
            # A worker that does not end in time is killed.
            request_timeout=self._limits.seconds + self._limits.sleep_seconds + 5.0,
        )
        self._seats = CapacityLimiter(processes)

    async def __aenter__(self) -> Self:
        await to_thread.run_sync(self._pool.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_thread.run_sync(partial(self._pool.__exit__, None, None, None))

    async def run(
        self, code: str, workspace: Workspace | None = None, call_tool: CallTool | None = None
    ) -> InterpreterResult:
        # The limits bound how long an abandoned thread continues.
        return await to_thread.run_sync(
            self._run, code, workspace, call_tool, limiter=self._seats, abandon_on_cancel=True
        )

    def _run(
        self, code: str, workspace: Workspace | None, call_tool: CallTool | None
    ) -> InterpreterResult:
        printed = monty.CollectString(self._limits.output_bytes)
        names = {} if call_tool is None else {"call_tool": ToolCaller(call_tool)}
        try:
            value = self._run_worker(code, workspace, printed, names)
        except monty.MontyError as error:
            run_end = _run_end(error, printed.output, self._limits.output_bytes)
            return InterpreterResult(
                run_end=run_end, output=printed.output, message=_message(error)
            )
        except (ValueError, RecursionError, OverflowError) as error:  # not convertible
            message = str(error)[:1000]
            return InterpreterResult(run_end="raised", output=printed.output, message=message)
        return InterpreterResult(run_end="done", output=printed.output, value=_value_text(value))

    def _run_worker(
        self,
        code: str,
        workspace: Workspace | None,
        printed: monty.CollectString,
        names: dict[str, ToolCaller],
    ) -> object:
        limits = monty.ResourceLimits(
            max_feed_duration_secs=self._limits.seconds,
            max_memory=self._limits.memory_bytes,
            max_total_sleep_secs=self._limits.sleep_seconds,
            max_recursion_depth=self._limits.recursion,
        )
        policy = monty.OSPolicy(sleep="system", sleep_system_max=self._limits.sleep_seconds)
        files = None if workspace is None else ReadOnlyFiles(workspace)
        folder = None if workspace is None else str(workspace.root)
        with self._pool.checkout(limits=limits, os_policy=policy) as session:
            return session.feed_run(
                code, external_lookup=names, print_callback=printed, os=files, cwd=folder
            )


def _value_text(value: object) -> str:
    return "" if value is None else repr(value)[:_MAX_VALUE_CHARS]


def _message(error: monty.MontyError) -> str:
    if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return error.display("traceback")[-4000:]
    return str(error)[:1000]


def _run_end(error: monty.MontyError, output: str, max_output: int) -> RunEnd:
    if isinstance(error, monty.MontyCrashedError):
        return "time" if error.timed_out else "crashed"
    raised = error.exception()
    match raised:
        case TimeoutError():
            return "time"
        case MemoryError():
            is_output = f"> {max_output} bytes" in str(raised)
            return "output" if is_output or len(output) >= max_output else "memory"
        case _ if isinstance(raised, _UNSUPPORTED) or _SAYS_UNSUPPORTED in str(raised):
            return "unsupported"
        case _:
            return "raised"
