"""What is left of a session that was deleted: nothing."""

import os
import time
from pathlib import Path

from anthropic import Anthropic
from tests.api.conftest import platform


def names_in(place: Path) -> list[str]:
    """Also while they go."""
    return [name for _, folders, files in os.walk(place) for name in (*folders, *files)]


def test_a_deleted_session_leaves_no_files_behind(tmp_path: Path):
    with (
        platform(tmp_path) as running,
        Anthropic(api_key=running.key, base_url=running.url) as client,
    ):
        agent = client.beta.agents.create(
            name="writer", model="claude-sonnet-4-5", tools=[{"type": "agent_toolset_20260401"}]
        )
        environment = client.beta.environments.create(name="here")
        session = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
        with client.beta.sessions.events.stream(session.id) as stream:
            order = 'call bash {"command": "echo secret-plan > plan.txt"}'
            client.beta.sessions.events.send(
                session.id,
                events=[{"type": "user.message", "content": [{"type": "text", "text": order}]}],
            )
            for event in stream:
                if event.type == "session.status_idle":
                    break
        place = tmp_path / ".mainspring"
        assert (place / "workspaces" / session.id / "plan.txt").read_text() == "secret-plan\n"
        client.beta.sessions.delete(session.id)
        deadline = time.monotonic() + 60
        while left := [name for name in names_in(place) if session.id in name]:
            assert time.monotonic() < deadline, left
        assert not any(b"secret-plan" in p.read_bytes() for p in place.rglob("*") if p.is_file())
