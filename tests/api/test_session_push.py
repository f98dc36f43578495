"""A session moves from a laptop to `mainspring serve`, with its files and what it waits for."""

import http.client
import json
import re
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from anthropic import Anthropic, NotFoundError
from tests import fork_server
from tests.api.conftest import Platform, platform
from tests.api.forged_bundles import FORGED, HOSTILE, SESSION, TRANSFER, forged_bundle, rebuilt
from tests.cli.upstream import call, serving
from tests.environ import clean_environ

IDLE = "session.status_idle"
ASKING: Any = {
    "type": "agent_toolset_20260401",
    "configs": [{"name": "write", "permission_policy": {"type": "always_ask"}}],
}
TAR = "application/x-tar"


@dataclass(frozen=True)
class Laptop:
    folder: Path
    server: Platform

    def run(self, *arguments: str, **more: str) -> CompletedProcess[str]:
        env = {**clean_environ(), "HOME": str(self.folder.parent)}
        return fork_server.run(*arguments, cwd=self.folder, env={**env, **more})

    def push(self, *arguments: str, key: str | None = None) -> CompletedProcess[str]:
        given = {"MAINSPRING_API_KEY": key or self.server.key}
        return self.run("sessions", "push", self.server.url, *arguments, **given)

    def status(self) -> str:
        return json.loads(self.run("sessions", "ls", "--json").stdout)["status"]

    def asked(self) -> str:
        """A session that has read a file and waits for leave to write another."""
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "tool").write_text("made\n")
        (self.folder / "bin" / "tool").chmod(0o755)
        with serving() as model:
            model.says(call("read", file_path="bin/tool"))
            model.says(call("write", file_path="later.txt", content="approved"))
            ran = self.run("run", "make it", **model.variables)
        assert ran.returncode == 3, ran.stderr
        return json.loads(self.run("sessions", "ls", "--json").stdout)["id"]


@dataclass(frozen=True)
class Place:
    """An agent that asks before it writes, and an environment, on the server."""

    server: Platform
    client: Anthropic
    agent: str
    environment: str

    @property
    def options(self) -> tuple[str, ...]:
        return "--agent", self.agent, "--environment", self.environment

    def workspace(self, session_id: str) -> Path:
        return self.server.folder / ".mainspring" / "workspaces" / session_id

    def leftovers(self) -> list[Path]:
        return list(self.workspace(".state").glob("transfers/*"))

    def upload(
        self,
        content: bytes,
        changes: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        length: int | None = None,
    ) -> tuple[int, Any]:
        query = {
            "transfer": TRANSFER,
            "session_id": SESSION,
            "agent_id": self.agent,
            "environment_id": self.environment,
            **(changes or {}),
        }
        address = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            connection.putrequest("POST", f"/v1/mainspring/transfers?{urlencode(query)}")
            connection.putheader("x-api-key", key or self.server.key)
            connection.putheader("content-type", TAR)
            connection.putheader("content-length", str(length or len(content)))
            connection.endheaders(content)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def waiting(self, session_id: str, *, times: int = 1) -> Any:  # noqa: ANN401 (an event of the SDK)
        """The last time that it became idle, of so many."""
        deadline = time.monotonic() + 60
        events = self.client.beta.sessions.events
        while len(found := events.list(session_id, types=[IDLE]).data) < times:
            assert time.monotonic() < deadline
        return found[-1]

    def log(self, session_id: str) -> str:
        """All that the server has stored of a session."""
        assert self.command("log", "verify", session_id).startswith("ok ")
        return self.command("log", "export", session_id)

    def command(self, *arguments: str) -> str:
        """On the server's machine."""
        env = {**clean_environ(), "HOME": str(self.server.folder / "home")}
        ran = fork_server.run(*arguments, cwd=self.server.folder, env=env)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def send(self, session_id: str, **event: object) -> None:
        sent: Any = event
        self.client.beta.sessions.events.send(session_id, events=[sent])

    def replayed(self, session_id: str) -> tuple[bool, int]:
        path = f"/v1/sessions/{session_id}/replay"
        answer: Any = self.client.post(path, cast_to=object, body={})
        return answer["ok"], answer["calls"]

    def made(self, path: str, **body: object) -> Any:  # noqa: ANN401 (JSON)
        return self.client.post(f"/v1/mainspring/{path}", cast_to=object, body=body)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    with (
        platform(tmp_path_factory.mktemp("server")) as server,
        Anthropic(api_key=server.key, base_url=server.url, max_retries=0) as client,
    ):
        client.beta.agents.create(name="other", model="claude-sonnet-4-5")
        agent = client.beta.agents.create(name="fixer", model="claude-sonnet-4-5", tools=[ASKING])
        environment = client.beta.environments.create(name="here")
        yield Place(server, client, agent.id, environment.id)


@pytest.fixture
def laptop(tmp_path: Path, place: Place) -> Laptop:
    folder = tmp_path / "laptop"
    folder.mkdir()
    return Laptop(folder, place.server)


def check_refusals_before_any_change(laptop: Laptop, place: Place, session_id: str) -> None:
    unnamed = laptop.push(session_id)
    assert "--agent is missing" in unnamed.stderr
    assert f"{place.agent}  fixer" in unnamed.stderr
    viewer = place.made("keys", name="v", role="viewer")["key"]
    assert "answered 403" in laptop.push(session_id, *place.options, key=viewer).stderr
    assert laptop.status() == "requires_action"  # nothing was changed


