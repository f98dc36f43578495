"""Writes suites into an agent's folder: a first suite, or a ready one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from mainspring.core.errors import InvalidInput
from mainspring.improve.evals.suite import Suite
from mainspring.improve.evals.suites.suite_files import EVALS_FOLDER

_FIRST_SUITE = """\
# A suite has cases and graders. `mainspring eval run` runs each case as a real session of the
# agent, in a workspace of its own, and grades the log and the files. All fields: docs/evals.md
description: The first cases of this agent.
trials: 1

cases:
  - id: says-hello
    input: "Reply with the single word: hello"
    graders:
      - {type: contains, text: hello, ignore_case: true}
      - {type: bounds, max_turns: 2, max_answer_chars: 200}

  - id: writes-a-file
    input: "Write the sum of the numbers in numbers.txt into sum.txt, and nothing else."
    files:
      numbers.txt: "17\\n25\\n"
    mode: acceptEdits
    graders:
      - {type: file, path: sum.txt, pattern: "^42\\\\s*$"}
      - {type: file, path: numbers.txt, unchanged: true}

  - id: leaves-files-alone
    input: "What is in numbers.txt? Do not change anything."
    files:
      numbers.txt: "17\\n25\\n"
    graders:
      - {type: contains, text: ["17", "25"]}
      - {type: trajectory, no_effects: true}
"""


def write_first_suite(folder: Path) -> Path:
    """
    Raises:
        InvalidInput: there is one already, or the folder cannot be written.
    """
    return _write_new(folder / EVALS_FOLDER / "basics.yaml", _FIRST_SUITE)


def copy_ready_suite(folder: Path, file: Path) -> Path:
    """Copy a ready suite into an agent's folder, for its owner to change.

    Raises:
        InvalidInput: there is one already, or the folder cannot be written.
    """
    return _write_new(folder / EVALS_FOLDER / file.name, file.read_text(encoding="utf-8"))


def write_suite(folder: Path, suite: Suite) -> Path:
    """Write the suite of another tool into an agent's folder.

    Raises:
        InvalidInput: there is one already, or the folder cannot be written.
    """
    plain = msgspec.to_builtins(suite)
    text = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)
    return _write_new(folder / EVALS_FOLDER / f"{suite.name}.yaml", text)


def _write_new(file: Path, text: str) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise InvalidInput(f"{file} exists already") from None
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from error
    return file
