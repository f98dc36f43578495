"""Two stores, to move sessions from one to the other."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.log.sample_sessions import opened

from mainspring.log.session_log import SessionLog


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[SessionLog]:
    async with opened(tmp_path / "a.db") as log:
        yield log


@pytest.fixture
async def there(tmp_path: Path) -> AsyncGenerator[SessionLog]:
    async with opened(tmp_path / "b.db") as log:
        yield log
