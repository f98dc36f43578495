"""`mainspring mcp`."""

import json
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.abilities import require_sandbox
from tests.cli.terminal import at_terminal
from tests.cli.upstream import Upstream
from tests.fork_server import Run
from tests.mcp.peers import NOTES_SERVER


@pytest.fixture
def notes(mainspring: Run, place: Path) -> None:
    require_sandbox()
    shutil.copy(NOTES_SERVER, place / "server.py")
    added = mainspring("mcp", "add", "notes", "-e", "TOKEN=hush", "--", "python3", "server.py", "a")
    assert added.returncode == 0, added.stderr


def views(done: CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return {view["name"]: view for view in map(json.loads, done.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.usefixtures("notes")
def test_the_init_event_of_a_stream_lists_the_servers_and_their_states(
    mainspring: Run, upstream: Upstream
) -> None:
    mainspring("mcp", "add", "broken", "--", "no-such-program")
    mainspring("mcp", "add", "off", "http://127.0.0.1:9/mcp", "--scope", "user")
    mainspring("mcp", "disable", "off", "--scope", "user")
    upstream.says("hello")
    words = ("-p", "hi", "--output-format", "stream-json", "--verbose")
    first = mainspring(*words, **upstream.variables).stdout.splitlines()[0]
    servers = json.loads(first)["mcp_servers"]
    assert {server["name"]: server["status"] for server in servers} == {
        "notes": "connected",
        "broken": "failed",
        "off": "disabled",
    }


@pytest.mark.slow
@pytest.mark.usefixtures("notes")
def test_servers_are_added_checked_and_removed(mainspring: Run, place: Path) -> None:
    entry = json.dumps({"command": "no-such-program", "args": ["--key", "hush"]})
    assert mainspring("mcp", "add-json", "broken", entry).returncode == 0
    mainspring("mcp", "add", "off", "http://127.0.0.1:9/mcp", "--scope", "user")
    assert mainspring("mcp", "disable", "off", "--scope", "user").returncode == 0
    listed = mainspring("mcp", "ls", "--json")
    servers = views(listed)
    assert {name: view["state"] for name, view in servers.items()} == {
        "notes": "connected",
        "broken": "failed",
        "off": "unused",
    }
    assert servers["notes"]["tools"] == 4
    assert "No such file" in str(servers["broken"]["detail"])
    assert "hush" not in listed.stdout + listed.stderr
    taken = mainspring("mcp", "add", "notes", "--", "x")
    assert taken.returncode == 1
    assert mainspring("mcp", "test", "notes").returncode == 0
    assert mainspring("mcp", "test", "broken").returncode == 1
    assert mainspring("mcp", "remove", "broken").returncode == 0
    assert list(json.loads((place / ".mcp.json").read_text())["mcpServers"]) == ["notes"]
    assert mainspring("mcp", "remove", "broken").returncode == 1


@pytest.mark.slow
@pytest.mark.usefixtures("notes")
def test_server_tools_are_listed_and_called_without_a_model(
    mainspring: Run, place: Path, environ: dict[str, str]
) -> None:
    tools = [json.loads(line) for line in mainspring("mcp", "tools", "--json").stdout.splitlines()]
    assert [tool["name"] for tool in tools][-1] == "mcp__notes__note"
    offers = json.loads(mainspring("mcp", "inspect", "notes").stdout)
    assert offers["server"]["version"] == "2025-06-18"
    called = mainspring("mcp", "inspect", "notes", "note", "--input", '{"text": "hi"}')
    assert (called.returncode, called.stdout) == (0, "note: hi\n")
    raw = mainspring("mcp", "inspect", "notes", "note", "--input", '{"text": "hi"}', "--raw")
    assert '"method":"tools/call"' in raw.stderr
    assert 'received {"jsonrpc":"2.0","id":' in raw.stderr
    with at_terminal("mcp", "inspect", "notes", "note", cwd=place, env=environ) as terminal:
        terminal.expect("text")
        terminal.expect("> ")
        terminal.type("by hand\r")
        terminal.expect("note: by hand")
        assert terminal.wait() == 0
    unknown = mainspring("mcp", "inspect", "nobody")
    assert unknown.returncode == 1
    assert "there are: notes" in unknown.stderr


def test_adding_a_server_to_an_untrusted_file_does_not_trust_the_file(
    mainspring: Run, place: Path
) -> None:
    (place / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "evil"}}}')
    assert mainspring("mcp", "add", "mine", "--", "mine").returncode == 0
    servers = views(mainspring("mcp", "ls", "--no-connect", "--json"))
    assert {view["detail"] for view in servers.values()} == {"this folder is not trusted"}


def test_servers_configured_for_other_programs_are_imported(
    mainspring: Run, place: Path, environ: dict[str, str]
) -> None:
    file = Path(environ["HOME"]) / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"a": {"command": "x"}, "bad": {"type": "?"}}}')
    done = mainspring("mcp", "import", "cursor")
    assert done.returncode == 1
    assert "bad" in done.stderr
    assert list(views(mainspring("mcp", "ls", "--no-connect", "--json"))) == ["a"]
