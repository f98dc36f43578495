"""Runs a command's action and prints errors with hints; the exit status comes out."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from io import TextIOWrapper

import anyio
import typer

from mainspring.config import Settings, read_settings
from mainspring.core import errors
from mainspring.edges.cli.commands import Action
from mainspring.edges.cli.printing import Screen, sanitize_text

FAILED_STATUS = 1
INTERRUPTED_STATUS = 130
PIPE_BROKEN_STATUS = 141
"""What a shell reports for a program that SIGPIPE ended."""

_TRACEBACK_HINT = "--debug or MAINSPRING_DEBUG=1 shows the traceback"
_HINTS: dict[type[errors.MainspringError], str] = {
    errors.StoreReadOnly: "`mainspring doctor` says who may write where",
    errors.StoreUnavailable: "`mainspring doctor` looks closer",
    errors.StoreMismatch: "--store or MAINSPRING_STORE names another store",
}
"""For errors that are not raised from an entry of the table."""


def run_action(action: Action, *, store: str | None, debug: bool) -> int:
    gc.freeze()
    gc.enable()
    settings = read_settings(store=store, debug=debug)
    _escape_unencodable_output()
    try:
        status = anyio.run(action, settings)
        sys.stdout.flush()  # a reader that has gone away is noticed here, not at exit
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_BROKEN_STATUS
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except typer.BadParameter:  # a usage error: Typer prints it
        raise
    except errors.MainspringError as error:
        _print_error(settings, str(error), hints_for(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _print_error(settings, f"{where}{error.strerror or error}", [_TRACEBACK_HINT])
    except Exception as error:  # noqa: BLE001 (the last place before the user)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _print_error(settings, what, [f"this is a bug in Mainspring; {_TRACEBACK_HINT}"])
    return FAILED_STATUS


def _escape_unencodable_output() -> None:
    """A terminal that lacks a character is no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def hints_for(error: errors.MainspringError) -> list[str]:
    """What to do about it: what was noted where it was raised, then what its entry says."""
    notes: list[str] = getattr(error, "__notes__", [])
    hints = [note for note in notes if note not in error.fix_in_python] + [*error.fix]
    return hints or [hint for kind, hint in _HINTS.items() if isinstance(error, kind)][:1]


def _print_error(settings: Settings, what: str, hints: list[str]) -> None:
    screen = Screen(settings, stderr=True)
    if settings.debug:
        screen.raw(sanitize_text(traceback.format_exc()))
    screen.paragraph((f"error: {what}", "bold red"))
    for hint in hints:
        screen.paragraph((f"hint: {hint}", "dim"))
