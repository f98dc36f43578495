"""Hooks that are an agent of their own: it looks into things with tools, then says yes or no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mainspring.capabilities.hooks.config import Agent
from mainspring.capabilities.hooks.prompt import question
from mainspring.capabilities.hooks.verdict import Failed, Reply, read_judgement

RunAgent: TypeAlias = Callable[[str, str | None], Awaitable[str]]
"""A task, and a model or `None` for the usual one, to what the agent says in the end."""


async def run_agent_hook(handler: Agent, payload: bytes, run_agent: RunAgent | None) -> Reply:
    if run_agent is None:
        return Failed("needs an agent to run, and there is none")
    return read_judgement(await run_agent(question(handler.prompt, payload), handler.model))
