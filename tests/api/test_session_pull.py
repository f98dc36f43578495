"""A session moves from `mainspring serve` to a laptop, with its files and what it waits for."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from anthropic import Anthropic, ConflictError
from tests import fork_server
from tests.api.conftest import platform
from tests.cli.upstream import serving
from tests.environ import clean_environ

ORDER = """\
call bash {"command": "mkdir bin; echo made > bin/tool; chmod 755 bin/tool"}
call write {"file_path": "later.txt", "content": "approved"}
"""
IDLE = "session.status_idle"
ASKING: Any = {
    "type": "agent_toolset_20260401",
    "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
}


@dataclass(frozen=True)
class Laptop:
    folder: Path

    def run(self, *arguments: str, **more: str) -> CompletedProcess[str]:
        env = {**clean_environ(), "HOME": str(self.folder.parent), **more}
        return fork_server.run(*arguments, cwd=self.folder, env=env)


def start_session_that_asks(client: Anthropic) -> tuple[str, str]:
    """A session that has made a file and waits for leave to write another."""
    agent = client.beta.agents.create(name="a", model="claude-sonnet-4-5", tools=[ASKING])
    environment = client.beta.environments.create(name="here")
    session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
    say(client, session.id, ORDER)
    deadline = time.monotonic() + 60
    while not (found := client.beta.sessions.events.list(session.id, types=[IDLE]).data):
        assert time.monotonic() < deadline
    idle: Any = found[0]
    assert idle.stop_reason.type == "requires_action"
    [waiting] = idle.stop_reason.event_ids
    return session.id, waiting


def say(client: Anthropic, session_id: str, text: str) -> None:
    content: list[Any] = [{"type": "text", "text": text}]
    client.beta.sessions.events.send(
        session_id, events=[{"type": "user.message", "content": content}]
    )


def viewer_key(client: Anthropic) -> str:
    body = {"name": "v", "role": "viewer"}
    made: Any = client.post("/v1/mainspring/keys", cast_to=object, body=body)
    return made["key"]


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    folder = tmp_path / "laptop"
    folder.mkdir()
    return Laptop(folder)


@pytest.mark.slow
def test_a_session_is_pulled_with_its_files_and_open_approval(tmp_path: Path, laptop: Laptop):
    (tmp_path / "server").mkdir()
    with (
        platform(tmp_path / "server") as server,
        Anthropic(api_key=server.key, base_url=server.url, max_retries=0) as client,
    ):
        session_id, waiting = start_session_that_asks(client)
        key = {"MAINSPRING_API_KEY": server.key}
        pull = ("sessions", "pull", server.url, session_id)
        assert "MAINSPRING_API_KEY is not set" in laptop.run(*pull).stderr
        refused = laptop.run(*pull, MAINSPRING_API_KEY=viewer_key(client))
        assert "the server answered 403" in refused.stderr
        pulled = laptop.run(*pull, "-w", "work", **key)
        assert pulled.returncode == 0, pulled.stderr
        assert "the server answered 409" in laptop.run(*pull, "-w", "again", **key).stderr
        with pytest.raises(ConflictError, match="was moved"):
            say(client, session_id, "say hello")

    assert laptop.run("log", "verify", session_id).stdout.startswith("ok ")
    tool = laptop.folder / "work" / "bin" / "tool"
    assert tool.read_text() == "made\n"
    assert tool.stat().st_mode & 0o777 == 0o755
    assert list((laptop.folder / ".mainspring" / "transfers").iterdir()) == []

    listed = json.loads(laptop.run("sessions", "ls", "--json").stdout)
    assert (listed["id"], listed["status"]) == (session_id, "requires_action")
    with serving() as model:
        for status in (3, 0):  # the rules of this machine ask for themselves
            assert not (laptop.folder / "work" / "later.txt").exists()
            answered = laptop.run("sessions", "answer", session_id, waiting, "allow")
            assert answered.returncode == 0, answered.stderr
            resume = ("run", "--resume", session_id, "--model", "ollama:test")
            assert laptop.run(*resume, **model.variables).returncode == status
    assert (laptop.folder / "work" / "later.txt").read_text() == "approved"
