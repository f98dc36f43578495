"""Assembles a runtime from settings; also `run` and `arun`, which run one session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Unpack

import anyio

from mainspring.capabilities.providers.script_file import scripted_models
from mainspring.config import Settings, read_settings
from mainspring.core.errors import InvalidInput
from mainspring.core.sender import local_user
from mainspring.harness.authorizer import AllowAll, Authorizer
from mainspring.harness.budget import Budget
from mainspring.log.task_groups import background_tasks
from mainspring.runtime.agent import Agent, Output
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.message_content import Content
from mainspring.runtime.session.run_arguments import RunOnceArguments, is_in_event_loop
from mainspring.runtime.session.run_result import RunResult
from mainspring.runtime.session.session import Runtime, ignore_delta
from mainspring.runtime.settings.policy_loader import LoadedPolicy
from mainspring.wiring.providers import default_model, open_model_registry
from mainspring.wiring.sandboxes import MAX_IDLE, sandbox_pool
from mainspring.wiring.stores import open_log
from mainspring.wiring.thread_implementations import toolbox_builder


@asynccontextmanager
async def open_runtime(  # parameters: what an embedding program may replace
    settings: Settings | None = None,
    *,
    store: str | None = None,
    authorizer: Authorizer | None = None,
    budget: Budget | None = None,
    options: RunOptions | None = None,
    idle_sandboxes: int = MAX_IDLE,
    loaded: LoadedPolicy | None = None,
) -> AsyncGenerator[Runtime, None]:
    """A runtime with its log and models, until the block ends. By default the log is in
    `.mainspring/`.

    `authorizer` is for agents without built-in tools; with them, the settings files decide.
    `idle_sandboxes`: how many sandboxes stay open between runs. `loaded`: the settings files as
    they were just read, for the first run.
    """
    is_program = settings is None  # the command line looks into the agent's folder for scripts
    settings = settings or read_settings(store=store)
    folder = Path(settings.folder)
    scripts = scripted_models(default_model(settings), folder) if is_program else {}
    options = options or RunOptions()
    async with (
        open_log(settings) as log,
        open_model_registry(settings) as models,
        sandbox_pool(
            settings, is_unsandboxed=options.is_unsandboxed, most_idle=idle_sandboxes
        ) as sandboxes,
        background_tasks() as background,
    ):
        runtime = Runtime(
            log,
            models,
            toolbox_factory=toolbox_builder(
                settings, models, sandboxes, authorizer or AllowAll(), loaded=loaded
            ),
            options=options,
            budget=budget,
            sender=local_user(settings.user),
        )
        runtime.background = background
        for name, script in scripts.items():
            models.put(name, script)
        yield runtime


def run(
    agent: Agent[Output], message: Content, **arguments: Unpack[RunOnceArguments]
) -> RunResult[Output]:
    """Start a session, run it to its end and return the result. Blocks; if an event loop is
    running, as in Jupyter, write `await arun(...)`.

    Raises:
        InvalidInput: an event loop is running here.
    """
    if is_in_event_loop():
        raise InvalidInput(
            "run() blocks, and an event loop is running here (as in Jupyter, or in an async"
            " function): write `await arun(...)` instead"
        )
    return anyio.run(partial(arun, agent, message, **arguments))


async def arun(
    agent: Agent[Output], message: Content, **arguments: Unpack[RunOnceArguments]
) -> RunResult[Output]:
    """Start a session, run it to its end and return the result. If it is cancelled, the session can
    be continued later."""
    async with open_runtime(store=arguments.get("store")) as runtime:
        if (model := arguments.get("model")) is not None:
            runtime.models.put(agent.model, model)
        session = await runtime.start(agent, message, key=arguments.get("key"))
        result = await session.run(
            arguments.get("emit", ignore_delta),
            deps=arguments.get("deps"),
            on_approval=arguments.get("on_approval"),
        )
        return result or await session.last_result()
