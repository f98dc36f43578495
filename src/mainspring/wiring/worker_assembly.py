"""Opens a worker of the service (`service/service_worker.py`): its sandboxes, tools and files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.vault.redaction import Scrubber, multi_word_secrets
from mainspring.capabilities.workspace.session_outputs import OutputFolder
from mainspring.config import Settings
from mainspring.harness.authorizer import AllowAll
from mainspring.runtime.session.streaming_redactor import BOUNDARIES
from mainspring.service.jobs.worker import Worker
from mainspring.service.service import Service
from mainspring.service.service_worker import WorkerConfig, WorkerPorts, run_worker
from mainspring.service.sessions.resource_types import file_content
from mainspring.service.sessions.session_runs import RunRedaction
from mainspring.service.telemetry.telemetry_setup import Telemetry
from mainspring.wiring.sandbox_settings import state_folders
from mainspring.wiring.sandboxes import sandbox_pool
from mainspring.wiring.service_workspaces import (
    fork_workspaces,
    open_git_cloner,
    open_mounts,
    workspace_cleaner,
)
from mainspring.wiring.thread_implementations import toolbox_builder
from mainspring.wiring.user_vault import known_secrets
from mainspring.wiring.workflow_steps import STEP_PORTS


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerMachine:
    """The machine that a worker runs on."""

    settings: Settings
    networks: tuple[Network, ...] = ()
    """Private addresses that its sessions may call from outside of sandboxes."""


@asynccontextmanager
async def open_worker(
    machine: WorkerMachine,
    service: Service,
    telemetry: Telemetry,
    config: WorkerConfig,
    *,
    beat: Callable[[], None],
) -> AsyncGenerator[Worker, None]:
    """A worker with its periodic tasks, until the block ends. `beat` is called regularly while it
    runs."""
    infrastructure, settings = service.infrastructure, machine.settings
    async with sandbox_pool(settings) as sandboxes:
        await sandboxes.end_outdated(state_folders(settings).served_states)
        ports = WorkerPorts(
            toolbox_factory=toolbox_builder(
                settings, infrastructure.models, sandboxes, AllowAll(), machine.networks
            ),
            known_secrets=known_secrets(settings),
            redact=_redaction,
            forks=fork_workspaces(settings, infrastructure.log),
            mounts=open_mounts(
                file_content(service.resources.files), open_git_cloner(machine.networks)
            ),
            outputs_of=lambda session_id: OutputFolder(infrastructure.workspaces / session_id),
            cleaner=workspace_cleaner(settings, infrastructure.store.records, sandboxes),
            step_ports=STEP_PORTS,
        )
        async with run_worker(service, telemetry, config, ports, beat=beat) as worker:
            yield worker


def _redaction(secrets: Mapping[str, str]) -> RunRedaction:
    return RunRedaction(scrub=Scrubber(secrets), passages=multi_word_secrets(secrets, BOUNDARIES))
