"""A runtime with everything it needs, from settings; and one blocking call for scripts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio

from mainspring.config import Settings, read_settings
from mainspring.core.model import Delta, Model
from mainspring.core.sender import local_user
from mainspring.harness.authorizer import AllowAll, Authorizer
from mainspring.harness.budget import Budget
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session import Result, Runtime, ignore_delta
from mainspring.wiring.providers import open_model_registry
from mainspring.wiring.sandbox_pool import MAX_IDLE, SandboxPool
from mainspring.wiring.stores import open_log
from mainspring.wiring.toolbox_builder import ToolboxBuilder


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None,
    *,
    store: str | None = None,
    authorizer: Authorizer | None = None,
    budget: Budget | None = None,
    options: RunOptions | None = None,
    idle_sandboxes: int = MAX_IDLE,
) -> AsyncGenerator[Runtime, None]:
    """Sessions and models, until the block ends. Keeps its log in `.mainspring/` by default.

    `authorizer` is for agents without built-in tools; with them, the settings files decide.
    `idle_sandboxes`: how many stay open between runs.
    """
    settings = settings or read_settings(store=store)
    options = options or RunOptions()
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as models,
        SandboxPool(
            settings, is_unsandboxed=options.is_unsandboxed, most_idle=idle_sandboxes
        ) as sandbox_pool,
    ):
        yield Runtime(
            log,
            models,
            toolbox_factory=ToolboxBuilder(
                settings, models, sandbox_pool, authorizer or AllowAll()
            ),
            options=options,
            budget=budget,
            sender=local_user(settings.user),
        )


def run(
    agent: Agent,
    message: str,
    *,
    store: str | None = None,
    model: Model | None = None,
    emit: Callable[[Delta], None] = ignore_delta,
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
