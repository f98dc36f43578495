"""Secrets of every kind, planted wherever an agent could come by one: they stay there."""

from collections.abc import Iterable
from pathlib import Path

import anyio
import pytest
from anyio.streams.tls import TLSListener
from tests.abilities import require_hidden_files, require_network
from tests.network.internet import PUBLIC, Origin, ok
from tests.session_e2e.session_setup import Scene, read_by_model
from tests.vault.planted import planted

from mainspring.capabilities.providers.scripted import calls
from mainspring.config import read_settings
from mainspring.core.events import NetworkRequested
from mainspring.core.model import Delta
from mainspring.wiring.user_vault import user_vault

BYPASS = "bypassPermissions"
VAULTED = "plain words of a vault 4711"
PROVIDER_KEY = "nobody-knows-this-provider-key"
HARNESS = "in-the-environment-of-the-harness"


def searched_forms(secrets: Iterable[str]) -> list[str]:
    """Lines of secrets: a tool may number them, or put them into JSON."""
    return [line for secret in secrets for line in secret.splitlines() if len(line) > 7]


def find_secrets(text: str | bytes, secrets: Iterable[str]) -> list[str]:
    content = text.encode() if isinstance(text, str) else text
    return [secret for secret in secrets if secret.encode() in content]


def read_files(folder: Path) -> dict[str, bytes]:
    """All that a session has left with us, but for copies of the workspace to go back to."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "snapshots" not in path.relative_to(folder).parts
    }


async def test_planted_secrets_are_found_nowhere_after_a_session(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    require_hidden_files()
    kinds = planted()
    assert len(kinds) >= 50
    secrets = [
        *searched_forms(secret for _, secret in kinds.values()),
        VAULTED,
        PROVIDER_KEY,
        HARNESS,
    ]
    for kind, (text, _) in kinds.items():
        scene.write(f"notes/{kind}.txt", f"{text}\n")
    scene.write("all.txt", "\n\n".join(text for text, _ in kinds.values()))
    monkeypatch.setenv("SOME_VARIABLE", HARNESS)
    environ = {
        "HOME": str(scene.home),
        "PATH": "/usr/bin:/bin",
        "ANTHROPIC_API_KEY": PROVIDER_KEY,
        "SOME_VARIABLE": HARNESS,
    }
    user_vault(read_settings(folder=scene.workspace, environ=environ)).open().put(
        "WORDS", VAULTED, []
    )
    scene.write("vaulted.txt", f"here: {VAULTED}\nand {PROVIDER_KEY}\n")
    scene.user(hooks={"SessionStart": [{"hooks": [{"type": "command", "command": "env"}]}]})
    heard: list[Delta] = []
    everywhere = "env; cat /proc/*/environ /proc/*/cmdline; ls -R /tmp; cat /tmp/*; set"
    async with scene.play(
        calls("read", file_path="all.txt") + calls("read", file_path="vaulted.txt"),
        calls("bash", command="cat all.txt vaulted.txt; cat notes/*"),
        calls("grep", pattern=".", output_mode="content"),
        calls("bash", command=everywhere),
        calls("artifact", path="all.txt", name="all.txt"),
        calls("bash", command="for i in 1 2 3 4 5 6; do cat all.txt notes/*; done; false"),
        calls("edit", file_path="all.txt", old_string="so use it", new_string="do not"),
        mode="bypassPermissions",
        environ=environ,
    ) as play:
        with anyio.fail_after(60):
            await play.session.send("\n".join(text for text, _ in kinds.values()))
            assert (await play.session.run(heard.append)) is not None
        requests = read_by_model(play.model.requests)
        assert "[redacted:" in requests
        assert "[WORDS]" in requests
        assert find_secrets(requests, secrets) == []
        assert find_secrets("\n".join(map(repr, heard)), secrets) == []
    left = read_files(scene.workspace / ".mainspring")
    assert any(name.endswith("mainspring.db") for name in left)
    assert {
        name: each for name, content in left.items() if (each := find_secrets(content, secrets))
    } == {}
    captured = capfd.readouterr()
    assert find_secrets(captured.out + captured.err, secrets) == []


LOOK = "env; cat /proc/*/environ"
PROGRAM = """
import os, sys, urllib.request
key = os.environ["TOKEN"]
for name in ("NO_PROXY", "no_proxy"):
    os.environ.pop(name)
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + key})
print(urllib.request.urlopen(request, timeout=60).read().decode())
try:
    urllib.request.urlopen(sys.argv[1].replace("localhost", "elsewhere.test"), timeout=60)
except OSError as error:
    print("refused:", error)
"""


async def test_a_program_uses_a_secret_without_seeing_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    require_network()
    secret = "the real value 0815"
    authority = scene.write(scene.outside / "authority.pem", PUBLIC.certificate.decode())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    environ = {"HOME": str(scene.home), "PATH": "/usr/bin:/bin"}
    user_vault(read_settings(folder=scene.workspace, environ=environ)).open().put(
        "TOKEN", secret, ["localhost"]
    )
    scene.write("use.py", PROGRAM)
    server = Origin(pieces=[ok(f"you sent {secret}".encode())])
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    allowed = {"host": "localhost", "ports": [port], "addresses": ["127.0.0.0/8", "::1/128"]}
    networking = {"type": "limited", "allowed_hosts": [allowed]}
    scene.user(sandbox={"networking": networking})
    listening = TLSListener(listener, PUBLIC.context("localhost"), standard_compatible=False)
    step = calls("bash", command=f"python3 use.py https://localhost:{port}/a?q=1; {LOOK}")
    page = calls("web_fetch", url=f"https://elsewhere.test:{port}/")
    async with listening, scene.play(step, page, mode=BYPASS, environ=environ) as play:
        async with anyio.create_task_group() as group:
            group.start_soon(listening.serve, server.handle)
            await play.run()
            group.cancel_scope.cancel()
        requested = await play.events(NetworkRequested)
        program, told = await play.results()
    assert "you sent msk_placeholder_" in program, program
    assert "refused: " in program
    assert "403" in program.partition("refused: ")[2].partition("\n")[0]
    assert "not" in told
    assert len(server.asked) == 1
    assert f"Bearer {secret}".encode() in server.asked[0]
    assert [(item.host, item.decision, item.credential) for item in requested] == [
        ("localhost", "allow", "TOKEN"),
        ("elsewhere.test", "deny", None),
        ("elsewhere.test", "deny", None),
    ]
    assert requested[0].path == "/a"
    assert find_secrets(read_by_model(play.model.requests), [secret]) == []
    left = read_files(scene.workspace / ".mainspring")
    assert {name: 1 for name, content in left.items() if find_secrets(content, [secret])} == {}
    assert not any(b"PRIVATE KEY" in content for content in left.values())
