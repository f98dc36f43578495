"""Stages for tests of the whole service: over SQLite, and over PostgreSQL."""

from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import pytest
from tests.fixtures_postgres import Postgres
from tests.service_e2e.service_processes import Stage, staged


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[Stage]:
    async with staged(tmp_path) as made:
        yield made


@pytest.fixture
def shared_store(postgres: Postgres, postgres_url: str) -> Iterator[str]:
    """A database without anything of ours, nor of the queue that a fleet has in it."""
    yield postgres_url
    postgres.disconnect()
    postgres.execute("drop schema if exists procrastinate cascade")


@pytest.fixture
async def shared_stage(shared_store: str, tmp_path: Path) -> AsyncGenerator[Stage]:
    """Its store is in PostgreSQL, so that any number of processes can work for it."""
    async with staged(tmp_path, MAINSPRING_STORE=shared_store) as made:
        yield made
