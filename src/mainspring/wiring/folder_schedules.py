"""The scheduled prompts of a folder, over the store of its sessions. `serve` runs them."""

from __future__ import annotations

from pathlib import Path

from mainspring.config import Settings
from mainspring.core import clock
from mainspring.log.records import Records
from mainspring.runtime.agent import Agent
from mainspring.runtime.session_context import SetupRequest
from mainspring.service.jobs.dispatcher import no_enqueue
from mainspring.service.resources.agents import Agents
from mainspring.service.resources.environments import Environments
from mainspring.service.schedules.agent_schedules import AgentSchedules
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployments import Deployments
from mainspring.service.webhooks.webhook_endpoints import Webhooks
from mainspring.service.webhooks.webhook_outbox import Outbox
from mainspring.wiring.settings_files import read_project_files
from mainspring.wiring.user_vault import user_vault


def folder_schedules(
    settings: Settings, records: Records, agent: Agent, folder: Path
) -> AgentSchedules:
    seal, home = user_vault(settings), Path(settings.home)
    outbox = Outbox(records, Webhooks(records, seal=seal), put=no_enqueue)
    store = DeploymentStore(records, outbox=outbox, seal=seal, put=no_enqueue, clock=clock.now)
    agents = Agents(records)
    return AgentSchedules(
        deployments=Deployments(store, pin_agent=agents.reference),
        agents=agents,
        environments=Environments(records),
        folder=folder,
        agent=agent,
        read_project=lambda: read_project_files(folder, home=home),
    )


def session_schedules(settings: Settings, setup: SetupRequest) -> AgentSchedules:
    folder = setup.thread.session_state.workspace or str(setup.options.workspace or "")
    return folder_schedules(settings, setup.log.store.records, setup.agent, Path(folder))
