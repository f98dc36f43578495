"""Records against a dictionary that has the same rules: whatever is asked, both say the same."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from mainspring.core.errors import AlreadyExists, NotFound, ServiceError, StaleVersion
from mainspring.log.postgres import open_postgres
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
from mainspring.log.sqlite import open_sqlite
from mainspring.log.store import Store

T = TypeVar("T")

LAST = "\U0010ffff"
ids = st.sampled_from(["a", "b", "ä", "b1"])
kinds = st.sampled_from(["agent", "file"])
names = st.none() | st.sampled_from(["", "x", "x/", f"x{LAST}", f"x{LAST}y", "y"])
words = st.sampled_from(["", "p", "q"])
moments = st.integers(-2, 3)
contents = st.none() | st.binary(max_size=3)
records = st.builds(
    RecordRow,
    tenant=st.sampled_from(["t", "u"]),
    kind=kinds,
    id=ids,
    created=moments,
    updated=moments,
    body=st.binary(max_size=3),
    parent=words,
    name=names,
    label=words,
    due=st.none() | moments,
    is_archived=st.booleans(),
    rev=st.integers(0, 3),
)
changes = (
    st.builds(Put, row=records.map(lambda record: replace(record, rev=0)), content=contents)
    | st.builds(Replace, row=records, content=contents)
    | st.builds(Remove, row=records)
)
listings = st.builds(
    RecordQuery,
    kind=kinds,
    tenant=st.none() | st.sampled_from(["t", "u"]),
    parent=st.none() | words,
    label=st.none() | words,
    name_from=names,
    is_archived=st.none() | st.booleans(),
    created_from=st.none() | moments,
    created_upto=st.none() | moments,
    due_upto=st.none() | moments,
    order=st.sampled_from(["asc", "desc"]),
    limit=st.integers(1, 4),
)


class Model:
    """What `log/records.py` promises, in as few words as possible."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], RecordWithContent] = {}
        self.tallies: dict[str, int] = {}

    def write(self, *given: RecordChange) -> tuple[RecordRow, ...]:
        before = dict(self.kept)
        try:
            written = [self._apply(change) for change in given]
        except ServiceError:
            self.kept = before
            raise
        return tuple(record for record in written if record is not None)

    def _apply(self, change: RecordChange) -> RecordRow | None:
        new = change.row
        found = self.kept.get((new.kind, new.id))
        if isinstance(change, Put):
            if found is not None:
                raise AlreadyExists(new.id)
        elif found is None:
            raise NotFound(new.kind, new.id)
        elif found.row.rev != new.rev:
            raise StaleVersion(new.id)
        if isinstance(change, Remove):
            del self.kept[new.kind, new.id]
            return None
        if new.name is not None and any(map(_is_namesake(new), self.kept.values())):
            raise AlreadyExists(new.name)
        kept = replace(new, rev=new.rev + 1)
        content = change.content
        if content is None and found is not None:
            content = found.content
        self.kept[new.kind, new.id] = RecordWithContent(row=kept, content=content)
        return kept

    def listed(self, wanted: RecordQuery) -> list[RecordRow]:
        """All pages of it."""
        found = [w.row for w in self.kept.values() if _fits(w.row, wanted)]
        if wanted.due_upto is not None:
            return sorted(found, key=lambda each: (each.due or 0, each.id))
        if wanted.name_from is not None:
            return sorted(found, key=lambda each: (each.name or "", each.id))
        newest_first = wanted.order == "desc"
        return sorted(found, key=lambda each: (each.created, each.id), reverse=newest_first)


def _is_namesake(new: RecordRow) -> Callable[[RecordWithContent], bool]:
    def place(record: RecordRow) -> tuple[str, str, str, str | None]:
        return record.tenant, record.kind, record.parent, record.name

    return lambda whole: whole.row.id != new.id and place(whole.row) == place(new)


def _fits(record: RecordRow, wanted: RecordQuery) -> bool:
    same = ("kind", "tenant", "parent", "label", "is_archived")
    return (
        all(getattr(wanted, name) in (None, getattr(record, name)) for name in same)
        and (wanted.created_from is None or record.created >= wanted.created_from)
        and (wanted.created_upto is None or record.created <= wanted.created_upto)
        and (wanted.due_upto is None or (record.due is not None and record.due <= wanted.due_upto))
        and _begins(record.name, wanted.name_from)
    )


