"""Contract: words are found in what was said, in one session's history or in all."""

from contextlib import suppress
from random import Random

from tests.contracts.store_setup import ENDLESS, Scene, StoreFactory, asks, refused, says, scene
from tests.senders import TESTER

from mainspring.core.errors import InvalidInput, SessionNotFound
from mainspring.core.events import SessionCreated
from mainspring.core.ids import EVENT, SESSION, new_id
from mainspring.core.sender import Origin, Sender
from mainspring.log.records import Put, RecordRow
from mainspring.log.search import search
from mainspring.log.store import EventRange, IndexedText, SessionScope
from mainspring.retrieval.history import search_history


async def _found(at: Scene, query: str, session_id: str | None = None) -> list[int]:
    hits = await search(at.log, query, session_id=session_id or at.id)
    return sorted(hit.seq for hit in hits)


async def events_with_all_the_words_are_found(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(
            says("the quick brown fox"), says("a quick decision"), says("brown bread")
        )
        assert await _found(at, "quick") == [2, 3]
        assert await _found(at, "brown quick") == [2]
        assert await _found(at, "quick bread") == []
        assert await _found(at, "absent") == []


async def any_word_that_begins_like_one_is_found_by_a_loose_search(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        await at.writer.append(
            says("the connections were lost"), says("reconnect"), says("it's a quick fox-hunt")
        )

        async def loose(query: str) -> list[int]:
            hits = await search(at.log, query, session_id=at.id, is_loose=True)
            return sorted(hit.seq for hit in hits)

        assert await loose("connect") == [2]
        assert await loose("connect absent fox-hu it's") == [2, 4]
        assert await loose("o'neill \\ & | ! :*") == []
        forms = await search_history(at.log, "connected quickly", session_id=at.id)
        assert sorted(hit.seq for hit in forms) == [2, 4]


async def a_word_is_found_whatever_its_case_and_accents(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("Café Ærøskøbing, PRAHA"), says("naïve"))
        for query in ("café", "CAFE", "praha", "Ærøskøbing"):
            assert await _found(at, query) == [2]
        assert await _found(at, "naive") == [3]


async def words_inside_paths_and_identifiers_are_found(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(
            says("see https://docs.example.com/guide/setup.html"),
            says("in src/parser/tokens.py: parse-error"),
        )
        for query, seq in (("example", 2), ("setup", 2), ("tokens", 3), ("parser", 3)):
            assert await _found(at, query) == [seq]
        assert await _found(at, "docs.example.com") == [2]
        assert await _found(at, "parse-error") == [3]


async def what_is_appended_later_is_found_later(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("first needle"))
        assert await _found(at, "needle") == [2]
        await at.log.submit(at.id, asks("second needle"), sender=TESTER)
        await at.writer.fold_inbox()
        assert await _found(at, "needle") == [2, 3]


async def a_fork_is_searched_with_what_it_inherited(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("needle one"), says("needle two"))
        fork = await at.log.fork(at.id, at=2)
        await (await at.log.hold(fork.id, owner="me", seconds=60)).append(says("needle three"))
        hits = await search(at.log, "needle", session_id=fork.id)
        assert sorted((hit.session_id, hit.seq) for hit in hits) == sorted(
            [(at.id, 2), (fork.id, 4)]
        )


async def all_sessions_are_searched_when_none_is_named(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        rare = new_id(EVENT).replace("_", "")
        await at.writer.append(says(f"here is {rare}"))
        other = await at.log.create()
        await (await at.log.hold(other.id, owner="me", seconds=60)).append(says(f"{rare} there"))
        hits = await search(at.log, rare)
        assert {hit.session_id for hit in hits} == {at.id, other.id}
        assert len(await search(at.log, rare, limit=1)) == 1


async def a_hit_shows_the_words_in_their_place(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        padding = "some filler words " * 100
        await at.writer.append(says(f"{padding} the Needle, in here {padding}"))
        [hit] = await search(at.log, "needle", session_id=at.id)
        assert "the Needle, in here" in hit.snippet
        assert len(hit.snippet) < 500


async def no_query_breaks_the_search(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says('it\'s a "quoted" needle & more'))
        for query in ('"needle"', "needle*", "needle'", "needle:", "(needle", "needle)", "^needle"):
            assert await _found(at, query) == [2]
        for query in ("needle\0", "a:b", "NEAR(x)", "AND", "x OR", "!x", "<->x", "\\x", "x" * 9000):
            await _found(at, query)
        with refused(InvalidInput):
            await search(at.log, " *** ", session_id=at.id)


async def any_text_can_be_indexed(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(
            says("before \0 needle"),
            says("y" * 20_000 + " needle"),
            says("needle " + " ".join(f"word{number}" for number in range(300_000))),
            says("needle 👩🏽‍🚀"),
        )
        assert await _found(at, "needle") == [2, 3, 4, 5]


async def a_search_in_an_unknown_session_is_refused(open_store: StoreFactory) -> None:
    async with open_store() as store:
        nowhere = EventRange(session_id=new_id(SESSION), after=0, upto=ENDLESS)
        with refused(SessionNotFound):
            await store.search(["word"], event_ranges=[nowhere], limit=1)


async def indexing_a_session_that_was_deleted_meanwhile_does_nothing(
    open_store: StoreFactory,
) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("needle"))
        gone = new_id(SESSION)
        ghost, needle = (IndexedText(session_id=s, seq=2, text="needle") for s in (gone, at.id))
        with suppress(SessionNotFound):  # a store may refuse, and be asked again without it
            await at.store.index([ghost, needle], [(gone, 2), (at.id, 2)])
        hits = await search(at.log, "needle")
        assert gone not in {hit.session_id for hit in hits}
        assert await _found(at, "needle") == [2]


async def events_are_indexed_once(open_store: StoreFactory) -> None:
    async with scene(open_store) as at:
        await at.writer.append(says("one"), says("two"))
        waiting = await at.store.unindexed(at.id, limit=2)
        assert [(owner, row.seq) for owner, row in waiting] == [(at.id, 1), (at.id, 2)]
        texts = [IndexedText(session_id=at.id, seq=2, text="one")]
        for _ in range(2):  # another process may do the same work
            await at.store.index(texts, [(at.id, 2)])
        await at.store.index([], [(at.id, 1)])
        assert [row.seq for _, row in await at.store.unindexed(at.id, limit=9)] == [3]
        assert await _found(at, "one") == [2]


async def a_search_in_a_scope_finds_nothing_of_another(open_store: StoreFactory) -> None:
    """Of agents, users and tenants, and of sessions without a tenant; forks are their parent's."""
    async with scene(open_store) as at:
        random = Random(5)
        owners: dict[str, tuple[str, str, str | None]] = {}
        for number in range(24):
            agent, user = f"agent {number % 3}", f"cli:user{number % 2}"
            tenant = (None, "acme", "other")[number // 6 % 3]
            created = SessionCreated(agent_name=agent, origin=Origin(type="user"))
            row = await at.log.create(created, sender=Sender(kind="person", id=user))
            if number >= 18:
                row = await at.log.fork(row.id)
            writer = await at.log.hold(row.id, owner="me", seconds=60)
            await writer.append(says(f"needle{number % 4} in a haystack"))
            owners[row.id] = (agent, user, tenant)
            if tenant is not None:
                await at.store.records.write(Put(row=_record(row.id, tenant)))
        await search(at.log, "needle0")
        found = 0
        for _ in range(250):
            scope = SessionScope(
                tenant=random.choice((None, "acme", "other", "nobody")),
                agent=random.choice((None, "agent 0", "agent 1", "agent 2", "agent \0")),
                user=random.choice((None, "cli:user0", "cli:user1")),
                without_sessions=tuple(random.sample([*owners], k=1)),
            )
            word = random.choice(("needle0", "needle1", "needle2", "needle3", "haystack"))
            hits = await at.store.search([word], event_ranges=[], limit=50, scope=scope)
            for hit in hits:
                agent, user, tenant = owners[hit.session_id]
                assert scope.agent in (None, agent)
                assert scope.user in (None, user)
                assert scope.tenant == tenant
                assert hit.session_id not in scope.without_sessions
            found += len(hits)
            assert {*await at.store.in_scope(scope, [*owners])} == {
                session_id
                for session_id, (agent, user, tenant) in owners.items()
                if scope.agent in (None, agent)
                and scope.user in (None, user)
                and scope.tenant == tenant
                and session_id not in scope.without_sessions
            }
        assert found > 100
        scope = SessionScope(tenant=None, without_origins=("user",))
        assert not await at.store.search(["haystack"], event_ranges=[], limit=50, scope=scope)
        assert not await at.store.in_scope(scope, [*owners])
        scope = SessionScope(tenant=None, any_tenant=True, user="cli:user1")
        of_user = {session_id for session_id, owner in owners.items() if owner[1] == "cli:user1"}
        assert {*await at.store.in_scope(scope, [*owners, "sess_gone"])} == of_user


def _record(session_id: str, tenant: str) -> RecordRow:
    return RecordRow(kind="session", id=session_id, tenant=tenant, created=1, updated=1, body=b"{}")
