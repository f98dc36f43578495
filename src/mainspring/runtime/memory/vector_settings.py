"""Which table of vectors searches use, if any: a person sets it once for all agents."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.files.atomic_file import write_atomic
from mainspring.retrieval.bm25 import Encode
from mainspring.retrieval.passage_index import Vectors

if TYPE_CHECKING:
    from mainspring.retrieval import passage_vectors, static_vectors
else:
    passage_vectors = LazyModule("mainspring.retrieval.passage_vectors")  # they need numpy
    static_vectors = LazyModule("mainspring.retrieval.static_vectors")

_FILE = ".mainspring/memory-vectors.json"


class VectorSettings(Struct, frozen=True, kw_only=True):
    table: str
    """An `.npz` file, or a folder of model2vec."""
    fingerprint: str = ""


def read_vector_settings(home: Path) -> VectorSettings | None:
    """Raises: InvalidInput."""
    try:
        content = (home / _FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=VectorSettings)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{home / _FILE}: {error}") from error


def set_vectors(home: Path, table: Path) -> VectorSettings:
    """Raises: InvalidInput: it is no table, or numpy is missing."""
    vectors = _vectors(str(table.absolute()), _stamp(table))
    settings = VectorSettings(table=str(table.absolute()), fingerprint=vectors.fingerprint)
    write_atomic(home / _FILE, msgspec.json.encode(settings))
    return settings


def remove_vectors(home: Path) -> None:
    (home / _FILE).unlink(missing_ok=True)


def open_vectors(home: Path) -> Vectors | None:
    """Raises: InvalidInput: the table is gone, or numpy is missing."""
    settings = read_vector_settings(home)
    if settings is None:
        return None
    return _vectors(settings.table, _stamp(Path(settings.table)))


def _stamp(table: Path) -> float:
    try:
        return table.stat().st_mtime
    except OSError as error:
        raise InvalidInput(
            f"{table}: {error.strerror}; `mainspring memory vectors off` searches without vectors"
        ) from error


def open_encode(home: Path) -> Encode | None:
    """For searches in memory. Without a table that can be read, they search by words alone: what
    is wrong with it, `open_vectors` says.
    """
    try:
        settings = read_vector_settings(home)
        if settings is None:
            return None
        table = _static_table(settings.table, _stamp(Path(settings.table)))
    except InvalidInput:
        return None
    return lambda texts: table.encode(texts).tolist()


@cache
def _vectors(table: str, stamp: float) -> Vectors:
    return passage_vectors.PassageVectors(_static_table(table, stamp))


@cache
def _static_table(table: str, _stamp: float) -> static_vectors.StaticTable:
    try:
        return static_vectors.read_static_table(Path(table))
    except ImportError as error:
        raise InvalidInput(
            "vectors need numpy: install mainspring[vectors], or run `mainspring memory vectors"
            " off`"
        ) from error
