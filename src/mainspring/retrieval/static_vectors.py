"""Vectors of texts from a static table: the mean of the vectors of their word pieces. It needs only
numpy and no model. Mainspring ships no table; users provide one.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, cast
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from mainspring.core.errors import InvalidInput

Matrix: TypeAlias = NDArray[np.float32]
_PIECES = re.compile(r"[^\W_]+|[^\w\s]|_")
_MAX_CACHED_WORDS = 200_000  # words whose rows of the table are remembered
_MAX_HEADER = 100_000_000  # bytes of a foreign file's header
_TYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8}


class Encoder(Protocol):
    """Its methods block."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the vectors change."""
        ...

    @property
    def knows_words(self) -> bool:
        """Whether it is cheap enough to encode single words."""
        ...

    def encode(self, texts: Sequence[str]) -> Matrix:
        """A row of length 1 for each text; zeros for one without known words."""
        ...


class StaticTable:
    knows_words = True

    def __init__(self, rows: Matrix, vocabulary: Mapping[str, int], fingerprint: str) -> None:
        self._rows = rows
        self._vocabulary = vocabulary
        self._numbers: dict[str, list[int]] = {}
        self.fingerprint = fingerprint

    def encode(self, texts: Sequence[str]) -> Matrix:
        vectors = np.zeros((len(texts), self._rows.shape[1]), np.float32)
        for at, text in enumerate(texts):
            numbers = [number for word in _words(text) for number in self._pieces(word)]
            if numbers:
                vectors[at] = self._rows[numbers].mean(axis=0)
        return unit_rows(vectors)

    def _pieces(self, word: str) -> list[int]:
        """The longest pieces of the vocabulary, from the left; none if one is missing."""
        cached = self._numbers.get(word)
        if cached is not None:
            return cached
        numbers: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), None)
            if end is None:
                numbers = []
                break
            numbers.append(self._vocabulary[prefix + word[start:end]])
            start = end
        if len(self._numbers) < _MAX_CACHED_WORDS:
            self._numbers[word] = numbers
        return numbers


def read_static_table(place: Path) -> StaticTable:
    """An `.npz` file (`q`: int8 rows, `s`: a scale for each, `vocab`: a piece a line), or a folder
    of model2vec (`model.safetensors`, `tokenizer.json` with word pieces).

    Raises:
        InvalidInput: it is neither.
    """
    try:
        return _read_folder(place) if place.is_dir() else _read_table(place)
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise InvalidInput(f"{place} is not a table of vectors: {error}") from error


def unit_rows(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-9).astype(np.float32)


def _read_table(file: Path) -> StaticTable:
    content = file.read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        rows = stored["q"].astype(np.float32) * stored["s"].astype(np.float32)
        pieces = bytes(stored["vocab"]).decode().split("\n")
    if len(pieces) != len(rows):
        raise ValueError("the vocabulary and the rows differ in number")
    return _table(rows, {piece: at for at, piece in enumerate(pieces)}, content)


def _read_folder(folder: Path) -> StaticTable:
    content = (folder / "model.safetensors").read_bytes()
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    if tokenizer["model"]["type"] != "WordPiece":
        raise ValueError(f"its tokenizer is {tokenizer['model']['type']}; only WordPiece is read")
    rows = _tensor(content, "embeddings")
    vocabulary = cast("dict[str, int]", tokenizer["model"]["vocab"])
    if not vocabulary or max(vocabulary.values()) >= len(rows):
        raise ValueError("the vocabulary and the rows differ in number")
    return _table(rows, vocabulary, content)


def _tensor(content: bytes, name: str) -> Matrix:
    """One tensor of a file in the format safetensors."""
    size = int.from_bytes(content[:8], "little")
    if size > min(_MAX_HEADER, len(content)):
        raise ValueError("its header is damaged")
    entry = json.loads(content[8 : 8 + size])[name]
    start, end = entry["data_offsets"]
    values = np.frombuffer(content[8 + size + start : 8 + size + end], _TYPES[entry["dtype"]])
    return values.reshape(entry["shape"]).astype(np.float32)


def _table(rows: Matrix, vocabulary: Mapping[str, int], content: bytes) -> StaticTable:
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise ValueError("its rows are not numbers")
    return StaticTable(rows, vocabulary, f"static/{hashlib.sha256(content).hexdigest()[:24]}")


def _words(text: str) -> list[str]:
    text = text.lower()
    if not text.isascii():
        parts = unicodedata.normalize("NFD", text)
        text = "".join(part for part in parts if unicodedata.category(part) != "Mn")
    return _PIECES.findall(text)
