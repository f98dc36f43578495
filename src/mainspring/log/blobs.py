"""Blobs: large content beside the log. Events refer to a blob by the hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from anyio import to_thread

from mainspring.core.content import BlobBlock, BlobSource, DocumentBlock, ImageBlock
from mainspring.core.envelope import AnyPayload
from mainspring.core.errors import StoreCorrupt
from mainspring.log.event_chain import Scrub, scrub_aside
from mainspring.log.store import Store


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def store_blob(
    store: Store, scrub: Scrub, session_id: str, content: bytes, *, media_type: str
) -> BlobSource:
    """Store content, without secrets, for as long as the session refers to it."""
    clean = await scrub_aside(scrub, content)
    digest = digest_of(clean)
    await store.put_blob(session_id, digest, clean)
    return BlobSource(hash=digest, size=len(clean), media_type=media_type)


_LONG_BYTES = 1 << 20
"""Longer content is hashed in a thread."""


async def read_blob(store: Store, digest: str) -> bytes:
    """Raises: BlobNotFound; StoreCorrupt: the content has another hash."""
    content = await store.blob(digest)
    is_long = len(content) > _LONG_BYTES
    actual = await to_thread.run_sync(digest_of, content) if is_long else digest_of(content)
    if actual != digest:
        raise StoreCorrupt(f"blob {digest} was changed: its content has another hash")
    return content


def referenced_blobs(payload: AnyPayload) -> Iterator[str]:
    """Digests of the blobs that an event's content needs."""
    for block in getattr(payload, "content", ()):
        source = block.source if isinstance(block, ImageBlock | DocumentBlock) else block
        if isinstance(source, BlobBlock | BlobSource):
            yield source.hash
