from collections.abc import AsyncGenerator
from pathlib import Path

import anthropic
import pytest
from anthropic import AsyncAnthropic
from tests.api.api_server import Served, ids, served

from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.define.environments import EnvironmentRoutes
from mainspring.service.resources.environments import Environments


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served(
        tmp_path, lambda records: routes_of(EnvironmentRoutes(Environments(records)))
    ) as running:
        yield running


async def test_an_environment_is_created_read_changed_and_archived(acme: AsyncAnthropic):
    made = await acme.beta.environments.create(
        name="ci",
        config={"type": "cloud", "networking": {"type": "limited", "allowed_hosts": ["a.org"]}},
        metadata={"team": "core"},
    )
    assert made.id.startswith("env_")
    assert await acme.beta.environments.retrieve(made.id) == made
    changed = await acme.beta.environments.update(made.id, metadata={"team": None, "x": "1"})
    assert changed.metadata == {"x": "1"}
    assert (made.description, made.scope) == (None, "organization")
    told = await acme.beta.environments.update(made.id, description="", scope="organization")
    assert told.description == ""
    cleared = await acme.beta.environments.update(made.id, description=None)
    assert (cleared.description, cleared.name, cleared.config) == (None, "ci", made.config)
    with pytest.raises(anthropic.BadRequestError, match="scope"):
        await acme.beta.environments.create(name="mine", scope="account")
    assert (await acme.beta.environments.archive(made.id)).archived_at is not None
    assert await ids(acme.beta.environments.list()) == []
    assert await ids(acme.beta.environments.list(include_archived=True)) == [made.id]
    assert (await acme.beta.environments.delete(made.id)).type == "environment_deleted"


async def test_environments_are_listed_newest_first_in_pages(acme: AsyncAnthropic):
    made = [(await acme.beta.environments.create(name=f"e{n}")).id for n in range(5)]
    assert await ids(acme.beta.environments.list(limit=2)) == made[::-1]


async def test_a_taken_name_conflicts_and_bad_input_is_refused(acme: AsyncAnthropic):
    await acme.beta.environments.create(name="ci")
    with pytest.raises(anthropic.ConflictError):
        await acme.beta.environments.create(name="ci")
    with pytest.raises(anthropic.BadRequestError, match="name"):
        await acme.beta.environments.create(name="")
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await acme.beta.environments.list(page="nonsense")
