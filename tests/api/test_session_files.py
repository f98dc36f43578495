"""The files of a session at its snapshots: compared, and restored."""

import json
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from tests.api.conftest import Platform, platform

ALLOWED: Any = {
    "type": "agent_toolset_20260401",
    "default_config": {"permission_policy": {"type": "always_allow"}},
}


def write(content: str, path: str = "notes.txt") -> str:
    return f"call write {json.dumps({'file_path': path, 'content': content})}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with platform(tmp_path_factory.mktemp("files")) as running:
        yield running


@pytest.fixture(scope="module")
def session_id(server: Platform) -> str:
    """A session that has written a file, and then changed it and written another."""
    with official(server) as client:
        agent = client.beta.agents.create(name="writer", model="ollama:test", tools=[ALLOWED])
        environment = client.beta.environments.create(name="place")
        made = client.beta.sessions.create(agent=agent.id, environment_id=environment.id)
        for lines in ((write("one\n"),), (write("two\n"), write("b\n", "deep/b.txt"))):
            text = "Go.\n" + " && ".join(lines)
            message: Any = {"type": "user.message", "content": [{"type": "text", "text": text}]}
            client.beta.sessions.events.send(made.id, events=[message])
            for event in client.beta.sessions.events.stream(made.id):
                if event.type == "session.status_idle":
                    break
        return made.id


def official(server: Platform) -> Anthropic:
    return Anthropic(api_key=server.key, base_url=server.url, max_retries=0, timeout=60)


def get(server: Platform, path: str) -> Any:  # noqa: ANN401 (JSON)
    with official(server) as client:
        return client.get(path, cast_to=object)


def post(server: Platform, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
    with official(server) as client:
        return client.post(path, cast_to=object, body=body)


def changes(answer: Any) -> dict[str, str]:  # noqa: ANN401 (JSON)
    return {item["path"]: item["change"] for item in answer["data"]}


def test_files_are_compared_and_restored_and_the_restore_is_undone(
    server: Platform, session_id: str
):
    path = f"/v1/sessions/{session_id}"
    snapshots = get(server, f"{path}/snapshots")["data"]
    assert [item["files"] for item in snapshots] == [2, 1, 0]
    last, middle, first = (item["seq"] for item in snapshots)
    page = get(server, f"{path}/snapshots?limit=2")
    rest = get(server, f"{path}/snapshots?limit=2&page={page['next_page']}")
    assert [item["seq"] for item in rest["data"]] == [first]

    assert changes(get(server, f"{path}/snapshots/diff?since={first}&to={middle}")) == {
        "notes.txt": "added"
    }
    assert changes(get(server, f"{path}/snapshots/diff?since={middle}")) == {
        "notes.txt": "modified",
        "deep/b.txt": "added",
    }
    one = get(server, f"{path}/snapshots/diff?since={middle}&path=notes.txt")
    assert one["lines"] == ["@@ -1 +1 @@", "-one", "+two"]
    with pytest.raises(anthropic.NotFoundError):
        get(server, f"{path}/snapshots/diff?since={middle}&path=../../key")

    head = get(server, f"{path}/log?limit=1")["data"][0]["seq"]
    with pytest.raises(anthropic.ConflictError, match="look again"):
        post(server, f"{path}/rewind", to=middle, head=head - 1)
    done = post(server, f"{path}/rewind", to=middle, head=head)
    assert changes(done) == {"notes.txt": "modified", "deep/b.txt": "removed"}
    assert changes(get(server, f"{path}/snapshots/diff?since={last}"))["deep/b.txt"] == "removed"
    head = get(server, f"{path}/log?limit=1")["data"][0]["seq"]
    post(server, f"{path}/rewind", to=done["undo"], head=head)
    assert changes(get(server, f"{path}/snapshots/diff?since={last}")) == {}


def test_a_fork_that_has_not_run_cannot_touch_the_files_of_its_parent(
    server: Platform, session_id: str
):
    fork = post(server, f"/v1/sessions/{session_id}/fork")["id"]
    assert get(server, f"/v1/sessions/{fork}/snapshots")["data"]
    head = get(server, f"/v1/sessions/{fork}/log?limit=1")["data"][0]["seq"]
    with pytest.raises(anthropic.BadRequestError, match="no files of its own"):
        post(server, f"/v1/sessions/{fork}/rewind", to=1, head=head)
    with pytest.raises(anthropic.BadRequestError, match="no files of its own"):
        get(server, f"/v1/sessions/{fork}/snapshots/diff?since=1")
