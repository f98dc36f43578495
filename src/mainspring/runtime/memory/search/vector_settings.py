"""The setting that gives searches vectors, from a table or an embedding endpoint. A person sets it
once for all agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.files.atomic_file import write_atomic
from mainspring.retrieval.bm25 import Encode
from mainspring.retrieval.passage_index import Vectors

if TYPE_CHECKING:
    from mainspring.retrieval import endpoint_vectors, passage_vectors, static_vectors
else:
    endpoint_vectors = LazyModule("mainspring.retrieval.endpoint_vectors")
    passage_vectors = LazyModule("mainspring.retrieval.passage_vectors")  # they need numpy
    static_vectors = LazyModule("mainspring.retrieval.static_vectors")

_FILE = ".mainspring/memory-vectors.json"


class VectorSettings(Struct, frozen=True, kw_only=True, omit_defaults=True):
    table: str = ""
    """An `.npz` file, or a model2vec folder."""
    model: str = ""
    """The model of an embedding endpoint, such as `openai:text-embedding-3-small`."""
    dimensions: int = 0
    """The length of the endpoint's vectors."""
    fingerprint: str = ""

    @property
    def source(self) -> str:
        return self.model or self.table


OpenEndpoint: TypeAlias = "Callable[[str], endpoint_vectors.Embed]"
"""Opens a model's endpoint. Raises: InvalidInput: its provider has none, or no key is set."""


def read_vector_settings(home: Path) -> VectorSettings | None:
    """Raises: InvalidInput."""
    try:
        content = (home / _FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(content, type=VectorSettings)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{home / _FILE}: {error}") from error


def set_vectors(home: Path, source: str, open_endpoint: OpenEndpoint) -> VectorSettings:
    """Set the vectors: a path, or `provider:model` of an embedding endpoint, tried once. Blocks.

    Raises: InvalidInput: the file is not a table, or numpy is missing; ProviderFailed.
    """
    if ":" in source and not Path(source).exists():
        settings = _endpoint_settings(source, open_endpoint)
    else:
        table = Path(source).absolute()
        vectors = _table_vectors(str(table), _stamp(table))
        settings = VectorSettings(table=str(table), fingerprint=vectors.fingerprint)
    write_atomic(home / _FILE, msgspec.json.encode(settings))
    return settings


def remove_vectors(home: Path) -> None:
    (home / _FILE).unlink(missing_ok=True)


def open_vectors(home: Path, open_endpoint: OpenEndpoint) -> Vectors | None:
    """Raises: InvalidInput: the table is missing, no key is set, or numpy is missing."""
    settings = read_vector_settings(home)
    if settings is None:
        return None
    if settings.model:
        return _endpoint_vectors(open_endpoint(settings.model), settings.dimensions)
    return _table_vectors(settings.table, _stamp(Path(settings.table)))


def _endpoint_settings(model: str, open_endpoint: OpenEndpoint) -> VectorSettings:
    embed = open_endpoint(model)
    ((*vector,),) = embed(["How many numbers has a vector?"])
    vectors = _endpoint_vectors(embed, len(vector))
    return VectorSettings(model=model, dimensions=len(vector), fingerprint=vectors.fingerprint)


_ENDPOINTS: dict[str, Vectors] = {}
"""Cached by fingerprint, because they hold an index's vectors in memory."""


def _endpoint_vectors(embed: endpoint_vectors.Embed, dimensions: int) -> Vectors:
    with _needs_numpy():
        encoder = endpoint_vectors.EndpointEncoder(embed, dimensions, time.monotonic)
        return _ENDPOINTS.setdefault(encoder.fingerprint, passage_vectors.PassageVectors(encoder))


def _stamp(table: Path) -> float:
    try:
        return table.stat().st_mtime
    except OSError as error:
        raise InvalidInput(
            f"{table}: {error.strerror}; `mainspring memory vectors off` searches without vectors"
        ) from error


def open_encode(home: Path) -> Encode | None:
    """Return the encoder for in-memory searches; `None` without a readable table, so that they
    search by words alone (`open_vectors` reports the problem). Never uses an endpoint.
    """
    try:
        settings = read_vector_settings(home)
        if settings is None or not settings.table:
            return None
        table = _static_table(settings.table, _stamp(Path(settings.table)))
    except InvalidInput:
        return None
    return lambda texts: table.encode(texts).tolist()


@cache
def _table_vectors(table: str, stamp: float) -> Vectors:
    return passage_vectors.PassageVectors(_static_table(table, stamp))


@cache
def _static_table(table: str, _stamp: float) -> static_vectors.StaticTable:
    with _needs_numpy():
        return static_vectors.read_static_table(Path(table))


@contextmanager
def _needs_numpy() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise InvalidInput(
            "vectors need numpy: install mainspring[vectors], or run `mainspring memory vectors"
            " off`"
        ) from error
