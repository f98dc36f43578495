"""Keys of `agent.yaml` about real sessions: objectives (`slo`), and which share of them is graded
(`grade`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from msgspec import Struct, to_builtins

from mainspring.files.atomic_file import read_bounded
from mainspring.runtime.definition_files.yaml_reader import (
    FieldReaders,
    Node,
    YamlReader,
    YamlValueError,
)

_MAX_SUITE_BYTES = 50_000_000  # of one suite, as `suite_files.py` reads it
_SUITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ServiceObjectives(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Objectives for real requests; `None`: no objective."""

    max_errors_per_10000_calls: float | None = None
    max_p95_seconds: float | None = None
    min_share_without_person: float | None = None


class ManifestGrade(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which share of the agent's real sessions is graded, by which suite, and the cost limit."""

    suite: str = ""
    """The suite whose graders for every case are used."""
    share: float = 0.05
    max_cost_usd_per_day: Decimal = Decimal(1)
    """The limit for grading the sessions that began on one day."""


def _share(reader: YamlReader) -> Callable[[Node], float]:
    def read(node: Node) -> float:
        value = reader.number(float, "a number")(node)
        if value > 1:
            raise YamlValueError(node, f"must be a share from 0 to 1, not {value:g}")
        return value

    return read


def read_objectives(reader: YamlReader) -> Callable[[Node], ServiceObjectives]:
    number = reader.number(float, "a number")
    readers: FieldReaders = {
        "max_errors_per_10000_calls": number,
        "max_p95_seconds": number,
        "min_share_without_person": _share(reader),
    }
    return lambda node: ServiceObjectives(**reader.fields(node, readers))  # pyright: ignore[reportArgumentType] (each reader gives what its field holds)


def read_grade(reader: YamlReader) -> Callable[[Node], ManifestGrade]:
    def suite(node: Node) -> str:
        name = reader.string(node)
        if not _SUITE_NAME.fullmatch(name):
            raise YamlValueError(node, f"must be the name of a suite in evals/, not {name!r}")
        return name

    readers: FieldReaders = {
        "suite": suite,
        "share": _share(reader),
        "max_cost_usd_per_day": reader.number(Decimal, "an amount in US dollars"),
    }

    def read(node: Node) -> ManifestGrade:
        grade = ManifestGrade(**reader.fields(node, readers))  # pyright: ignore[reportArgumentType] (each reader gives what its field holds)
        if not grade.suite:
            raise YamlValueError(node, "must have a `suite`, whose graders are used")
        return grade

    return read


def trusted_fields(grade: ManifestGrade, folder: Path) -> dict[str, object]:
    """The fields that trust in the folder covers, with the current suite, because it determines
    which models read the sessions."""
    file = folder / "evals" / f"{grade.suite}.yaml"
    content = read_bounded(file, max_bytes=_MAX_SUITE_BYTES) or b""
    return {**to_builtins(grade, str_keys=True), "graders": hashlib.sha256(content).hexdigest()}
