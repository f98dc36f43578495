"""Which suites a command means, and the arguments that name them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.suite import SuiteFile
from mainspring.improve.evals.suite_files import EVALS_FOLDER, find_suites, read_suite

AgentOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--agent", metavar="DIR", help="The agent's folder. [default: this folder]"),
]
SuitesArgument: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SUITE]...", help="Names of suites, or files. [default: all]"),
]


def load_suites(folder: Path, names: list[str]) -> list[SuiteFile]:
    """
    Raises:
        InvalidInput: there is no such suite, or it has mistakes.
    """
    known = find_suites(folder)
    if not names:
        if not known:
            missing = InvalidInput(f"there are no suites in {folder / EVALS_FOLDER}")
            missing.fix = ("`mainspring eval init` writes a first one",)
            raise missing
        return [_read(file, folder) for file in known]
    return [_read(_find(name, known, folder), folder) for name in names]


def _find(name: str, known: list[Path], folder: Path) -> Path:
    for file in known:
        if name in (file.stem, file.name):
            return file
    given = folder / name
    if given.is_file():
        return given
    raise InvalidInput(
        f"there is no suite {name}; there are {', '.join(file.stem for file in known) or 'none'}"
    )


def _read(file: Path, folder: Path) -> SuiteFile:
    is_below = file.is_relative_to(folder)
    return read_suite(file, shown=str(file.relative_to(folder)) if is_below else str(file))
