"""Loads the suites that a command names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mainspring.core.errors import InvalidInput
from mainspring.error_table import with_hints
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suites.suite_files import EVALS_FOLDER, find_suites, read_suite

SuitesArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SUITE]...", help="Names of suites, or files. [default: all]"),
]


def load_suites(folder: Path, names: list[str]) -> list[SuiteFile]:
    """
    Raises:
        InvalidInput: there is no such suite, or it has mistakes.
    """
    files = find_suites(folder)
    if names:
        return [_read(_find(name, files, folder), folder) for name in names]
    if not files:
        error = InvalidInput(f"there are no suites in {folder / EVALS_FOLDER}")
        raise with_hints(error, "`mainspring eval init` writes a first one")
    return [_read(file, folder) for file in files]


def _find(name: str, files: list[Path], folder: Path) -> Path:
    for file in (*files, folder / name):
        if name in (file.stem, file.name) or (file == folder / name and file.is_file()):
            return file
    raise InvalidInput(
        f"there is no suite {name}; there are {', '.join(file.stem for file in files) or 'none'}"
    )


def _read(file: Path, folder: Path) -> SuiteFile:
    is_below = file.is_relative_to(folder)
    return read_suite(file, display_path=str(file.relative_to(folder)) if is_below else str(file))
