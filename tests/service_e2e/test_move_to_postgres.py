"""A service that moves from SQLite to PostgreSQL by a backup made while it was at work."""

import signal
from dataclasses import replace

from tests.service_e2e.service_processes import (
    Stage,
    bash,
    begun,
    eventually,
    said,
    told,
    upto_idle,
    waiting,
)


async def test_a_backup_of_a_running_service_is_served_from_postgresql(
    stage: Stage, shared_store: str
):
    async with stage.serve(key=None) as old, old.client() as client:
        quiet = await begun(client, bash("echo kept > note"), "say noted")
        await upto_idle(client, quiet)
        busy = await begun(client, waiting(), "say ready")
        workspace = stage.workspaces / busy
        await eventually(workspace / "effects", "began")
        await stage.command("backup", "everything")
        old.process.send_signal(signal.SIGKILL)
        await old.process.wait()
    await stage.command("restore", "everything", "--into", shared_store)
    moved = replace(stage, variables={"MAINSPRING_STORE": shared_store})
    async with moved.serve(key=None, first=old.key) as new, new.client() as client:
        assert {session.id async for session in client.beta.sessions.list()} == {quiet, busy}
        (workspace / "go").touch()
        assert said(await upto_idle(client, busy)) == ["ready"]  # as of the backup it was at work
        await told(client, quiet, bash("cat note") + "\nsay there it is")
        assert said(await upto_idle(client, quiet, times=2)) == ["noted", "there it is"]
