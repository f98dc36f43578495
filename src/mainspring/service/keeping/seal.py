"""What the service needs of a seal: secrets are closed with it before they get into a record."""

from __future__ import annotations

from typing import Protocol


class Seal(Protocol):
    def seal(self, plain: bytes, context: str) -> bytes:
        """`context`: what it belongs to; it opens for nothing else."""
        ...

    def unseal(self, sealed: bytes, context: str) -> bytes:
        """Raises: StoreCorrupt: another key or context, or it was changed."""
        ...
