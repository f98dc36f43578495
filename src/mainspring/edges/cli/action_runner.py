"""Runs the action of a command, prints errors with hints, and returns the exit status."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Awaitable
from io import TextIOWrapper

import anyio
import typer

from mainspring.config import Settings, read_settings
from mainspring.core import errors
from mainspring.edges.cli.commands import Action
from mainspring.edges.cli.render.printing import Screen
from mainspring.log.task_groups import unwrap_single_error

FAILED_STATUS = 1  # the usual status of a failure
INTERRUPTED_STATUS = 130  # a shell's status after SIGINT: 128 + 2
PIPE_BROKEN_STATUS = 141
"""The status that a shell reports for a program ended by SIGPIPE."""

_TRACEBACK_HINT = "--debug or MAINSPRING_DEBUG=1 shows the traceback"
_HINTS: dict[type[errors.MainspringError], str] = {
    errors.StoreReadOnly: "`mainspring doctor` shows which folders are not writable",
    errors.StoreUnavailable: "`mainspring doctor` checks this machine",
    errors.StoreMismatch: "--store or MAINSPRING_STORE names another store",
}
"""Hints for errors that have no entry in the error table."""
_TENANT_HINT = "`mainspring tenants ls` lists the tenants; `mainspring serve` creates `default`"


def run_action(action: Action, *, store: str | None, debug: bool) -> int:
    gc.freeze()
    gc.enable()
    settings = read_settings(store=store, debug=debug)
    _configure_output()
    try:
        status = anyio.run(action, settings)
        sys.stdout.flush()  # so that a closed pipe raises here, not at exit
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_BROKEN_STATUS
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except typer.BadParameter:  # a usage error: Typer prints it
        raise
    except Exception as error:  # noqa: BLE001 (the last place before the user)
        _print_error(settings, error)
    return FAILED_STATUS


def _configure_output() -> None:
    """Escape characters that the encoding lacks, instead of failing. Lines are flushed to a pipe
    too: `serve` prints its address and then runs for days."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def hints_for(error: errors.MainspringError) -> list[str]:
    """What to do about an error: its notes, then the fixes of its entry."""
    notes: list[str] = getattr(error, "__notes__", [])
    hints = [note for note in notes if note not in error.fix_in_python] + [*error.fix]
    if not hints and isinstance(error, errors.NotFound) and error.kind == "tenant":
        return [_TENANT_HINT]
    return hints or [hint for kind, hint in _HINTS.items() if isinstance(error, kind)][:1]


async def report_errors(
    settings: Settings, step: Awaitable[int | None], *, with_bugs: bool
) -> int | None:
    """Await a step of a command that goes on after an error, which is printed. `with_bugs`: not
    only an error of ours."""
    try:
        with unwrap_single_error():
            return await step
    except BrokenPipeError:  # nobody reads what is printed
        raise
    except Exception as error:
        if not with_bugs and not isinstance(error, errors.MainspringError):
            raise
        _print_error(settings, error)
        return None


def _print_error(settings: Settings, error: Exception) -> None:
    """Print the exception that is being handled, and what to do about it."""
    match error:
        case errors.MainspringError():
            what, hints = str(error), hints_for(error)
        case OSError(filename=filename, strerror=problem):
            where = f"{filename}: " if filename else ""
            what, hints = f"{where}{problem or error}", [_TRACEBACK_HINT]
        case _:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            hints = [f"this is a bug in Mainspring; {_TRACEBACK_HINT}"]
    screen = Screen(settings, stderr=True)
    if settings.debug:
        screen.text(traceback.format_exc())
    screen.paragraph((f"error: {what}", "bold red"))
    for hint in hints:
        screen.paragraph((f"hint: {hint}", "dim"))
