"""Contract: content beside the log, kept once and for as long as a session refers to it."""

import anyio
from tests.contracts.store_setup import StoreFactory, refused, scene

from mainspring.core.errors import BlobNotFound, SessionNotFound
from mainspring.core.ids import SESSION, new_id
from mainspring.log.blobs import digest_of
from mainspring.log.session_log import SessionLog


def _own(text: str) -> bytes:
    """Content that no other case has: blobs are shared by all sessions of a database."""
    return f"{text} {new_id('blob')}".encode()


async def a_blob_comes_back_byte_for_byte(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        for content in (b"", bytes(range(256)), b"\0" * 5_000_000, "👩🏽‍🚀".encode()):
            kept = await at.log.put_blob(at.id, content, media_type="application/octet-stream")
            assert await at.log.blob(kept.hash) == content


async def an_unknown_blob_is_said_to_be_unknown(open_store: StoreFactory) -> None:
    async with open_store() as store:
        with refused(BlobNotFound):
            await store.blob(digest_of(_own("never kept")))


async def a_session_knows_its_own_blobs(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        contents = [_own("one"), _own("two"), _own("three")]
        for content in [*contents, *contents]:
            await at.log.put_blob(at.id, content, media_type="text/plain")
        other = await at.log.create()
        await at.log.put_blob(other.id, contents[0], media_type="text/plain")
        assert await at.store.blobs(at.id) == sorted(map(digest_of, contents))
        assert await at.store.blobs(other.id) == [digest_of(contents[0])]


async def a_blob_lives_until_the_last_session_that_uses_it(open_store: StoreFactory) -> None:
    async with open_store() as store:
        log = SessionLog(store)
        first, second = await log.create(), await log.create()
        content = _own("shared")
        for session in (first, second):
            kept = await log.put_blob(session.id, content, media_type="text/plain")
        await log.delete(first.id)
        assert await log.blob(kept.hash) == content
        await log.delete(second.id)
        with refused(BlobNotFound):
            await log.blob(kept.hash)


async def a_blob_for_an_unknown_session_is_not_kept(open_store: StoreFactory) -> None:
    async with open_store() as store:
        content = _own("nobody's")
        with refused(SessionNotFound):
            await store.put_blob(new_id(SESSION), digest_of(content), content)
        with refused(BlobNotFound):
            await store.blob(digest_of(content))


async def a_blob_put_while_its_last_user_goes_is_never_lost(open_store: StoreFactory) -> None:
    async with open_store() as store, open_store() as other:
        log, content = SessionLog(store), _own("contended")
        keeper = await log.create()
        for _ in range(20):
            leaver = await log.create()
            await log.put_blob(leaver.id, content, media_type="text/plain")
            async with anyio.create_task_group() as group:
                group.start_soon(other.delete, leaver.id)
                group.start_soon(store.put_blob, keeper.id, digest_of(content), content)
            assert await log.blob(digest_of(content)) == content
            await log.delete(keeper.id)
            keeper = await log.create()
