"""What settings files say about hooks and the network holds in sessions that the command runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest
from tests.abilities import require_network
from tests.cli.conftest import opened
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run

from mainspring.core.envelope import Event
from mainspring.core.events import HookRan, NetworkRequested

Write: TypeAlias = Callable[[dict[str, Any]], Path]


@pytest.fixture
def write_settings(environ: dict[str, str]) -> Write:
    """The user's own settings file."""

    def write(settings: dict[str, Any]) -> Path:
        file = Path(environ["HOME"], ".mainspring", "settings.json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(settings))
        return file

    return write


def results(upstream: Upstream) -> list[str]:
    messages: list[dict[str, Any]] = upstream.requests[-1]["messages"]
    return [message["content"] for message in messages if message["role"] == "tool"]


async def events_of(store: Path) -> list[Event]:
    async with opened(store) as log:
        [session] = await log.sessions()
        return await log.read(session.id)


def test_hooks_apply_from_the_first_run_of_a_session_and_after_resuming(
    mainspring: Run, upstream: Upstream, write_settings: Write, place: Path, store: Path
):
    refuse = {"type": "command", "command": "echo 'never on my watch' >&2; exit 2"}
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [refuse]}]}
    file = write_settings({"hooks": hooks, "permissions": {"allow": ["Bash(touch:*)"]}})
    for _ in range(2):
        upstream.says(call("bash", command="touch made.txt"))
        upstream.says("Then not.")
    assert mainspring("run", "make it", **upstream.variables).returncode == 0
    assert "never on my watch" in results(upstream)[-1]
    file.unlink()  # what a session began with, it keeps
    session = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    again = mainspring("run", "again", "--resume", session, **upstream.variables)
    assert again.returncode == 0, again.stderr
    assert "never on my watch" in results(upstream)[-1]
    assert not (place / "made.txt").exists()
    ran = [item.payload for item in anyio.run(events_of, store)]
    assert [item.outcome for item in ran if isinstance(item, HookRan)] == ["blocked"] * 2


def test_a_shell_first_used_after_a_resume_starts_without_a_loss_notice(
    mainspring: Run, upstream: Upstream
):
    upstream.says("Good day.")
    assert mainspring("run", "hello", **upstream.variables).returncode == 0
    session = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    upstream.says(call("bash", command="pwd"))
    upstream.says("There.")
    again = mainspring("run", "where?", "--resume", session, **upstream.variables)
    assert (again.returncode, again.stdout) == (0, "There.\n"), again.stderr
    assert results(upstream)[-1].endswith("/project")
    assert "anew" not in results(upstream)[-1]


def test_an_allowed_network_is_reached_only_through_the_proxy(
    mainspring: Run, upstream: Upstream, write_settings: Write, store: Path
):
    require_network()
    networking = {"type": "limited", "allowed_hosts": ["allowed.test"]}
    write_settings({"sandbox": {"networking": networking}})
    ask = "import urllib.request as r; r.urlopen('http://forbidden.test/x', timeout=60)"
    upstream.says(call("bash", command=f'python3 -c "{ask}"'))
    free = ("--mode", "bypassPermissions")
    result = mainspring("run", "look it up", *free, **upstream.variables)
    assert result.returncode == 0, result.stderr
    assert "403" in results(upstream)[-1]
    assert "web_fetch" in [tool["function"]["name"] for tool in upstream.requests[0]["tools"]]
    requested = [
        i.payload for i in anyio.run(events_of, store) if isinstance(i.payload, NetworkRequested)
    ]
    assert [(item.host, item.decision) for item in requested] == [("forbidden.test", "deny")]


def test_without_a_network_web_fetch_is_not_offered(mainspring: Run, upstream: Upstream):
    assert mainspring("run", "hello", **upstream.variables).returncode == 0
    offered = [tool["function"]["name"] for tool in upstream.requests[0]["tools"]]
    assert "bash" in offered
    assert "web_fetch" not in offered
