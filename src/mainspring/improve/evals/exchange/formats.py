"""Detects the format of another tool's file or folder."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import cast

import msgspec
import yaml

from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import read_bounded
from mainspring.improve.evals.exchange.harbor import read_tasks
from mainspring.improve.evals.exchange.imported_suite import ImportedSuite, as_id
from mainspring.improve.evals.exchange.inspect_log import read_inspect_log
from mainspring.improve.evals.exchange.promptfoo import read_promptfoo
from mainspring.improve.evals.exchange.skill_creator import read_skill_evals

_MAX_BYTES = 50_000_000  # of a foreign file, which is read whole


def read_imported_suite(source: Path, time: datetime) -> ImportedSuite:
    """Raises: InvalidInput: its format is unknown, or it is damaged."""
    if source.is_dir():
        return read_tasks(source)
    content = read_bounded(source, max_bytes=_MAX_BYTES)
    if content is None:
        raise InvalidInput(f"{source}: there is no such file")
    name = as_id(source.stem)
    try:
        tree = _tree(content, is_json=source.suffix == ".json")
        names = _keys(tree)
        if {"version", "eval"} <= names:
            return read_inspect_log(tree, name, time)
        if "evals" in names:
            return read_skill_evals(tree, name)
        if "tests" in names:
            return read_promptfoo(tree, name)
    except (yaml.YAMLError, msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{source}: {error}") from error
    formats = "promptfoo's `tests`, skill-creator's `evals`, Inspect's log, a folder of Harbor"
    raise InvalidInput(f"{source}: its format is none of these: {formats}")


def _tree(content: bytes, *, is_json: bool) -> object:
    """Parse JSON or YAML. JSON is valid YAML, but the JSON parser is a hundred times as fast."""
    return msgspec.json.decode(content) if is_json else yaml.safe_load(content)


def _keys(tree: object) -> set[str]:
    return set(cast("dict[str, object]", tree)) if isinstance(tree, dict) else set()