def _begins(name: str | None, prefix: str | None) -> bool:
    return prefix is None or (name is not None and name.startswith(prefix))


class RecordsMachine(RuleBasedStateMachine):
    def __init__(self, opened: AbstractAsyncContextManager[Store]) -> None:
        super().__init__()
        self.model = Model()
        self._stack = ExitStack()
        self._portal = self._stack.enter_context(start_blocking_portal())
        opening = self._portal.wrap_async_context_manager(opened)
        self._records = self._stack.enter_context(opening).records
        self.ask(_delete_all)

    def ask(self, question: Callable[[Records], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await question(self._records)

        return self._portal.call(asked)

    def teardown(self) -> None:
        self._stack.close()

    @rule(given=st.lists(changes, min_size=1, max_size=4))
    def write(self, given: list[RecordChange]) -> None:
        expected: object
        try:
            expected = self.model.write(*given)
        except ServiceError as refusal:
            expected = type(refusal)

        async def write(kept: Records) -> object:
            try:
                return await kept.write(*given)
            except ServiceError as refusal:
                return type(refusal)

        assert self.ask(write) == expected

    @rule(data=st.data())
    def change_what_is_there(self, data: st.DataObject) -> None:
        if self.model.kept:
            there = data.draw(st.sampled_from([i.row for i in self.model.kept.values()]))
            new = data.draw(records)
            moved = replace(new, kind=there.kind, id=there.id, rev=there.rev)
            change = data.draw(st.sampled_from([Replace(row=moved), Remove(row=there)]))
            self.write([change])

    @rule(wanted=listings)
    def pages(self, wanted: RecordQuery) -> None:
        async def paged(kept: Records) -> tuple[list[RecordRow], int]:
            seen: list[RecordRow] = []
            while page := await kept.list(replace(wanted, after=seen[-1] if seen else None)):
                seen += page
            return seen, await kept.count(wanted)

        expected = self.model.listed(wanted)
        assert self.ask(paged) == (expected, len(expected))

    @rule(given=st.lists(st.tuples(st.sampled_from(["n", "m", "n/x"]), st.integers(-2, 2))))
    def tally(self, given: list[tuple[str, int]]) -> None:
        for name, amount in given:
            self.model.tallies[name] = self.model.tallies.get(name, 0) + amount
        expected = [self.model.tallies[name] for name, _ in given]
        assert self.ask(lambda kept: kept.tally(given)) == expected

    @rule(prefix=st.sampled_from(["", "n", "n/", "z"]))
    def forget_tallies(self, prefix: str) -> None:
        kept = self.model.tallies.items()
        self.model.tallies = {name: at for name, at in kept if not name.startswith(prefix)}
        self.ask(lambda kept: kept.forget_tallies(prefix))

    @invariant()
    def everything_is_there(self) -> None:
        async def everything(kept: Records) -> list[RecordWithContent]:
            return [await kept.whole(item.kind, item.id) for item in await kept.everything()]

        expected = [whole for _, whole in sorted(self.model.kept.items())]
        assert self.ask(everything) == expected


async def _delete_all(kept: Records) -> None:
    while some := await kept.everything():
        await kept.write(*[Remove(row=item) for item in some])
    await kept.forget_tallies("")


def play(opened: Callable[[], AbstractAsyncContextManager[Store]], *, stories: int) -> None:
    run_state_machine_as_test(
        cast("type[RecordsMachine]", lambda: RecordsMachine(opened())),
        settings=settings(
            max_examples=stories,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


@pytest.mark.parametrize("stories", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_sqlite_agrees_with_the_model(tmp_path: Path, stories: int):
    play(lambda: open_sqlite(tmp_path / "mainspring.db"), stories=stories)


@pytest.mark.parametrize("stories", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_postgres_agrees_with_the_model(postgres_url: str, stories: int):
    play(lambda: open_postgres(postgres_url, max_connections=2), stories=stories)
