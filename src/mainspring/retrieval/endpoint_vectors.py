"""Vectors of texts from a provider's embedding endpoint. If it fails, searches use only words for a
minute.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from mainspring.core.errors import ProviderFailed
from mainspring.retrieval.passage_index import VectorsUnavailable
from mainspring.retrieval.static_vectors import Matrix, unit_rows

_PAUSE_SECONDS = 60  # after a failure; searches go on without vectors
_MAX_CACHED = 256  # queries


class Embed(Protocol):
    """Blocks. Raises: ProviderFailed."""

    @property
    def identity(self) -> str: ...
    def __call__(self, texts: Sequence[str]) -> list[list[float]]: ...


class EndpointEncoder:
    knows_words = False

    def __init__(self, embed: Embed, dimensions: int, clock: Callable[[], float]) -> None:
        self.fingerprint = f"endpoint/{embed.identity}/{dimensions}"
        self._embed = embed
        self._dimensions = dimensions
        self._clock = clock
        self._paused_until = 0.0
        self._problem = ""
        self._queries: OrderedDict[str, Matrix] = OrderedDict()

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Raises: VectorsUnavailable."""
        if len(texts) != 1:
            return self._request_vectors(texts)
        if (cached := self._queries.get(texts[0])) is None:  # a question is encoded more than once
            cached = self._queries[texts[0]] = self._request_vectors(texts)
            if len(self._queries) > _MAX_CACHED:
                self._queries.popitem(last=False)
        return cached

    def _request_vectors(self, texts: Sequence[str]) -> Matrix:
        vectors = np.zeros((len(texts), self._dimensions), np.float32)
        present = [at for at, text in enumerate(texts) if text.strip()]
        if not present:
            return vectors
        if self._clock() < self._paused_until:
            raise VectorsUnavailable(self._problem)
        try:
            rows = np.array(self._embed([texts[at] for at in present]), np.float32)
            if rows.shape[1] != self._dimensions:
                raise VectorsUnavailable(
                    f"{self._embed.identity} now returns vectors of {rows.shape[1]} numbers, not"
                    f" {self._dimensions}; set it again with `mainspring memory vectors`"
                )
        except (ProviderFailed, VectorsUnavailable) as error:
            self._paused_until, self._problem = self._clock() + _PAUSE_SECONDS, str(error)
            raise VectorsUnavailable(self._problem) from error
        vectors[present] = unit_rows(rows)
        return vectors
