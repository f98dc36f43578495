"""Contract: what the service keeps is changed wholly or not at all, and found in a fixed order."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import anyio
from tests.contracts.store_setup import StoreFactory, refused

from mainspring.core.errors import AlreadyExists, InvalidInput, NotFound, ServiceError, StaleVersion
from mainspring.core.ids import new_id
from mainspring.log.records import (
    Put,
    RecordChange,
    RecordQuery,
    RecordRow,
    Records,
    RecordWithContent,
    Remove,
    Replace,
)


def _fresh() -> Callable[..., RecordRow]:
    """Makes records of one kind and tenant of their own: the store may hold others."""
    empty = RecordRow(
        kind=new_id("kind"), tenant=new_id("tenant"), id="", created=1, updated=1, body=b"{}"
    )

    def record(id_: str, **fields: object) -> RecordRow:
        return replace(empty, id=id_, **fields)

    return record


async def _ids(records: Records, query: RecordQuery) -> list[str]:
    return [record.id for record in await records.list(query)]


async def _paged(records: Records, query: RecordQuery) -> list[str]:
    seen: list[RecordRow] = []
    while page := await records.list(replace(query, after=seen[-1] if seen else None)):
        assert len(page) <= query.limit
        seen += page
    return [item.id for item in seen]


async def a_record_is_read_as_it_was_put(open_store: StoreFactory) -> None:
    record = _fresh()
    full = record(
        "a",
        created=2**62,
        updated=-5,
        body=b'{"a": "\xc3\xa4"}',
        parent="p",
        name="größe 🙂 ' % ?",
        label="l",
        due=7,
        is_archived=True,
    )
    async with open_store() as store, open_store() as other:
        [kept] = await store.records.write(Put(row=full))
        assert kept == replace(full, rev=1, mac=kept.mac)
        assert await other.records.get(full.kind, "a") == kept
        found = await other.records.named(
            full.kind, full.name or "", tenant=full.tenant, parent="p"
        )
        assert found == kept
        assert await other.records.list(RecordQuery(kind=full.kind)) == [kept]


async def what_is_not_there_is_not_found(open_store: StoreFactory) -> None:
    record = _fresh()
    nobody = record("nobody", name="none")
    async with open_store() as store:
        await store.records.write(Put(row=record("a", name="here", parent="p")))
        for id_ in ("nobody", "A", "", "a\0", "\ud800"):
            with refused(NotFound):
                await store.records.get(nobody.kind, id_)
            with refused(NotFound):
                await store.records.content(nobody.kind, id_)
            with refused(NotFound):
                await store.records.whole(nobody.kind, id_)
            with refused(NotFound):
                await store.records.named(nobody.kind, id_, tenant=nobody.tenant)
        with refused(NotFound):  # another parent's
            await store.records.named(nobody.kind, "here", tenant=nobody.tenant)
        for change in (Replace(row=nobody), Remove(row=nobody)):
            with refused(NotFound):
                await store.records.write(change)


async def an_id_is_taken_once(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store:
        [first] = await store.records.write(Put(row=record("a", body=b"1"), content=b"one"))
        with refused(AlreadyExists):
            await store.records.write(Put(row=record("a", body=b"2"), content=b"two"))
        assert await store.records.whole(first.kind, "a") == RecordWithContent(
            row=first, content=b"one"
        )


async def a_name_is_taken_once_within_tenant_kind_and_parent(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store:
        write = store.records.write
        [first] = await write(Put(row=record("a", name="n")))
        with refused(AlreadyExists):
            await write(Put(row=record("b", name="n")))
        await write(Put(row=record("c", name="n", parent="p")))
        await write(Put(row=record("d", name="n", tenant=new_id("tenant"))))
        await write(Put(row=record("e", name="n", kind=new_id("kind"))))
        await write(Put(row=record("f", name="N")), Put(row=record("g", name="")))
        [loose] = await write(Put(row=record("h")))
        await write(Put(row=record("i")))  # no name is no name
        with refused(AlreadyExists):
            await write(Replace(row=replace(loose, name="n")))
        [renamed] = await write(Replace(row=replace(first, name="m")))
        await write(Replace(row=renamed))  # its own name is no obstacle
        await write(Replace(row=replace(loose, name="n")))
        assert (await store.records.named(first.kind, "n", tenant=first.tenant)).id == "h"


async def a_change_counts_and_an_outdated_one_is_refused(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store:
        [first] = await store.records.write(Put(row=record("a"), content=b"kept"))
        [second] = await store.records.write(Replace(row=replace(first, body=b"2")))
        assert (second.rev, second.body) == (2, b"2")
        for change in (Replace(row=replace(first, body=b"late")), Remove(row=first)):
            with refused(StaleVersion):
                await store.records.write(change)
        assert await store.records.whole(first.kind, "a") == RecordWithContent(
            row=second, content=b"kept"
        )
        [third] = await store.records.write(Replace(row=second, content=b"new"))
        assert await store.records.content(first.kind, "a") == b"new"
        assert await store.records.write(Remove(row=third)) == ()
        with refused(NotFound):
            await store.records.get(first.kind, "a")
        [again] = await store.records.write(Put(row=record("a")))
        assert again.rev == 1
        with refused(NotFound):  # nothing of the one before
            await store.records.content(first.kind, "a")


async def content_of_any_bytes_and_size_is_kept(open_store: StoreFactory) -> None:
    record = _fresh()
    contents = (b"", b"\0", bytes(range(256)) * 8192)
    async with open_store() as store, open_store() as other:
        for number, content in enumerate(contents):
            await store.records.write(Put(row=record(str(number)), content=content))
            assert await other.records.content(record("x").kind, str(number)) == content


async def several_changes_happen_together_or_not_at_all(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store:
        [old, gone] = await store.records.write(
            Put(row=record("old", name="n"), content=b"old"), Put(row=record("gone"))
        )
        refusals: list[tuple[RecordChange, type[ServiceError]]] = [
            (Put(row=record("old")), AlreadyExists),
            (Put(row=record("other", name="taken")), AlreadyExists),
            (Replace(row=replace(old, rev=7)), StaleVersion),
            (Remove(row=record("never")), NotFound),
        ]
        for last, kind in refusals:
            with refused(kind):
                await store.records.write(
                    Put(row=record("new", name="taken"), content=b"new"),
                    Replace(row=replace(gone, body=b"changed"), content=b"changed"),
                    Remove(row=replace(gone, rev=2)),
                    last,
                )
            assert await _ids(store.records, RecordQuery(kind=old.kind, order="asc")) == [
                "gone",
                "old",
            ]
            assert await store.records.get(old.kind, "gone") == gone
            for id_ in ("new", "gone"):
                with refused(NotFound):
                    await store.records.content(old.kind, id_)


async def each_of_several_changes_finds_what_those_before_it_left(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store:
        write = store.records.write
        [first] = await write(Put(row=record("a", name="n"), content=b"first"))
        moved = await write(
            Remove(row=first),
            Put(row=record("a", name="m")),
            Put(row=record("b", name="n")),
            Replace(row=record("b", name="o", rev=1)),
            Put(row=record("c", name="n")),
        )
        assert [(item.id, item.name, item.rev) for item in moved] == [
            ("a", "m", 1),
            ("b", "n", 1),
            ("b", "o", 2),
            ("c", "n", 1),
        ]
        with refused(NotFound):
            await store.records.content(first.kind, "a")
        with refused(AlreadyExists):
            await write(Put(row=record("d", name="d")), Put(row=record("e", name="d")))
        with refused(AlreadyExists):
            await write(Put(row=record("d")), Put(row=record("d")))
        with refused(StaleVersion):
            await write(Replace(row=moved[0]), Replace(row=moved[0]))
        assert await store.records.write() == ()


async def of_writers_at_once_one_wins(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store, open_store() as other:
        [start] = await store.records.write(Put(row=record("start")))

        async def contend(*changes: Sequence[RecordChange]) -> list[int]:
            won: list[int] = []

            async def write(number: int, record_change: Sequence[RecordChange]) -> None:
                try:
                    await (store, other)[number % 2].records.write(*record_change)
                except (AlreadyExists, StaleVersion):
                    return
                won.append(number)

            async with anyio.create_task_group() as group:
                for number, change in enumerate(changes):
                    group.start_soon(write, number, change)
            return won

        eight = range(8)
        same_id = await contend(*[[Put(row=record("a", body=b"%d" % n))] for n in eight])
        assert (await store.records.get(start.kind, "a")).body == b"%d" % same_id[0]
        same_name = await contend(*[[Put(row=record(f"n{n}", name="n"))] for n in eight])
        changed = await contend(
            *[
                [
                    Replace(row=replace(start, body=b"%d" % n)),
                    Put(row=record(f"r{n}")),
                ]
                for n in eight
            ]
        )
        assert (await store.records.get(start.kind, "start")).body == b"%d" % changed[0]
        assert [len(won) for won in (same_id, same_name, changed)] == [1, 1, 1]
        assert await store.records.count(RecordQuery(kind=start.kind)) == 4


async def a_list_is_by_creation_and_id_page_by_page(open_store: StoreFactory) -> None:
    record = _fresh()
    made = [(2, "b"), (1, "z"), (2, "a"), (3, "B"), (2, "ä"), (3, "a1")]
    async with open_store() as store:
        for created, id_ in made:
            await store.records.write(Put(row=record(id_, created=created)))
        everything = RecordQuery(kind=record("x").kind)
        rising = ["z", "a", "b", "ä", "B", "a1"]
        assert await _ids(store.records, everything) == rising[::-1]
        assert await _ids(store.records, replace(everything, order="asc")) == rising
        for limit in (1, 2, 4):
            part = replace(everything, limit=limit)
            assert await _paged(store.records, part) == rising[::-1]
            assert await _paged(store.records, replace(part, order="asc")) == rising
        assert await store.records.count(replace(everything, limit=1)) == 6


async def a_list_holds_what_fits_all_conditions(open_store: StoreFactory) -> None:
    record = _fresh()
    kind, tenant = record("x").kind, record("x").tenant
    async with open_store() as store:
        await store.records.write(
            Put(row=record("1", created=1, parent="p", label="l")),
            Put(row=record("2", created=2, parent="p", is_archived=True)),
            Put(row=record("3", created=3, label="l", name="n", due=3)),
            Put(row=record("4", created=4, tenant=new_id("tenant"), label="l")),
            Put(row=record("5", created=5, kind=new_id("kind"), parent="p", label="l")),
        )
        found: list[tuple[RecordQuery, list[str]]] = [
            (RecordQuery(kind=kind), ["4", "3", "2", "1"]),
            (RecordQuery(kind=kind, tenant=tenant), ["3", "2", "1"]),
            (RecordQuery(kind=kind, parent="p"), ["2", "1"]),
            (RecordQuery(kind=kind, parent=""), ["4", "3"]),
            (RecordQuery(kind=kind, label="l"), ["4", "3", "1"]),
            (RecordQuery(kind=kind, label=""), ["2"]),
            (RecordQuery(kind=kind, tenant=tenant, label="l", parent="p"), ["1"]),
            (RecordQuery(kind=kind, is_archived=True), ["2"]),
            (RecordQuery(kind=kind, is_archived=False), ["4", "3", "1"]),
            (RecordQuery(kind=kind, created_from=2, created_upto=3), ["3", "2"]),
            (RecordQuery(kind=kind, name_from=""), ["3"]),
            (RecordQuery(kind=kind, due_upto=2), []),
            (RecordQuery(kind=kind, due_upto=3), ["3"]),
        ]
        for wanted, ids in found:
            assert await _ids(store.records, wanted) == ids, wanted
            assert await store.records.count(wanted) == len(ids), wanted


async def names_are_found_by_how_they_begin(open_store: StoreFactory) -> None:
    record = _fresh()
    last = "\U0010ffff"
    names = [
        "/a",
        "/a/b",
        "/a/b\ud7ff",
        "/a/b\ue000",
        f"/a/b{last}x",
        "/a/c",
        "/b",
        "/ä",
        "A",
        last,
    ]
    async with open_store() as store:
        for number, name in enumerate(reversed(names)):
            await store.records.write(Put(row=record(f"{number}", name=name, created=number)))
        await store.records.write(Put(row=record("nameless")))
        wanted = RecordQuery(kind=record("x").kind, tenant=record("x").tenant, limit=2)
        for prefix in ("", "/", "/a", "/a/b", "/a/b\ud7ff", f"/a/b{last}", "/ä", last, "/a%", "_"):
            ids = await _paged(store.records, replace(wanted, name_from=prefix))
            found = [(await store.records.get(wanted.kind, id_)).name for id_ in ids]
            assert found == sorted(name for name in names if name.startswith(prefix)), prefix


async def what_is_due_comes_longest_due_first(open_store: StoreFactory) -> None:
    record = _fresh()
    async with open_store() as store:
        for id_, due in (("c", 5), ("a", 9), ("b", 5), ("d", -1), ("e", None), ("f", 10)):
            await store.records.write(Put(row=record(id_, due=due)))
        wanted = RecordQuery(kind=record("x").kind, due_upto=9)
        assert await _ids(store.records, wanted) == ["d", "b", "c", "a"]
        assert await _paged(store.records, replace(wanted, limit=1)) == ["d", "b", "c", "a"]
        later = replace(await store.records.get(wanted.kind, "d"), due=None)
        await store.records.write(Replace(row=later))
        assert await _ids(store.records, wanted) == ["b", "c", "a"]


async def what_no_text_or_number_can_be_is_refused(open_store: StoreFactory) -> None:
    record = _fresh()
    kind = record("x").kind
    async with open_store() as store:
        for fields in (
            {"id_": "a\0"},
            {"id_": "\udfff"},
            {"id_": "a", "name": "\0"},
            {"id_": "a", "label": "\ud800"},
            {"id_": "a", "created": 2**63},
            {"id_": "a", "due": -(2**63) - 1},
        ):
            with refused(InvalidInput):
                await store.records.write(Put(row=record("fine")), Put(row=record(**fields)))
        for wanted in (
            RecordQuery(kind=kind, name_from="a\0"),
            RecordQuery(kind=kind, label="\ud800"),
            RecordQuery(kind=kind, created_from=2**70),
            RecordQuery(kind=kind, after=record("a\0")),
            RecordQuery(kind=kind, after=record("a", created=2**63)),
        ):
            with refused(InvalidInput):
                await store.records.list(wanted)
        assert await store.records.count(RecordQuery(kind=kind)) == 0


async def everything_is_passed_by_once(open_store: StoreFactory) -> None:
    record = _fresh()
    other_kind = f"{record('x').kind}-"
    async with open_store() as store:
        await store.records.write(
            Put(row=record("b"), content=b"content"),
            Put(row=record("a", tenant=new_id("tenant"))),
            Put(row=record("a", kind=other_kind)),
        )
        kinds = (record("x").kind, other_kind)
        seen: list[RecordRow] = []
        while page := await store.records.everything(after=seen[-1] if seen else None, limit=2):
            seen += page
        ours = [(item.kind, item.id) for item in seen if item.kind in kinds]
        assert ours == [(kinds[0], "a"), (kinds[0], "b"), (kinds[1], "a")]
        [first, second] = [item for item in seen if item.kind == kinds[0]]
        assert await store.records.whole(*ours[0]) == RecordWithContent(row=first, content=None)
        assert await store.records.whole(*ours[1]) == RecordWithContent(
            row=second, content=b"content"
        )
