"""The internet of these tests."""

from collections.abc import AsyncGenerator

import pytest
from tests.network.internet import Internet, internet


@pytest.fixture
async def net() -> AsyncGenerator[Internet]:
    async with internet() as net:
        yield net
