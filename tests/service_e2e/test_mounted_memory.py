"""Memory stores in sessions of a real server, with the official SDK as the client: what one session
writes the next one reads, and nobody's text is overwritten."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest
from anthropic import AsyncAnthropic
from tests.abilities import require_bubblewrap
from tests.service_e2e.service_processes import (
    Served,
    Stage,
    bash,
    begun,
    results,
    staged,
    told,
    upto_idle,
)

RULES = "We release on Thursdays.\n"


@pytest.fixture(scope="module")
async def stage_and_service(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[tuple[Stage, Served]]:
    async with staged(tmp_path_factory.mktemp("memory")) as stage, stage.serve() as server:
        yield stage, server


@pytest.fixture(scope="module")
async def client(stage_and_service: tuple[Stage, Served]) -> AsyncGenerator[AsyncAnthropic]:
    async with stage_and_service[1].client() as made:
        yield made


async def store_with(client: AsyncAnthropic, **memories: str) -> str:
    store = await client.beta.memory_stores.create(name="Team notes")
    for name, content in memories.items():
        await client.beta.memory_stores.memories.create(
            store.id, path=f"/{name}.md", content=content
        )
    return store.id


async def contents(client: AsyncAnthropic, store_id: str) -> dict[str, str]:
    found: dict[str, str] = {}
    async for item in client.beta.memory_stores.memories.list(store_id, view="full"):
        found[item.path] = getattr(item, "content", None) or ""
    return found


def mount_params(store_id: str, access: str, **more: str) -> list[dict[str, str]]:
    return [{"type": "memory_store", "memory_store_id": store_id, "access": access, **more}]


async def test_a_session_reads_what_an_earlier_one_wrote_into_a_store(
    stage_and_service: tuple[Stage, Served], client: AsyncAnthropic
):
    store_id = await store_with(client, rules=RULES, old="obsolete")
    session_id = await begun(
        client,
        bash(
            "cd mnt/memory/team-notes ; cat rules.md ; rm old.md ; mkdir sub"
            " ; echo new > sub/fact.md ; echo never Fridays >> rules.md ; ln -s /etc/passwd x.md"
            " ; head -c 200000 /dev/zero > big.md"
        ),
        "say done",
        resources=mount_params(store_id, "read_write", instructions="Keep it short."),
    )
    (read, *more) = results(await upto_idle(client, session_id))
    assert more == []
    assert read.strip() == RULES.strip()
    assert await contents(client, store_id) == {
        "/rules.md": f"{RULES}never Fridays\n",
        "/sub/fact.md": "new\n",
    }
    request = str(stage_and_service[0].model.requests[-1])
    assert "mnt/memory/team-notes" in request
    assert "Keep it short." in request
    authors = [
        getattr(version.created_by, "session_id", None)
        async for version in client.beta.memory_stores.memory_versions.list(store_id)
        if version.path == "/sub/fact.md"
    ]
    assert authors == [session_id]
    again = await begun(
        client,
        bash("cat mnt/memory/team-notes/sub/fact.md; ls mnt/memory/team-notes"),
        "say done",
        resources=mount_params(store_id, "read_write"),
    )
    (seen,) = results(await upto_idle(client, again))
    assert seen.split() == ["new", "rules.md", "sub"]


async def test_a_store_is_in_the_sandbox_where_the_api_says_even_an_empty_one(
    client: AsyncAnthropic,
):
    require_bubblewrap("only bubblewrap can add a path")
    store_id = await store_with(client)
    session_id = await begun(
        client,
        bash("cd /mnt/memory/team-notes; echo new > fact.md; cat /mnt/memory/*/fact.md"),
        'call read {"file_path": "/mnt/memory/team-notes/fact.md"}',
        "say done",
        resources=mount_params(store_id, "read_write"),
    )
    printed, read = results(await upto_idle(client, session_id))
    assert printed.strip() == "new"
    assert "new" in read
    assert await contents(client, store_id) == {"/fact.md": "new\n"}


async def test_a_read_only_store_is_not_changed(client: AsyncAnthropic):
    store_id = await store_with(client, rules=RULES)
    session_id = await begun(
        client,
        bash("echo mine > mnt/memory/team-notes/rules.md; echo x > mnt/memory/team-notes/y.md"),
        "say done",
        resources=mount_params(store_id, "read_only"),
    )
    await upto_idle(client, session_id)
    assert await contents(client, store_id) == {"/rules.md": RULES}
    await told(client, session_id, bash("cat mnt/memory/team-notes/*"))
    assert results(await upto_idle(client, session_id, times=2))[-1].strip() == RULES.strip()


async def test_a_memory_changed_meanwhile_is_not_overwritten(client: AsyncAnthropic):
    store_id = await store_with(client, rules=RULES)
    session_id = await begun(
        client,
        bash("echo first > mnt/memory/team-notes/mine.md"),
        "say done",
        resources=mount_params(store_id, "read_write"),
    )
    await upto_idle(client, session_id)
    rules = [
        item
        async for item in client.beta.memory_stores.memories.list(store_id)
        if item.path == "/rules.md"
    ]
    memory_id = getattr(rules[0], "id", "")
    await client.beta.memory_stores.memories.update(
        memory_id, memory_store_id=store_id, content="We release on Mondays.\n"
    )
    await told(client, session_id, bash("cat mnt/memory/team-notes/rules.md"))
    assert "Mondays" in results(await upto_idle(client, session_id, times=2))[-1]
    assert (await contents(client, store_id))["/rules.md"] == "We release on Mondays.\n"


async def test_a_store_is_searched_over_http(client: AsyncAnthropic):
    store_id = await store_with(client, rules=RULES, tea="Anna drinks tea.")
    place = f"/v1/mainspring/memory_stores/{store_id}/search"
    page = await client.get(f"{place}?query=When+do+we+release%3F&limit=1", cast_to=object)
    (match,) = cast("dict[str, list[dict[str, object]]]", page)["data"]
    assert (match["path"], match["line"], match["text"]) == ("/rules.md", 1, RULES.strip())
