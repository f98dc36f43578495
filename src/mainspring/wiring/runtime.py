"""A runtime with everything it needs, from settings; and one blocking call for scripts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from mainspring.capabilities.providers.catalog import Catalog
from mainspring.capabilities.providers.http import Http
from mainspring.config import FOLDER, Settings, read_settings
from mainspring.core.model import Delta, Model
from mainspring.core.sender import at_machine
from mainspring.harness.budget import Purse
from mainspring.harness.gates import Gates, OpenGates
from mainspring.runtime.agent import Agent
from mainspring.runtime.sessions import Result, Runtime, unheard
from mainspring.wiring.hands import Bench
from mainspring.wiring.models import Shelf
from mainspring.wiring.outfit import Outfitter
from mainspring.wiring.stores import open_log
from mainspring.wiring.wish import Wish, always


@asynccontextmanager
async def open_shelf(settings: Settings) -> AsyncGenerator[Shelf, None]:
    catalog = Catalog.load(Path(settings.folder) / FOLDER / "models.toml")
    async with Http(trust_environment=True) as http:
        yield Shelf(http, catalog, settings)


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None,
    *,
    store: str | None = None,
    gates: Gates | None = None,
    purse: Purse | None = None,
    wish: Wish | None = None,
) -> AsyncGenerator[Runtime, None]:
    """Sessions and models, until the block ends. Keeps its log in `.mainspring/` by default.

    `gates` are for agents without built-in tools; with them, the settings files decide.
    """
    settings = settings or read_settings(store=store)
    wish = wish or Wish()
    async with (
        open_log(settings) as log,
        open_shelf(settings) as shelf,
        Bench(settings, is_unsandboxed=wish.is_unsandboxed) as bench,
    ):
        outfit = Outfitter(settings, shelf, bench, always(wish), gates or OpenGates())
        yield Runtime(log, shelf, outfit=outfit, purse=purse, sender=at_machine(settings.user))


def run(
    agent: Agent,
    message: str,
    *,
    store: str | None = None,
    model: Model | None = None,
    emit: Callable[[Delta], None] = unheard,
) -> Result:
    """Start a session, run it to its end, give back what came of it. For scripts: it blocks.

    `model` answers in place of the one the agent names, for tests and demonstrations.
    """
    return anyio.run(partial(_run, agent, message, store=store, model=model, emit=emit))


async def _run(
    agent: Agent,
    message: str,
    *,
    store: str | None,
    model: Model | None,
    emit: Callable[[Delta], None],
) -> Result:
    async with open_runtime(store=store) as runtime:
        if model is not None:
            runtime.models.put(agent.model, model)
        session = await runtime.start(agent, message)
        result = await session.run(emit)
        assert result is not None  # there was a message
        return result
