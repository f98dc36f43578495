from collections.abc import AsyncGenerator

import pytest
from tests.providers.loopback import Loopback, serving

from mainspring.capabilities.providers.http import Http


@pytest.fixture
async def server() -> AsyncGenerator[Loopback, None]:
    async with serving() as loopback:
        yield loopback


@pytest.fixture
async def http() -> AsyncGenerator[Http, None]:
    async with Http() as opened:
        yield opened
