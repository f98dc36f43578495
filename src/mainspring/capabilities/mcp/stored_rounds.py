"""A server's input request in the middle of a call, stored in the session's log, so that another
process can continue the call instead of repeating it.

It is encrypted: a server may put anything into its state, including secrets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.mcp.protocol.messages import InputRound
from mainspring.core.errors import InvalidInput, MainspringError, McpFailed
from mainspring.core.ports import Seal
from mainspring.core.tool import Call

OpenSeal: TypeAlias = Callable[[], Seal]
"""Raises: InvalidInput: there is no key."""


class _StoredRound(Struct, frozen=True, kw_only=True):
    round: InputRound
    asked: dict[str, int]
    """How often the server had already asked each question."""


class StoredRounds:
    """`InputRounds` of one call. Without a seal nothing is stored."""

    def __init__(self, call: Call, open_seal: OpenSeal | None) -> None:
        self.call = call
        """The latest attempt of the call: each process writes to its own log."""
        self.asked: Counter[str] = Counter()
        self._open_seal = open_seal
        self._last: InputRound | None = None

    async def load(self) -> InputRound | None:
        if self._last is None and isinstance(self.call.stashed, str):
            round_ = await to_thread.run_sync(self._unsealed, self.call.stashed)
            if round_ is not None:
                self._last, self.asked = round_.round, Counter(round_.asked)
        return self._last

    async def save(self, round_: InputRound) -> None:
        self._last = round_
        content = msgspec.json.encode(_StoredRound(round=round_, asked=dict(self.asked)))
        if (sealed := await to_thread.run_sync(self._sealed, content)) is None:
            return
        try:
            await self.call.stash(sealed)
        except InvalidInput as error:
            raise McpFailed("the request state of the server is too large to store") from error

    @property
    def _context(self) -> str:
        return f"mcp input {self.call.session_id} {self.call.id}"

    def _sealed(self, stored: bytes) -> str | None:
        if self._open_seal is None:
            return None
        try:
            return self._open_seal().seal(stored, self._context).hex()
        except InvalidInput:
            return None  # there is no key

    def _unsealed(self, stashed: str) -> _StoredRound | None:
        """`None` if it was stored with another key: then the call is repeated."""
        if self._open_seal is None:
            return None
        try:
            content = self._open_seal().unseal(bytes.fromhex(stashed), self._context)
            return msgspec.json.decode(content, type=_StoredRound)
        except (MainspringError, ValueError):
            return None
