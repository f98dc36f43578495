"""Workspaces that nobody uses are removed, after a notice; their sessions stay."""

import os
from datetime import timedelta
from pathlib import Path

from tests.service.fixed_clock import person

from mainspring.capabilities.sandbox.backends.session_uids import session_uid, session_uids
from mainspring.config import Settings, read_settings
from mainspring.core import clock
from mainspring.core.events import AgentToolUse, StatusIdle, StatusRunning, StopReason
from mainspring.core.ids import new_id
from mainspring.core.sender import Origin
from mainspring.files.session_owner import available_uids
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite
from mainspring.runtime.session.session_paths import SERVED_STATE_FOLDER
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.resources.agents import CreateAgent
from mainspring.service.resources.environments import CreateEnvironment
from mainspring.service.sessions.session_params import CreateSession
from mainspring.service.sessions.workspaces.expired_workspaces import (
    EXPIRED_SUFFIX,
    ExpiredWorkspaceSweeper,
)
from mainspring.service.sessions.workspaces.workspace_expiry import CLEAR_TASK, WorkspaceExpiry
from mainspring.service.storage.repository import Notification
from mainspring.wiring import sandboxes as sandbox_pools
from mainspring.wiring.service_assembly import open_service
from mainspring.wiring.service_workspaces import workspace_cleaner


def settings_in(folder: Path) -> Settings:
    environ = {
        "MAINSPRING_VAULT": str(folder / "vault"),
        "MAINSPRING_WORKSPACES": str(folder / "workspaces"),
    }
    return read_settings(store=str(folder / "mainspring.db"), environ=environ)


async def ask(log: SessionLog, session_id: str) -> None:
    """A call that waits for an answer."""
    writer = await log.hold(session_id, owner="test")
    _, use = await writer.append(StatusRunning(), AgentToolUse(name="bash", input={}))
    reason = StopReason(type="requires_action", event_ids=(use.id,))
    await writer.append(StatusIdle(stop_reason=reason, reason="requires_action"))
    await writer.release()


async def test_an_unused_workspace_is_removed_three_days_after_a_notification(tmp_path: Path):
    settings = settings_in(tmp_path)
    now, told = clock.now(), list[tuple[str, str]]()

    async def notify(notice: Notification) -> None:
        told.append((notice.type, notice.id))

    async with (
        open_service(settings) as service,
        sandbox_pools.sandbox_pool(settings) as sandbox_pool,
    ):
        records, sessions, log = (
            service.infrastructure.store.records,
            service.sessions.sessions,
            service.infrastructure.log,
        )
        agent = await service.resources.agents.create(
            "acme", CreateAgent(name="clerk", model="claude-opus-5-5")
        )
        place = await service.resources.environments.create("acme", CreateEnvironment(name="here"))
        asked = CreateSession(agent=agent.id, environment_id=place.id)
        made = [
            (await sessions.create(person(), asked, origin=Origin(type="api", id="key_1"))).id
            for _ in range(3)
        ]
        stuck, idle, waiting = made
        for session_id in made:
            (tmp_path / "workspaces" / session_id / "src").mkdir(parents=True)
            mounted = tmp_path / "workspaces" / f"{session_id}.mounted.json"
            mounted.mkdir() if session_id == stuck else mounted.touch()  # no file to unlink
        await ask(log, waiting)
        (tmp_path / "workspaces" / f"sesn_x{EXPIRED_SUFFIX}").mkdir()
        (tmp_path / "workspaces" / "notes").mkdir()
        expiry = WorkspaceExpiry(records, sessions.projections, notify=notify, clock=lambda: now)
        clearing = workspace_cleaner(settings, records, sandbox_pool)
        expiring = ExpiredWorkspaceSweeper(
            Path(settings.workspaces),
            log,
            expiry,
            clearing,
        )

        async def after(days: int) -> list[str]:
            nonlocal now
            now = clock.now() + timedelta(days=days)
            await expiring.sweep()
            folders = (tmp_path / "workspaces").iterdir()
            names = [folder.name for folder in folders if folder.is_dir()]
            return sorted(name for name in names if not name.startswith("."))

        everything = sorted([*made, "notes", f"{stuck}.mounted.json"])
        assert await after(26) == everything
        assert told == []
        assert await after(40) == everything  # not before somebody was told
        assert told == [("mainspring.workspace_expiring", item) for item in sorted([stuck, idle])]
        assert await after(42) == everything
        assert await after(44) == sorted([stuck, waiting, "notes", f"{stuck}.mounted.json"])
        assert told[2:] == [("mainspring.workspace_removed", i) for i in sorted([stuck, idle])]
        assert not (tmp_path / "workspaces" / f"{idle}.mounted.json").exists()
        assert (await sessions.get(person(), idle)).status == "idle"
        assert getattr(await expiry.record("acme", idle), "removed_at", None) == now
        await sessions.delete(person(), idle)
        assert await expiry.record("acme", idle) is None


async def test_a_session_keeps_its_uid_and_transcripts_until_it_is_deleted(tmp_path: Path):
    settings = settings_in(tmp_path)
    id_ = new_id("sesn")
    (tmp_path / "workspaces" / id_).mkdir(parents=True)
    transcript = tmp_path / "workspaces" / SERVED_STATE_FOLDER / "transcripts" / f"{id_}.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.touch()
    has_uids = os.geteuid() == 0 and bool(available_uids())
    claim = session_uids().claims / str(session_uid(id_)) if has_uids else None
    async with (
        open_sqlite(tmp_path / "mainspring.db") as store,
        sandbox_pools.sandbox_pool(settings) as pool,
    ):
        clearing = workspace_cleaner(settings, store.records, pool)
        await clearing.remove_workspace(id_)
        assert transcript.exists()
        assert claim is None or claim.is_symlink()
        await clearing.clear(Job(task=CLEAR_TASK, key=id_, tenant="acme"))
    assert [item.name for item in (tmp_path / "workspaces").iterdir()] == [SERVED_STATE_FOLDER]
    assert not transcript.exists()
    assert claim is None or not claim.is_symlink()
