"""A table of word vectors as `encode`, read without numpy: a file beside the repository, only for
measuring.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

TABLE = Path(__file__).parents[2] / "shared/data/vectors/potion-base-8M-int8-128.npz"
_DIMENSIONS = 128
_WORD = re.compile(r"[^\W_]+")


class StaticVectors:
    """The mean of the vectors of a text's word pieces."""

    def __init__(self, table: Path) -> None:
        with zipfile.ZipFile(table) as entries:
            self._numbers = array("b", _data(entries.read("q.npy")))
            scales = _data(entries.read("s.npy"))
            pieces = _data(entries.read("vocab.npy")).decode().split("\n")
        self._scales = struct.unpack(f"<{len(pieces)}e", scales)
        self._pieces = {piece: number for number, piece in enumerate(pieces)}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text.lower()) for text in texts]

    def _vector(self, text: str) -> list[float]:
        total = [0.0] * _DIMENSIONS
        for word in _WORD.findall(text):
            for piece in self._word_pieces(word):
                scale = self._scales[piece]
                row = self._numbers[piece * _DIMENSIONS : (piece + 1) * _DIMENSIONS]
                total = [whole + scale * part for whole, part in zip(total, row, strict=True)]
        length = math.hypot(*total)
        return [part / length for part in total] if length else total

    def _word_pieces(self, word: str) -> Iterator[int]:
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((at for at in ends if f"{mark}{word[start:at]}" in self._pieces), None)
            if end is None:
                return
            yield self._pieces[f"{mark}{word[start:end]}"]
            start = end


def _data(content: bytes) -> bytes:
    """What follows the header of a file of the format NPY 1.0."""
    (length,) = struct.unpack_from("<H", content, 8)
    return content[10 + length :]
