"""A repository decodes an unchanged record once, if it has a cache."""

from __future__ import annotations

import pytest
from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.errors import NotFound
from mainspring.log.records import Records
from mainspring.service.storage.repository import Repository


class Note(Struct, frozen=True, kw_only=True):
    id: str
    text: str


async def test_an_unchanged_record_is_decoded_once(records: Records):
    notes = Repository(records, "note", Note, cache_bytes=1000)
    await notes.put("acme", Note(id="note_1", text="first"))
    assert await notes.get("acme", "note_1") is await notes.get("acme", "note_1")


async def test_a_record_that_another_process_changed_is_decoded_again(records: Records):
    notes, elsewhere = (Repository(records, "note", Note, cache_bytes=size) for size in (1000, 0))
    await notes.put("acme", Note(id="note_1", text="first"))
    assert (await notes.get("acme", "note_1")).text == "first"
    await elsewhere.update("acme", "note_1", lambda note: replace(note, text="second"))
    assert (await notes.get("acme", "note_1")).text == "second"
    await elsewhere.remove("acme", "note_1")
    await elsewhere.put("acme", Note(id="note_1", text="third"))
    assert (await notes.get("acme", "note_1")).text == "third"


async def test_a_repository_without_a_cache_keeps_nothing(records: Records):
    notes = Repository(records, "note", Note)
    await notes.put("acme", Note(id="note_1", text="first"))
    assert await notes.get("acme", "note_1") is not await notes.get("acme", "note_1")


async def test_another_tenant_does_not_get_a_cached_record(records: Records):
    notes = Repository(records, "note", Note, cache_bytes=1000)
    await notes.put("acme", Note(id="note_1", text="first"))
    await notes.get("acme", "note_1")
    with pytest.raises(NotFound):
        await notes.get("globex", "note_1")


async def test_records_larger_than_the_cache_are_not_kept(records: Records):
    notes = Repository(records, "note", Note, cache_bytes=1000)
    await notes.put("acme", Note(id="note_1", text="first"))
    await notes.put("acme", Note(id="note_2", text="x" * 1000))
    first = await notes.get("acme", "note_1")
    assert await notes.get("acme", "note_2") is not await notes.get("acme", "note_2")
    assert await notes.get("acme", "note_1") is first