@pytest.mark.slow
def test_a_session_is_pushed_with_its_files_and_open_approval(laptop: Laptop, place: Place):
    session_id, client = laptop.asked(), place.client
    check_refusals_before_any_change(laptop, place, session_id)
    pushed = laptop.push(session_id, *place.options)
    assert pushed.returncode == 0, pushed.stderr
    received = pushed.stdout.split()[-1]
    assert laptop.push(session_id, *place.options).stdout == pushed.stdout
    resumed = laptop.run("run", "--resume", session_id, "--model", "demo", "more")
    assert "was moved" in resumed.stderr
    assert " moved " in laptop.run("sessions", "ls").stdout
    assert not [*(laptop.folder / ".mainspring" / "transfers").iterdir(), *place.leftovers()]

    idle = place.waiting(received)
    assert idle.stop_reason.type == "requires_action"
    files = place.workspace(received)
    assert (files / "bin" / "tool").read_text() == "made\n"
    assert (files / "bin" / "tool").stat().st_mode & 0o777 == 0o755
    assert not (files / "later.txt").exists()
    [call_id] = idle.stop_reason.event_ids
    place.send(received, type="user.tool_confirmation", tool_use_id=call_id, result="allow")
    assert place.waiting(received, times=2).stop_reason.type == "end_turn"
    assert (files / "later.txt").read_text() == "approved"
    text = {"type": "text", "text": 'call bash {"command": "cat bin/tool; touch new"}\nsay hello'}
    place.send(received, type="user.message", content=[text])
    place.waiting(received, times=3)
    said = client.beta.sessions.events.list(received, types=["agent.message"]).data
    assert "hello" in str(said[-1])
    assert (files / "new").exists()
    audit: Any = client.get("/v1/mainspring/audit", cast_to=object)
    [entry] = [item for item in audit["data"] if received in str(item)][-1:]
    assert "transfers" in str(entry)

    assert place.replayed(received) == (True, 3)
    pull = ("sessions", "pull", place.server.url, received, "-w", "back")
    assert laptop.run(*pull, MAINSPRING_API_KEY=place.server.key).returncode == 0
    there = laptop.push(received, "--agent", "fixer", "--environment", "here")  # and there again
    assert there.returncode == 0, there.stderr
    assert (place.workspace(there.stdout.split()[-1]) / "later.txt").read_text() == "approved"


@pytest.mark.slow
def test_a_forged_log_grants_no_permissions(place: Place, tmp_path: Path):
    bundle = forged_bundle(tmp_path)
    with ThreadPoolExecutor() as pool:  # the same at the same time is one session
        answers = list(pool.map(place.upload, [bundle] * 3))
    assert [status for status, _ in answers] == [200] * 3, answers
    [received] = {session["id"] for _, session in answers}
    # the forged approval counts for nothing; the first idle is that of a message without a reply
    assert place.waiting(received, times=2).stop_reason.type == "requires_action"
    assert not (place.workspace(received) / "evil.txt").exists()
    assert place.replayed(received) == (True, 0)
    exported = place.log(received)
    for forged in FORGED:
        assert (forged in exported) == (forged == SESSION), forged
    assert "read theirs" in exported
    assert "-1000" not in exported  # costs and usage
    usage = place.client.beta.sessions.retrieve(received).usage
    assert usage is not None
    assert not usage.input_tokens

    head = len(exported.splitlines())
    assert place.upload(bundle)[1]["id"] == received  # replayed
    assert len(place.log(received).splitlines()) == head
    place.made("tenants", id="rival")
    [rival] = re.findall(
        r"msk_\S+", place.command("keys", "create", "r", "--tenant", "rival", "--role", "admin")
    )
    with Anthropic(api_key=rival, base_url=place.server.url, max_retries=0) as client:
        assert place.upload(bundle, key=rival)[0] == 404  # the agent is not theirs
        agent = client.beta.agents.create(name="a", model="claude-sonnet-4-5")
        environment = client.beta.environments.create(name="e").id
        theirs = {"agent_id": agent.id, "environment_id": environment}
        status, session = place.upload(bundle, theirs, key=rival)
        assert status == 200
        assert session["id"] != received
        with pytest.raises(NotFoundError):
            client.beta.sessions.retrieve(received)


def workspaces(place: Place) -> list[Path]:
    """Of sessions; `leftovers` looks into the server's own folder `.state`."""
    return sorted(place.workspace("").glob("[!.]*"))


@pytest.mark.slow
def test_a_hostile_bundle_leaves_nothing_behind(place: Place, tmp_path: Path):
    other = {"transfer": f"tran_{'6' * 32}"}
    bundle = forged_bundle(tmp_path, other["transfer"])
    before = workspaces(place)
    for name, change in HOSTILE.items():
        status, answer = place.upload(rebuilt(bundle, change), other)
        assert status == 400, (name, answer)
    live = forged_bundle(tmp_path / "live", other["transfer"], ended_for=TRANSFER)
    status, answer = place.upload(live, other)
    assert (status, "was not sealed for this transfer" in str(answer)) == (400, True), answer
    for content in (b"", bundle[:700], b"x" * 2048, bytes(2048)):
        assert place.upload(content, other)[0] == 400
    status, _ = place.upload(b"", other, length=2 << 30)
    assert status == 413
    scoped = place.made("keys", name="s", role="user", agent_id=place.agent)["key"]
    elsewhere = place.client.beta.agents.create(name="b", model="claude-sonnet-4-5").id
    assert place.upload(bundle, {**other, "agent_id": elsewhere}, key=scoped)[0] in (403, 404)
    assert workspaces(place) == before
    assert place.leftovers() == []
    assert place.upload(rebuilt(bundle, lambda _members, _manifest: None), other)[0] == 200
