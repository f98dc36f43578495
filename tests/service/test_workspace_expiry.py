"""Workspaces that nobody uses are removed, after a notice; their sessions stay."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.service.times import person

from mainspring.config import read_settings
from mainspring.core import clock
from mainspring.core.events import AgentToolUse, StatusIdle, StatusRunning, StopReason
from mainspring.core.sender import Origin
from mainspring.log.session_log import SessionLog
from mainspring.service.describing.agents import CreateAgent
from mainspring.service.describing.environments import CreateEnvironment
from mainspring.service.keeping.notice import Notice
from mainspring.service.sessions.sessions import CreateSession
from mainspring.service.work.workspace_expiry import WorkspaceExpiry
from mainspring.wiring.clearing import EXPIRED, Clearing
from mainspring.wiring.expiring import Expiring
from mainspring.wiring.hands import Bench
from mainspring.wiring.house import open_house


async def ask(log: SessionLog, session_id: str) -> None:
    """A call that waits for an answer."""
    writer = await log.hold(session_id, owner="test")
    _, use = await writer.append(StatusRunning(), AgentToolUse(name="bash", input={}))
    reason = StopReason(type="requires_action", event_ids=(use.id,))
    await writer.append(StatusIdle(stop_reason=reason, reason="requires_action"))
    await writer.release()


async def test_a_workspace_is_removed_three_days_after_its_people_were_told(tmp_path: Path):
    environ = {
        "MAINSPRING_VAULT": str(tmp_path / "vault"),
        "MAINSPRING_WORKSPACES": str(tmp_path / "workspaces"),
    }
    settings = read_settings(store=str(tmp_path / "mainspring.db"), environ=environ)
    now, told = clock.now(), list[tuple[str, str]]()

    async def notify(notice: Notice) -> None:
        told.append((notice.type, notice.id))

    async with open_house(settings) as house, Bench(settings) as bench:
        records, sessions, log = house.ground.store.records, house.talk.sessions, house.ground.log
        agent = await house.shelves.agents.create(
            "acme", CreateAgent(name="clerk", model="claude-opus-5-5")
        )
        place = await house.shelves.environments.create("acme", CreateEnvironment(name="here"))
        asked = CreateSession(agent=agent.id, environment_id=place.id)
        made = [
            (await sessions.create(person(), asked, origin=Origin(type="api", id="key_1"))).id
            for _ in range(2)
        ]
        idle, waiting = made
        for session_id in made:
            (tmp_path / "workspaces" / session_id / "src").mkdir(parents=True)
            (tmp_path / "workspaces" / f"{session_id}.mounted.json").write_text("{}")
        await ask(log, waiting)
        (tmp_path / "workspaces" / f"sesn_x{EXPIRED}").mkdir()
        (tmp_path / "workspaces" / "notes").mkdir()
        expiry = WorkspaceExpiry(records, sessions.digests, notify=notify, clock=lambda: now)
        expiring = Expiring(settings, log, expiry, Clearing(settings, records, bench))

        async def after(days: int) -> list[str]:
            nonlocal now
            now = clock.now() + timedelta(days=days)
            await expiring.sweep()
            folders = (tmp_path / "workspaces").iterdir()
            return sorted(each.name for each in folders if each.is_dir())

        everything = sorted([*made, "notes"])
        assert await after(26) == everything
        assert told == []
        assert await after(40) == everything  # not before somebody was told
        assert told == [("mainspring.workspace_expiring", idle)]
        assert await after(42) == everything
        assert await after(44) == sorted([waiting, "notes"])
        assert told[1:] == [("mainspring.workspace_removed", idle)]
        assert not (tmp_path / "workspaces" / f"{idle}.mounted.json").exists()
        assert (await sessions.get(person(), idle)).status == "idle"
        known = await expiry.record("acme", idle)
        assert known is not None
        assert known.removed_at == now
        await sessions.delete(person(), idle)
        assert await expiry.record("acme", idle) is None
