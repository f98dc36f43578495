"""Embeddings of a provider that has OpenAI's endpoint for them: texts in, vectors out, in batches.
Temporary failures are retried.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import anyio
import msgspec
from msgspec import Struct

from mainspring.capabilities.providers.http_call import (
    Endpoint,
    HttpCall,
    HttpLimits,
    WholeResponse,
)
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.retry import RetryPolicy, Timing, retry_delay
from mainspring.core import ids
from mainspring.core.errors import ProviderFailed

_MAX_TEXTS = 128  # of one request; OpenAI accepts 2,048, some providers fewer
_MAX_BATCH_CHARACTERS = 200_000  # of one request, about 50,000 tokens
_MAX_CHARACTERS = 8_000
"""The limit of one text: models accept about 2,000 tokens and more."""


_LIMITS = HttpLimits(whole_seconds=60)


class _Item(Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _Response(Struct, frozen=True):
    data: list[_Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingEndpoint:
    endpoint: Endpoint
    model: str
    limits: HttpLimits = _LIMITS
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)
    timing: Timing = field(default_factory=Timing)

    @property
    def identity(self) -> str:
        """Identifies the server and the model, without the key."""
        place = hashlib.sha256(self.endpoint.url.encode()).hexdigest()[:12]
        return f"{self.model}/{place}"

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of texts. Blocks, so call it in a thread.

        Raises: ProviderFailed.
        """
        return anyio.run(self._embed, texts)

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        async with HttpClient(self.limits, trust_environment=True) as http:
            return [
                vector
                for batch in _batches(texts)
                for vector in await self._embed_with_retries(http, batch)
            ]

    async def _embed_with_retries(self, http: HttpClient, batch: list[str]) -> list[list[float]]:
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._vectors(await self._ask(http, batch), len(batch))
            except ProviderFailed as failure:
                seconds = retry_delay(
                    failure,
                    attempt,
                    retry_policy=self.retry_policy,
                    rng=self.timing.random,
                    is_alone=True,
                )
                if seconds is None:
                    raise
                await self.timing.sleep(seconds)

    async def _ask(self, http: HttpClient, batch: list[str]) -> bytes:
        body = {"model": self.model, "input": batch, "encoding_format": "float"}
        call = HttpCall(
            endpoint=self.endpoint,
            body=msgspec.json.encode(body),
            request_id=ids.new_id("req"),
            stream=False,
        )
        async with http.exchange(call) as exchange:
            while (part := await exchange.read()) is not None:
                if isinstance(part, WholeResponse):
                    exchange.is_answered = True
                    return part.body
        raise self._malformed("the answer is empty")

    def _vectors(self, body: bytes, count: int) -> list[list[float]]:
        try:
            items = msgspec.json.decode(body, type=_Response).data
        except (msgspec.MsgspecError, RecursionError) as error:
            raise self._malformed(str(error)) from error
        vectors = [item.embedding for item in sorted(items, key=lambda item: item.index)]
        if len(vectors) != count or len({len(vector) for vector in vectors}) != 1:
            raise self._malformed(f"{len(vectors)} vectors came for {count} texts")
        if not vectors[0] or not all(map(math.isfinite, (sum(vector) for vector in vectors))):
            raise self._malformed("the vectors are not numbers")
        return vectors

    def _malformed(self, what: str) -> ProviderFailed:
        return ProviderFailed(self.endpoint.provider, "malformed", what)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        cut = text[:_MAX_CHARACTERS]
        if batch and (len(batch) == _MAX_TEXTS or size + len(cut) > _MAX_BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(cut)
        size += len(cut)
    if batch:
        yield batch
