"""Both stores keep the contract that we ask of everybody's."""

from functools import partial
from pathlib import Path

import pytest
from tests.contracts.store_contract import StoreCase, store_contract

from mainspring.log.postgres import open_postgres
from mainspring.log.sqlite import open_sqlite


@pytest.mark.parametrize("case", store_contract(), ids=str)
async def test_sqlite_fulfils_the_store_contract(case: StoreCase, tmp_path: Path):
    await case.run(partial(open_sqlite, tmp_path / "mainspring.db"))


@pytest.mark.parametrize("case", store_contract(), ids=str)
async def test_postgres_fulfils_the_store_contract(case: StoreCase, postgres_tables_url: str):
    await case.run(partial(open_postgres, postgres_tables_url))
