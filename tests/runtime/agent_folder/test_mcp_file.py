"""MCP servers as files describe them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.runtime.agent_folder.mcp_file import (
    McpServer,
    McpServers,
    expand,
    expand_server,
    read_mcp,
)
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.scopes import Scopes


@pytest.fixture
def scopes(tmp_path: Path) -> Scopes:
    for name in ("project", "home/.mainspring", "managed"):
        (tmp_path / name).mkdir(parents=True)
    home = tmp_path / "home"
    return Scopes(folder=tmp_path / "project", home=home, managed=tmp_path / "managed")


def write(file: Path, servers: Mapping[str, object]) -> None:
    file.write_text(json.dumps({"mcpServers": servers}))


def read(scopes: Scopes, servers: Mapping[str, object]) -> McpServers:
    write(scopes.folder / ".mcp.json", servers)
    return read_mcp(scopes, {})


def problems(findings: tuple[Finding, ...]) -> list[str]:
    return [str(finding) for finding in findings if finding.level != "note"]


def test_every_known_key_is_read(scopes: Scopes):
    entry = {
        "type": "streamable-http",
        "url": "https://mcp.example.com",
        "headers": {"X-Org": "acme"},
        "headersHelper": "./headers.sh",
        "oauth": {"clientId": "abc"},
        "timeout": 30_000,
        "disabledTools": ["drop"],
        "alwaysLoad": True,
        "description": "All of it",
        "disabled": True,
    }
    found = read(scopes, {"Two words": entry})
    [server] = found.servers
    assert problems(found.findings) == []
    assert server == McpServer(
        name="Two words",
        transport="http",
        url="https://mcp.example.com",
        headers={"X-Org": "acme"},
        headers_helper="./headers.sh",
        oauth={"clientId": "abc"},
        timeout_ms=30_000,
        is_enabled=False,
        disabled_tools=("drop",),
        always_load=True,
        description="All of it",
        file=".mcp.json",
    )
    assert server.unused_reason == "disabled"


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"command": "npx"}, "stdio"),
        (
            {"type": "stdio", "command": "npx", "args": ["-y", 8080], "env": {"N": 1, "B": True}},
            "stdio",
        ),
        ({"url": "https://x.test"}, "http"),
        ({"type": "http", "url": "https://x.test"}, "http"),
        ({"type": "sse", "url": "https://x.test"}, "sse"),
        ({"type": "ws", "url": "wss://x.test"}, "ws"),
    ],
)
def test_the_transport_is_explicit_or_inferred(scopes: Scopes, entry: object, transport: str):
    found = read(scopes, {"one": entry})
    assert [server.transport for server in found.servers] == [transport]
    assert problems(found.findings) == []


def test_numbers_and_flags_in_arguments_become_strings(scopes: Scopes):
    [server] = read(
        scopes, {"one": {"command": "x", "args": ["-p", 80], "env": {"B": True}, "timeout_ms": 5}}
    ).servers
    assert (server.args, server.env, server.timeout_ms) == (("-p", "80"), {"B": "true"}, 5)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, "needs a command"),
        ({"command": "x", "url": "https://x.test"}, "has a url and a command"),
        ({"type": "http"}, "needs a url"),
        ({"command": 7}, "needs a command"),
        ({"type": "pigeon", "command": "x"}, "type must be one of"),
        ({"type": ["stdio"], "command": "x"}, "type must be one of"),
        ("npx", "must have a name and be an object"),
        (None, "must have a name and be an object"),
    ],
)
def test_an_invalid_server_is_left_out_and_the_others_stay(scopes: Scopes, entry: object, why: str):
    found = read(scopes, {"broken": entry, "sound": {"command": "x"}})
    assert [server.name for server in found.servers] == ["sound"]
    [problem] = problems(found.findings)
    assert problem.startswith(".mcp.json:1: MCP server broken: ")
    assert why in problem


@pytest.mark.parametrize(
    ("key", "value"),
    [("args", "all"), ("env", []), ("headers", {"A": {}}), ("timeout", "soon"), ("disabled", "no"),
     ("oauth", 1), ("cwd", 3), ("timeout", True), ("timeout_ms", -1), ("alwaysLoad", 1)],
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_ignored_and_reported(scopes: Scopes, key: str, value: object):
    found = read(scopes, {"one": {"command": "x", key: value}})
    assert found.servers == (
        McpServer(name="one", transport="stdio", command="x", file=".mcp.json"),
    )
    [problem] = problems(found.findings)
    assert f"{key} must be" in problem


def test_unknown_keys_are_kept_and_reported_with_their_line(scopes: Scopes):
    text = '{\n "mcpServers": {\n  "one": {\n   "command": "x",\n   "colour": "red"\n  }\n }\n}'
    (scopes.folder / ".mcp.json").write_text(text)
    found = read_mcp(scopes, {})
    assert found.servers[0].extra == {"colour": "red"}
    [problem] = problems(found.findings)
    assert problem == ".mcp.json:5: MCP server one: colour is unknown and has no effect"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"mcpServers":\n {', ".mcp.json"),
        (b"[]", "must be an object"),
        (b'{"mcpServers": []}', "servers must be an object"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b" " * 1_000_001, "longer than 1000000 bytes"),
    ],
)
def test_an_unreadable_file_is_reported_and_others_are_read(
    scopes: Scopes, content: bytes, why: str
):
    (scopes.folder / ".mcp.json").write_bytes(content)
    write(scopes.folder / "mcp.json", {"other": {"command": "x"}})
    found = read_mcp(scopes, {})
    assert [server.name for server in found.servers] == ["other"]
    [problem] = problems(found.findings)
    assert why in problem


def test_malformed_json_is_reported_with_its_line(scopes: Scopes):
    (scopes.folder / ".mcp.json").write_text('{\n "mcpServers": {},\n oops\n}')
    [problem] = problems(read_mcp(scopes, {}).findings)
    assert problem.startswith(".mcp.json:3: not JSON")


def test_a_byte_order_mark_is_ignored(scopes: Scopes):
    text = json.dumps({"mcpServers": {"one": {"command": "x"}}})
    (scopes.folder / ".mcp.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert [server.name for server in read_mcp(scopes, {}).servers] == ["one"]


def test_local_overrides_project_overrides_user_by_whole_entries(scopes: Scopes):
    assert scopes.home is not None
    claude = {
        "numStartups": 7,
        "mcpServers": {"a": {"command": "claude-user"}, "e": {"command": "claude-user"}},
        "projects": {
            str(scopes.folder): {"mcpServers": {"a": {"command": "local"}}, "allowedTools": "none"},
            "/elsewhere": {"mcpServers": {"x": {"command": "not here"}}},
        },
    }
    (scopes.home / ".claude.json").write_text(json.dumps(claude))
    both = {"command": "project", "env": {"ONLY": "project"}}
    write(scopes.folder / ".mcp.json", {"a": both, "b": {"command": "project"}})
    write(scopes.folder / "mcp.json", {"b": {"command": "second"}, "c": {"command": "second"}})
    write(scopes.home / ".mainspring" / "mcp.json", {"c": {"command": "user"}, "d": both})
    assert scopes.managed is not None
    write(scopes.managed / "mcp.json", {"d": {"command": "managed"}})
    found = read_mcp(scopes, {}, plugins=[McpServer(name="kit:a", transport="stdio", command="p")])
    commands = {server.name: server.command for server in found.servers}
    assert commands == {
        "d": "managed",
        "a": "local",
        "b": "project",
        "c": "second",
        "e": "claude-user",
        "kit:a": "p",
    }
    assert next(server for server in found.servers if server.name == "a").env == {}
    shadowed = [str(finding) for finding in found.findings if "used instead" in finding.what]
    assert ".mcp.json: MCP server a: the one in ~/.claude.json (local) is used instead" in shadowed


def test_disabled_servers_have_a_reason(scopes: Scopes):
    entries: dict[str, object] = {
        "used": {"command": "x"},
        "old": {"type": "sse", "url": "https://x.test"},
        "off": {"command": "x", "disabled": True},
    }
    reasons = {server.name: server.unused_reason for server in read(scopes, entries).servers}
    assert reasons == {
        "used": None,
        "old": None,
        "off": "disabled",
    }


def test_a_symlink_out_of_the_project_is_not_read(scopes: Scopes, tmp_path: Path):
    write(tmp_path / "secret.json", {"one": {"command": "x"}})
    (scopes.folder / ".mcp.json").symlink_to(tmp_path / "secret.json")
    found = read_mcp(scopes, {})
    assert found.servers == ()
    assert "leads out" in problems(found.findings)[0]


def test_variables_are_expanded_only_on_request_and_never_shown(scopes: Scopes):
    entry = {
        "command": "${BIN:-npx}",
        "args": ["${TOKEN}", "${GONE}", "$TOKEN"],
        "env": {"T": "a-${TOKEN}-b"},
        "cwd": "${TOKEN}",
        "description": "${TOKEN}",
    }
    write(scopes.folder / ".mcp.json", {"one": entry})
    found = read_mcp(scopes, {"TOKEN": "hunter2"})
    [server] = found.servers
    assert server.args[0] == "${TOKEN}"
    done, odd = expand_server(server, {"TOKEN": "hunter2"})
    assert (done.command, done.args) == ("npx", ("hunter2", "${GONE}", "$TOKEN"))
    assert done.env == {"T": "a-hunter2-b"}
    assert (done.cwd, done.description) == ("hunter2", "${TOKEN}")
    [warning] = odd
    assert "${GONE} is not set" in warning.what
    assert problems(found.findings) == [str(warning)]
    assert "hunter2" not in repr(done) + "".join(map(str, found.findings))


def test_urls_and_headers_are_expanded_and_missing_inputs_are_reported(scopes: Scopes):
    entry = {
        "url": "https://${HOST:-x.test}/",
        "headers": {"Authorization": "Bearer ${input:key}"},
        "headersHelper": "${CLAUDE_PROJECT_DIR}/h.sh",
    }
    found = read(scopes, {"one": entry})
    done, _ = expand_server(found.servers[0], {"CLAUDE_PROJECT_DIR": "/p"})
    assert (done.url, done.headers) == ("https://x.test/", {"Authorization": "Bearer ${input:key}"})
    assert done.headers_helper == "/p/h.sh"
    [problem] = problems(found.findings)
    assert "${input:key} has no value yet (mainspring mcp auth one)" in problem
    values = {"CLAUDE_PROJECT_DIR": "/p", "input:project:key": "k", "input:user:key": "other"}
    assert expand_server(found.servers[0], values)[0].headers == {"Authorization": "Bearer k"}


def test_plugin_variables_are_expanded_in_a_plugins_server():
    server = McpServer(
        name="kit:a",
        transport="stdio",
        command="${CLAUDE_PLUGIN_ROOT}/run",
        args=("${CLAUDE_PLUGIN_DATA}",),
        plugin="kit",
        plugin_root="/kit",
        plugin_data="/data/kit",
    )
    done, odd = expand_server(server, {"CLAUDE_PLUGIN_ROOT": "/not/this"})
    assert (done.command, done.args, odd) == ("/kit/run", ("/data/kit",), [])


def test_only_plugin_variables_are_expanded_in_a_portable_plugins_server():
    server = McpServer(
        name="kit:a",
        transport="stdio",
        command="${PLUGIN_ROOT}",
        args=("${PLUGIN_ROOT}", "${HOME}", "${HOME:-x}"),
        env={"${PLUGIN_ROOT}": "${PLUGIN_DATA}"},
        plugin="kit",
        plugin_root="/${PLUGIN_DATA}",
        plugin_data="/data",
        is_portable=True,
    )
    done, odd = expand_server(server, {"HOME": "/home"})
    assert done.command == "${PLUGIN_ROOT}"
    assert done.args == ("/${PLUGIN_DATA}", "${HOME}", "${HOME:-x}")
    assert (done.env, odd) == ({"${PLUGIN_ROOT}": "/data"}, [])


@given(st.text(st.sampled_from("${}:-ab_ \n\0é")))
def test_expansion_never_fails_and_names_unresolved_variables(text: str):
    done, left = expand(text, {"a": "${b}", "b": ""})
    assert ("${" in text) or (done, left) == (text, [])
    assert all(f"${{{name}}}" in done for name in left)


@given(st.text())
def test_text_without_placeholders_is_unchanged(text: str):
    plain = text.replace("${", "$")
    assert expand(plain, {}) == (plain, [])
