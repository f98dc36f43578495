"""A program of one session, run by the real service: what it can see of the machine it is on."""

import json
from pathlib import Path

from anthropic import Anthropic
from tests.api.conftest import Platform, platform

_LOOK = """
import os, socket, sys
def seen(path):
    try:
        return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(16)
    except OSError:
        return None
def reached(port):
    try:
        socket.create_connection(("127.0.0.1", port), 2)
        return True
    except OSError:
        return None
found = [seen(path) for path in sys.argv[2:]] + [reached(int(sys.argv[1]))]
words = [f"{name}={value}" for name, value in os.environ.items() if "KEY" in name]
print("FOUND", found, [word for word in words if not word.startswith("GIT_CONFIG_KEY")])
"""


def run(client: Anthropic, agent_id: str, environment_id: str, command: str) -> tuple[str, str]:
    """The id of a session that has run a command, and what that printed."""
    session = client.beta.sessions.create(agent=agent_id, environment_id=environment_id)
    text = f"call bash {json.dumps({'command': command})}"
    said = ""
    with client.beta.sessions.events.stream(session.id) as stream:
        client.beta.sessions.events.send(
            session.id,
            events=[{"type": "user.message", "content": [{"type": "text", "text": text}]}],
        )
        for event in stream:
            if event.type == "agent.tool_result":
                said += "".join(item.text for item in event.content or () if item.type == "text")
            if event.type == "session.status_idle":
                break
    return session.id, said


def private_paths(running: Platform, other: str) -> list[Path]:
    """What is of the service, or of another session."""
    kept = running.folder / ".mainspring"
    return [
        kept / "mainspring.db",
        kept / "mainspring.db-wal",
        kept / "workspaces" / ".state" / "hands",
        kept / "workspaces" / ".state" / "snapshots",
        kept / "workspaces" / other,
        kept / "workspaces" / f"{other}.mounted.json",
        running.folder / "home" / ".mainspring" / "vault.key",
        running.folder / "stderr.txt",
    ]


def test_a_session_sees_neither_the_store_nor_the_key_nor_other_sessions(tmp_path: Path):
    with (
        platform(tmp_path, ANTHROPIC_API_KEY="sk-ant-of-the-operator") as running,
        Anthropic(api_key=running.key, base_url=running.url, max_retries=0, timeout=60) as client,
    ):
        agent = client.beta.agents.create(
            name="clerk", model="claude-opus-5-5", tools=[{"type": "agent_toolset_20260401"}]
        )
        environment = client.beta.environments.create(name="cloud", config={"type": "cloud"})
        other, said = run(client, agent.id, environment.id, "echo theirs > theirs.txt; ls")
        assert "theirs.txt" in said
        paths = private_paths(running, other)
        assert all(path.exists() for path in paths if not path.name.endswith(".mounted.json"))
        port = running.url.rpartition(":")[2]
        command = f"python3 - {port} {' '.join(map(str, paths))} <<'EOS'\n{_LOOK}\nEOS"
        _, said = run(client, agent.id, environment.id, command)
        assert f"FOUND {[None] * (len(paths) + 1)} []" in said, said
