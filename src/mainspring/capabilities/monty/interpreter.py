"""Monty's worker processes, within limits. Importing this needs the `monty` extra.

The synchronous pool in threads, not the asynchronous one: that one aborted the whole process at
its end in every third run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import pydantic_monty as monty
from anyio import CapacityLimiter, to_thread

from mainspring.capabilities.monty.files import ReadOnlyFiles
from mainspring.capabilities.monty.finished import Ended, Finished
from mainspring.core.hands import Workspace

_MAX_VALUE_CHARS = 50_000
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
class Limits:
    seconds: float = 5.0
    memory_bytes: int = 64_000_000
    sleep_seconds: float = 1.0
    output_bytes: int = 200_000
    recursion: int = 500


class Interpreter:
    """A pool of workers for all sessions; each program has a worker of its own while it runs,
    and nothing of it is left when the next one comes."""

    def __init__(self, *, processes: int = 2, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._pool = monty.Monty(
            min_processes=0,  # the first program starts the first worker
            max_processes=processes,
            # A worker that does not end when it should is killed.
            request_timeout=self._limits.seconds + self._limits.sleep_seconds + 5.0,
        )
        self._seats = CapacityLimiter(processes)

    async def __aenter__(self) -> Self:
        await to_thread.run_sync(self._pool.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await to_thread.run_sync(partial(self._pool.__exit__, None, None, None))

    async def run(self, code: str, workspace: Workspace | None = None) -> Finished:
        # Limits bound how long a thread that nobody waits for any more goes on.
        return await to_thread.run_sync(
            self._run, code, workspace, limiter=self._seats, abandon_on_cancel=True
        )

    def _run(self, code: str, workspace: Workspace | None) -> Finished:
        printed = monty.CollectString(self._limits.output_bytes)
        try:
            value = self._fed(code, workspace, printed)
        except monty.MontyError as error:
            ended = _ended(error, printed.output, self._limits.output_bytes)
            return Finished(ended=ended, output=printed.output, message=_message(error))
        except (ValueError, RecursionError, OverflowError) as error:  # a value with no form here
            return Finished(ended="raised", output=printed.output, message=str(error)[:1000])
        return Finished(ended="done", output=printed.output, value=_shown(value))

    def _fed(self, code: str, workspace: Workspace | None, printed: monty.CollectString) -> object:
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
            return session.feed_run(code, print_callback=printed, os=files, cwd=folder)


def _shown(value: object) -> str:
    return "" if value is None else repr(value)[:_MAX_VALUE_CHARS]


def _message(error: monty.MontyError) -> str:
    if isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return error.display("traceback")[-4000:]
    return str(error)[:1000]


def _ended(error: monty.MontyError, output: str, max_output: int) -> Ended:
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
