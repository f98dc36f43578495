"""A model that gives the answers of a recorded session again, as long as it is asked the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from hashlib import blake2b
from typing import TypeAlias

import msgspec

from mainspring.capabilities.providers.scripted import reply_deltas
from mainspring.core.errors import ProviderFailed
from mainspring.core.model import Delta, Model, Reply, Request

Compare: TypeAlias = Callable[[str, Request], str | None]
"""Recorded fingerprint and what is asked now; says what differs, or None if nothing does."""


def request_fingerprint(request: Request) -> str:
    """What the model reads and may say, not how it is sent: a hash of it."""
    sent = msgspec.structs.replace(request, request_id="", stream=True, cache_messages=())
    return blake2b(msgspec.json.encode(sent), digest_size=16).hexdigest()


def compare_fingerprint(recorded: str, request: Request) -> str | None:
    asked = request_fingerprint(request)
    return None if asked == recorded else f"{asked} is asked, {recorded} was recorded"


class ReplayModel:
    """Serves recorded replies; at the first difference it stops, or hands over to `live`."""

    def __init__(
        self,
        recorded: Sequence[tuple[str, Reply]],
        *,
        compare: Compare = compare_fingerprint,
        live: Model | None = None,
    ) -> None:
        """`recorded` are fingerprints of requests and the replies to them, in order."""
        self._recorded = tuple(recorded)
        self._compare = compare
        self._live = live
        self._served = 0
        self.diverged: str | None = None
        """Where the run left the recording and how; None as long as it has not."""

    @property
    def replies_left(self) -> int:
        return len(self._recorded) - self._served

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]:
        if self.diverged is None:
            self.diverged = self._difference(request)
        if self.diverged is None:
            _, reply = self._recorded[self._served]
            self._served += 1
            if request.stream:
                for delta in reply_deltas(reply):
                    yield delta
            yield reply
        elif self._live is None:
            raise ProviderFailed("replay", "exhausted", self.diverged)
        else:
            async with aclosing(self._live.stream(request)) as answer:
                async for part in answer:
                    yield part

    def _difference(self, request: Request) -> str | None:
        number = self._served + 1
        if number > len(self._recorded):
            return f"request {number} was never made: the recording has {len(self._recorded)}"
        differs = self._compare(self._recorded[self._served][0], request)
        return None if differs is None else f"request {number} is not the recorded one: {differs}"
