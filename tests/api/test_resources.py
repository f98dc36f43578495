from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import collect
from tests.api.sessions_api import Mirror, SessionsApi, service, session

from mainspring.service.access.principal import Principal
from mainspring.service.sessions.resource_types import token_context
from mainspring.testing import Scripted, says

ADMIN = Principal(tenant="acme", key_id="k", role="admin")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[SessionsApi]:
    async with service(tmp_path, Scripted(otherwise=says("Done."))) as running:
        yield running


async def test_files_are_added_listed_and_removed(acme: AsyncAnthropic):
    made = await session(acme)
    resources = acme.beta.sessions.resources
    first = await resources.add(made.id, type="file", file_id="file_text")
    second = await resources.add(
        made.id, type="file", file_id="file_png", mount_path="/workspace/a.png"
    )
    assert first.id.startswith("sesrsc_")
    assert first.mount_path == "/mnt/session/uploads/file_text"
    assert second.mount_path == "/workspace/a.png"
    assert await collect(resources.list(made.id)) == [first, second]
    assert await collect(resources.list(made.id, limit=1)) == [first, second]
    assert await resources.retrieve(first.id, session_id=made.id) == first
    assert len((await acme.beta.sessions.retrieve(made.id)).resources) == 2
    gone = await resources.delete(first.id, session_id=made.id)
    assert (gone.id, gone.type) == (first.id, "session_resource_deleted")
    assert await collect(resources.list(made.id)) == [second]
    with pytest.raises(anthropic.NotFoundError):
        await resources.retrieve(first.id, session_id=made.id)
    with pytest.raises(anthropic.NotFoundError, match="file_x"):
        await resources.add(made.id, type="file", file_id="file_x")
    with pytest.raises(anthropic.BadRequestError, match="mount_path"):
        await resources.add(made.id, type="file", file_id="file_png", mount_path="/a/../b")
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await resources.list(made.id, page="nonsense")


async def test_a_token_is_sealed_never_shown_and_rotated(api: SessionsApi, acme: AsyncAnthropic):
    made = await session(
        acme,
        resources=[
            {
                "type": "github_repository",
                "url": "https://github.com/o/r",
                "authorization_token": "ghp_first",
                "checkout": {"type": "branch", "name": "main"},
            },
            {"type": "memory_store", "memory_store_id": "memstore_1", "instructions": "ask"},
        ],
    )
    repo, store = made.resources
    assert repo.type == "github_repository"
    assert store.type == "memory_store"
    assert (store.access, store.name, store.description, store.instructions) == (
        "read_write",
        "User Preferences",
        "what they like",
        "ask",
    )
    assert "ghp_first" not in made.to_json()
    resources = acme.beta.sessions.resources
    changed = await resources.update(repo.id, session_id=made.id, authorization_token="ghp_second")
    assert "ghp" not in changed.to_json()
    record = await api.sessions.record(ADMIN, made.id)
    opened = Mirror().unseal(record.sealed[repo.id], token_context(repo.id))
    assert opened == b"ghp_second"
    added = await resources.add(made.id, type="file", file_id="file_text")
    with pytest.raises(anthropic.BadRequestError, match="github_repository"):
        await resources.update(added.id, session_id=made.id, authorization_token="x")
    await resources.delete(repo.id, session_id=made.id)
    assert (await api.sessions.record(ADMIN, made.id)).sealed == {}
    [stored] = [resource for resource in (await api.sessions.record(ADMIN, made.id)).resources[:1]]
    with pytest.raises(anthropic.BadRequestError, match="memory_store"):
        await resources.delete(stored.id, session_id=made.id)


async def test_an_archived_session_accepts_no_new_resources(acme: AsyncAnthropic):
    made = await session(acme)
    await acme.beta.sessions.archive(made.id)
    with pytest.raises(anthropic.BadRequestError, match="archived"):
        await acme.beta.sessions.resources.add(made.id, type="file", file_id="file_text")
