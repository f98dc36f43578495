from collections.abc import AsyncGenerator

import pytest
from tests.providers.loopback import Loopback, serving

from mainspring.capabilities.providers.http_client import HttpClient


@pytest.fixture
async def server() -> AsyncGenerator[Loopback]:
    async with serving() as loopback:
        yield loopback


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient() as opened:
        yield opened
