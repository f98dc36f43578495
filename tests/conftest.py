"""What every test shares. `anyio_mode = "auto"` in pyproject.toml runs every async test."""

import gc
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.abilities import declare_boundary
from tests.log.sample_sessions import opened

from mainspring.log.session_log import SessionLog

pytest_plugins = ["tests.fixtures_postgres", "tests.property_examples"]
pytest.register_assert_rewrite("tests.contracts")

# What collection makes stays until the end: it is never searched for garbage, which takes long.
gc.disable()

# A shell that starts pytest in the background has it ignore SIGINT, and so would the processes that
# tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _home_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a test keeps for its user is not kept in the home of whoever runs the tests."""
    home = tmp_path_factory.mktemp("home_of_the_tests")
    os.environ["HOME"] = str(home)  # noqa: TID251 (of the tests)


@pytest.fixture(scope="session", autouse=True)
def _commands_can_run() -> None:
    declare_boundary()


@pytest.fixture
async def log(tmp_path: Path) -> AsyncGenerator[SessionLog]:
    async with opened(tmp_path / "log.db") as log:
        yield log


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", help="3/12: of twelve parts of the tests chosen, run the third")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After `-m` and `-k`. Neighbours, often variants of one test, are in different parts."""
    chosen: str | None = config.getoption("--slice")
    if chosen is None:
        return
    part, _, parts = chosen.partition("/")
    if not 1 <= int(part) <= int(parts):
        raise pytest.UsageError(f"--slice {chosen}: there is no such part")
    in_order = sorted(items, key=lambda item: item.nodeid)
    slice_ids = {item.nodeid for item in in_order[int(part) - 1 :: int(parts)]}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in slice_ids])
    items[:] = [item for item in items if item.nodeid in slice_ids]
