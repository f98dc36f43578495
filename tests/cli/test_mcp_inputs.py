"""Headers from a helper and values that a person is asked for, as a session's servers get them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.environ import clean_environ
from tests.mcp.loopback_server import LoopbackServer, loopback_server

TOKEN = "s3cr3t-of-ada-0123456789"


class Person:
    """Works in a project of their own."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()

    def run(self, *args: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mainspring", *args],
            cwd=self.project,
            env={**clean_environ(), "HOME": str(self.home)},
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def write(self, name: str, text: str) -> None:
        (self.project / name).write_text(text)

    def everything_stored(self) -> str:
        files = [path for path in self.home.rglob("*") if path.is_file()]
        return "".join(path.read_text("latin-1") for path in files)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def headers_sent(server: LoopbackServer) -> dict[str, str]:
    return {name.lower(): value for name, value in server.requests[-1].headers.items()}


@pytest.mark.slow
def test_inputs_are_asked_for_once_and_belong_to_their_project(
    person: Person, tmp_path: Path
) -> None:
    with loopback_server(LoopbackServer(asks_for_token=False)) as server:
        entry = {"url": server.mcp, "headers": {"X-Key": "${input:key}", "X-At": "${input:at}"}}
        inputs = [
            {"id": "key", "type": "promptString", "description": "The key", "password": True},
            {"id": "at", "type": "pickString", "options": ["eu", "us"], "default": "eu"},
        ]
        person.write(".mcp.json", json.dumps({"inputs": inputs, "mcpServers": {"books": entry}}))
        assert person.run("policy", "trust").returncode == 0
        before = person.run("mcp", "test", "books")
        assert before.returncode == 1
        assert "it needs the input key: run `mainspring mcp auth books`" in before.stdout
        assert server.requests == []
        refused = person.run("mcp", "auth", "books", given=f"{TOKEN}\nmoon\n")
        assert refused.returncode != 0
        assert "at: choose one of the listed values" in refused.stderr
        given = person.run("mcp", "auth", "books", given="us\n")  # the key is stored already
        assert given.returncode == 0, given.stderr
        assert person.run("mcp", "test", "books").returncode == 0
        sent = headers_sent(server)
        assert (sent["x-key"], sent["x-at"]) == (TOKEN, "us")
        assert TOKEN not in person.everything_stored() + given.stdout + given.stderr
        person.project = tmp_path / "other"  # another project that calls its input the same
        person.project.mkdir()
        person.write(".mcp.json", json.dumps({"mcpServers": {"books": entry}}))
        assert person.run("policy", "trust").returncode == 0
        assert person.run("mcp", "test", "books").returncode == 1


@pytest.mark.slow
def test_a_header_helper_supplies_headers_and_runs_only_while_trusted(person: Person) -> None:
    with loopback_server(LoopbackServer(asks_for_token=False)) as server:
        helper = f'echo "{{\\"Authorization\\": \\"Bearer {TOKEN}\\",'
        helper += ' \\"X-For\\": \\"$CLAUDE_CODE_MCP_SERVER_NAME\\"}"\n'
        person.write("helper.sh", f"#!/bin/sh\n{helper}")
        (person.project / "helper.sh").chmod(0o755)
        entry = {"url": server.mcp, "headers": {"X-Own": "1"}, "headersHelper": "./helper.sh"}
        person.write(".mcp.json", json.dumps({"mcpServers": {"books": entry}}))
        assert person.run("mcp", "test", "books").returncode == 1
        trusted = person.run("policy", "trust")
        assert "helper.sh" in trusted.stdout + trusted.stderr
        done = person.run("mcp", "test", "books")
        assert done.returncode == 0, done.stdout + done.stderr
        sent = headers_sent(server)
        assert sent["authorization"] == f"Bearer {TOKEN}"
        assert (sent["x-own"], sent["x-for"]) == ("1", "books")
        server.requests.clear()
        person.write("helper.sh", f"#!/bin/sh\ntouch {person.home}/taken\n{helper}")
        assert person.run("mcp", "test", "books").returncode == 1  # a program changed it
        assert server.requests == []
        assert not (person.home / "taken").exists()
        person.write("helper.sh", "#!/bin/sh\necho Bearer x\n")
        person.run("policy", "trust")
        odd = person.run("mcp", "test", "books")
        assert "it must print a JSON object of headers" in odd.stdout
