"""Where there is no isolation nothing is run; and the fallback, where it is chosen."""

import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.session_e2e.session_setup import Scene

from mainspring.capabilities.providers.scripted import calls
from mainspring.core.events import SandboxOpened

EVERY = ["bubblewrap", "landlock", "seatbelt", "docker", "container"]
RUNNING = {"bash", "service_start", "service_read", "service_stop"}


async def test_without_a_sandbox_backend_no_program_runs(scene: Scene):
    scene.user(sandbox={"disabledBackends": EVERY})
    scene.write("notes.txt", "one\n")
    async with scene.play(
        calls("read", file_path="notes.txt") + calls("grep", pattern="one"),
        calls("bash", command="touch ran"),
        calls("write", file_path="made.txt", content="x"),
        calls("python", code="print(6 * 7)"),
        calls("python", code="import os; os.system('touch ran')", full=True),
        mode="acceptEdits",
    ) as play:
        result = await play.run()
        offered = {spec.name for spec in play.model.requests[0].tools}
        assert offered.isdisjoint(RUNNING)
        assert {"read", "write", "edit", "glob", "grep"} <= offered
        told = "\n".join(play.model.requests[0].system)
        assert "No commands can be run here: there is no sandbox." in told
        results = await play.results()
        assert "one" in results[0]
        assert "There is no tool 'bash'" in results[2]
        assert scene.read("made.txt") == "x"
        assert result.reason in ("completed", "requires_action")
        assert await play.events(SandboxOpened) == []
    assert not (scene.workspace / "ran").exists()
    [warning] = scene.warnings
    assert warning.startswith("no commands can be run here")
    if sys.platform == "linux":
        for name in ("bubblewrap", "landlock"):
            assert name in warning
        assert "disabled" in warning or "settings" in warning


async def test_bypass_mode_asks_for_approval_without_isolation(scene: Scene):
    scene.user(sandbox={"disabledBackends": EVERY})
    async with scene.play(
        calls("write", file_path="made.txt", content="x"), mode="bypassPermissions"
    ) as play:
        assert (await play.run()).reason == "requires_action"
        assert "bypassPermissions" in ((await play.asked()).reason or "")


@pytest.fixture
def reachable(monkeypatch: pytest.MonkeyPatch) -> Generator[Scene]:
    """Where a sandbox that has a user of its own can get to."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        scene = Scene(home=root / "home", workspace=root / "project", outside=root)
        for item in (scene.home, scene.workspace):
            item.mkdir()
        monkeypatch.setenv("HOME", str(scene.home))
        yield scene


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
async def test_the_landlock_backend_is_used_if_configured(reachable: Scene):
    scene = reachable
    scene.user(sandbox={"backend": "landlock"})
    scene.write("notes.txt", "one\n")
    scene.write(scene.home / "private.txt", "not for agents")
    tries = f"id -u; cat notes.txt; echo x > made.txt; cat {scene.home}/private.txt; touch /etc/x"
    async with scene.play(calls("bash", command=tries), mode="bypassPermissions") as play:
        result = await play.run()
        opened = await play.events(SandboxOpened)
        if not opened:
            pytest.skip(f"no landlock here: {scene.warnings}")
        if result.reason == "requires_action":  # degraded: bypass is not for it
            await play.allow(result)
        assert opened[0].backend == "landlock"
        [told] = await play.results()
        assert "one" in told
        assert "not for agents" not in told
        assert scene.read("made.txt") == "x\n"
        if os.getuid() == 0:
            assert told.splitlines()[0] != "0"
    assert not os.path.exists("/etc/x")
