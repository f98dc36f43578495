"""`mainspring mcp auth`, with a browser that agrees at once and leads back."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.environ import clean_environ
from tests.mcp.authorization import AuthorizingServer
from tests.mcp.loopback_server import loopback_server

FOLLOW = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()"


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    browser = folder / "browser.sh"
    browser.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{FOLLOW}' \"$1\" &\n")
    browser.chmod(0o755)
    home, project = folder / "home", folder / "project"
    home.mkdir(exist_ok=True)
    project.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "mainspring", "mcp", *args],
        cwd=project,
        env={**clean_environ(), "HOME": str(home), "BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_a_user_logs_in_uses_the_tools_and_logs_out(tmp_path: Path) -> None:
    with loopback_server(AuthorizingServer()) as server:
        assert run(tmp_path, "add", "books", server.mcp, "--scope", "user").returncode == 0
        before = run(tmp_path, "test", "books")
        assert before.returncode == 1
        assert "mainspring mcp auth books" in before.stdout + before.stderr
        done = run(tmp_path, "auth", "books", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["issuer"] == server.url
        [token] = server.tokens
        after = run(tmp_path, "tools", "books")
        assert "mcp__books__write" in after.stdout
        assert server.sent_tokens()[-1] == token
        everything = [done.stdout, done.stderr, after.stdout, after.stderr]
        everything += [path.read_text("latin-1") for path in tmp_path.rglob("*") if path.is_file()]
        assert not [text for text in everything if token in text]
        assert run(tmp_path, "auth", "books", "--logout").returncode == 0
        assert run(tmp_path, "auth", "books", "--status").returncode == 1
