"""What every test shares. `anyio_mode = "auto"` in pyproject.toml runs every async test."""

import signal

import pytest
from hypothesis import settings

pytest_plugins = ["tests.fixtures_postgres"]
pytest.register_assert_rewrite("tests.contracts")

# A busy machine stalls at times: pytest-timeout bounds a test; a deadline per example flakes.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

# A shell that starts pytest in the background has it ignore SIGINT, and so would the processes that
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
