"""Names of blobs: the hash of what they hold, and which of them an event refers to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from mainspring.core.content import BlobBlock, BlobSource, DocumentBlock, ImageBlock
from mainspring.core.envelope import AnyPayload


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def referred(payload: AnyPayload) -> Iterator[str]:
    """Digests of the blobs that an event's content cannot be read without."""
    for block in getattr(payload, "content", ()):
        match block:
            case (
                BlobBlock(hash=digest)
                | ImageBlock(source=BlobSource(hash=digest))
                | DocumentBlock(source=BlobSource(hash=digest))
            ):
                yield digest
            case _:
                pass
