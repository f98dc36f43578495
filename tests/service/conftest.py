"""What tests of the service share."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from mainspring.log.postgres import open_postgres
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite


@pytest.fixture(params=["sqlite", "postgres"])
async def records(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Records]:
    if request.param == "sqlite":
        async with open_sqlite(tmp_path / "mainspring.db") as store:
            yield store.records
    else:
        async with open_postgres(request.getfixturevalue("postgres_url")) as store:
            yield store.records
