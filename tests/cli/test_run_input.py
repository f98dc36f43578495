"""`mainspring run`: what is piped in, commands that nobody has, a session that another process
runs, models that do not answer or that the catalogue does not have."""

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import anyio
from tests.cli.conftest import opened
from tests.cli.upstream import Upstream
from tests.fork_server import Run

DEMO = ("--model", "scripted:demo")


def test_piped_input_is_appended_to_the_prompt(mainspring: Run, upstream: Upstream):
    upstream.says("Fine.")
    mainspring("run", "review", stdin="-old\n+new\n", **upstream.variables)
    said = upstream.requests[0]["messages"][-1]["content"]
    assert said == "review\n\n<stdin>\n-old\n+new\n</stdin>"


def test_an_open_pipe_without_data_does_not_delay_the_prompt(place: Path, environ: dict[str, str]):
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "mainspring", "run", "hello", *DEMO],
            cwd=place,
            env=environ,
            stdin=reading,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert "You said: 'hello'" in done.stdout


def test_an_unknown_slash_command_is_not_sent_to_the_model(mainspring: Run):
    unknown = mainspring("run", "/reveiw this", *DEMO)
    assert (unknown.returncode, "there is no command /reveiw" in unknown.stderr) == (1, True)
    assert "did you mean /context?" in mainspring("run", "/contxt", *DEMO).stderr
    assert mainspring("sessions", "ls", "--json").stdout == ""
    assert "You said: '/reveiw this'" in mainspring("run", "//reveiw this", *DEMO).stdout
    assert "You said: '/usr/bin/x fails'" in mainspring("run", "/usr/bin/x fails", *DEMO).stdout


def test_a_message_to_a_session_held_by_another_process_is_delivered_once(
    mainspring: Run, store: Path
):
    first = mainspring("run", "hello", "--json", *DEMO)
    session_id = json.loads(first.stdout.splitlines()[-1])["session_id"]

    async def while_held() -> CompletedProcess[str]:
        async with opened(store) as log:
            writer = await log.hold(session_id, owner="another machine", seconds=600)
            run = mainspring("run", "--resume", session_id, "more", *DEMO)
            await writer.release()
            return run

    sent = anyio.run(while_held)
    assert sent.returncode == 0
    assert "it will answer your message" in sent.stderr
    assert mainspring("run", "--resume", session_id, *DEMO).stdout.count("You said: 'more'") == 1


def test_an_unreachable_model_is_reported_once_with_a_hint(mainspring: Run):
    ran = mainspring("run", "hello", "--model", "ollama:x", OLLAMA_BASE_URL="http://127.0.0.1:9/v1")
    assert ran.returncode == 1
    assert ran.stderr.count("cannot connect to 127.0.0.1:9: Connection refused") == 1
    assert "hint: `ollama serve` starts it; OLLAMA_BASE_URL names another address" in ran.stderr


def test_a_model_missing_from_the_catalogue_is_used_with_a_warning(mainspring: Run):
    unknown = mainspring("run", "hello", "--model", "openai:gpt-4o", OPENAI_API_KEY="")
    assert "OPENAI_API_KEY is not set" in unknown.stderr
    known = mainspring(
        *("run", "hello", "--model", "openai:gpt-4o"),
        OPENAI_API_KEY="k",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
    )
    assert "openai:gpt-4o is not in the catalog: a window of 128,000 tokens" in known.stderr
