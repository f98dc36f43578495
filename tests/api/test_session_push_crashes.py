"""A push that is cut off by `kill -9` at any step is repeated: one copy of the session goes on."""

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anthropic import Anthropic
from tests import fork_server
from tests.cli.upstream import call, serving
from tests.environ import clean_environ

MAINSPRING = (sys.executable, "-m", "mainspring")
FILES = 3000


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {**clean_environ(), "HOME": str(folder), **more}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@contextmanager
def run_server(folder: Path, port: int) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The service and, at its first start, its key."""
    process = subprocess.Popen(
        [*MAINSPRING, "serve", "--port", str(port), "--model", "ollama:test"],
        cwd=folder,
        env=environ(folder, OLLAMA_BASE_URL="http://127.0.0.1:9/v1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        text = ""
        for line in process.stdout:
            text += line
            if "http://" in text and ("msk_" in text or (folder / "started").exists()):
                break
        (folder / "started").touch()
        yield process, "".join(re.findall(r"msk_\S+", text))
    finally:
        process.kill()
        process.stdout.close()
        process.wait(60)


def kill_at(sender: subprocess.Popen[str], victim: subprocess.Popen[str], where: Path) -> None:
    """Kill the victim as soon as something like this is there; then the push is over too."""
    deadline = time.monotonic() + 60
    while sender.poll() is None and not any(where.parent.glob(where.name)):
        assert time.monotonic() < deadline
    victim.kill()
    victim.wait(60)
    sender.wait(60)
    is_last = where.name.startswith("sesn")  # what follows may be faster than we are
    assert sender.returncode != 0 or is_last


@pytest.mark.slow
def test_a_push_killed_at_any_step_leaves_one_copy_that_continues(tmp_path: Path):
    home, folder, port = tmp_path / "server", tmp_path / "laptop", free_port()
    home.mkdir()
    (folder / "many").mkdir(parents=True)
    for index in range(FILES):
        (folder / "many" / f"{index}.txt").write_text(str(index))
    with serving() as model:
        model.says(call("write", file_path="later.txt", content="approved"))
        env = environ(tmp_path, **model.variables)
        assert fork_server.run("run", "make it", cwd=folder, env=env).returncode == 3
    listed = fork_server.run("sessions", "ls", "--json", cwd=folder, env=environ(tmp_path))
    session_id = json.loads(listed.stdout)["id"]
    with run_server(home, port) as (_, key), client_of(port, key) as client:
        agent = client.beta.agents.create(name="a", model="claude-sonnet-4-5").id
        environment = client.beta.environments.create(name="e").id
    push = ("sessions", "push", f"http://127.0.0.1:{port}", session_id)
    push += ("--agent", agent, "--environment", environment, "--json")

    def sending() -> subprocess.Popen[str]:
        env = environ(tmp_path, MAINSPRING_API_KEY=key)
        return subprocess.Popen(
            [*MAINSPRING, *push],
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def is_moved() -> bool:
        resume = ("run", "--resume", session_id, "--model", "demo", "more")
        tried = fork_server.run(*resume, cwd=folder, env=environ(tmp_path))
        return tried.returncode == 1 and "was moved" in tried.stderr

    workspaces = home / ".mainspring" / "workspaces"
    uploads = workspaces / ".state" / "transfers"
    with run_server(home, port):
        sender = sending()
        kill_at(sender, sender, folder / ".mainspring" / "transfers" / "*.tar")
        assert is_moved()
    for where in (uploads / "upload_*.tar", uploads / "upload_*.files", workspaces / "sesn_*"):
        for old in uploads.glob("upload_*.tar"):
            old.unlink()
        with run_server(home, port) as (server, _):
            kill_at(sending(), server, where)
        assert is_moved()
    with run_server(home, port), client_of(port, key) as client:
        env = environ(tmp_path, MAINSPRING_API_KEY=key)
        received = [
            json.loads(fork_server.run(*push, cwd=folder, env=env).stdout) for _ in range(2)
        ]
        [session] = client.beta.sessions.list().data
        assert received == [{"id": session_id, "received_as": session.id}] * 2
    assert is_moved()
    assert len(list((workspaces / session.id / "many").iterdir())) == FILES
    verified = fork_server.run("log", "verify", session.id, cwd=home, env=environ(home))
    assert verified.stdout.startswith("ok ")


def client_of(port: int, key: str) -> Anthropic:
    return Anthropic(api_key=key, base_url=f"http://127.0.0.1:{port}", max_retries=0)
