"""Which agent a session is run with: the folder, what the caller says, what the log has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from mainspring.config import Settings
from mainspring.harness.permissions.policy import Mode
from mainspring.runtime.agent_folder import AgentFolder, read_agent
from mainspring.runtime.outline import Outline
from mainspring.wiring.models import default_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the caller says; `None`: what the agent says."""

    folder: str | None = None
    model: str | None = None
    max_turns: int | None = None
    max_cost_usd: Decimal | None = None
    mode: Mode | None = None
    workspace: str | None = None
    """Where it works, if not in this folder."""
    is_unsandboxed: bool = False


def open_agent(settings: Settings, wanted: Wanted, recorded: Outline | None = None) -> AgentFolder:
    """The agent of a new session or, with `recorded`, of one that goes on with its own model.

    Raises:
        InvalidInput: the folder is not there or its file is wrong.
    """
    known = recorded.folder if recorded is not None else None
    found = read_agent(Path(settings.folder) / (wanted.folder or known or "."))
    agent = found.agent
    used = recorded.model if recorded is not None else None
    limits = agent.limits
    if wanted.max_turns is not None:
        limits = replace(limits, max_turns=wanted.max_turns)
    if wanted.max_cost_usd is not None:
        limits = replace(limits, max_cost_usd=wanted.max_cost_usd)
    model = wanted.model or used or agent.model or default_model(settings)
    return replace(found, agent=replace(agent, model=model, limits=limits))


def origin(settings: Settings, wanted: Wanted) -> dict[str, str] | None:
    """What a session keeps of where its agent came from, so that it can go on from anywhere."""
    if wanted.folder is None:
        return None
    return {"folder": str((Path(settings.folder) / wanted.folder).resolve())}
