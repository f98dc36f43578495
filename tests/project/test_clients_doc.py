"""The programs of docs/clients.md and of the README do what is said there, at a real service."""

import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from tests.api.conftest import Platform, platform
from tests.cli.upstream import Part, call, people_and_model

from mainspring.core import clock
from mainspring.improve.evals.suites.new_suite import write_first_suite
from mainspring.service.webhooks.webhook_signing import signed_headers

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "docs/clients.md"
SCHEDULES = ROOT / "docs/schedules.md"
_SECONDS = 60

ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "Count the words": (
        call("bash", command="echo 'to be or not to be' | wc -w"),
        "There are six words.",
    ),
    "Write 'milk'": (call("write", file_path="list.txt", content="milk"), "It is on the list."),
    "What is tea": (call("price", article="tea"), "Tea is 4.20."),
    "Where are you": (call("bash", command="pwd > here.txt"), "Here."),
}
"""What the model calls, and what it says then, when it is asked something that begins so."""


def clerk(request: dict[str, Any]) -> tuple[Part, ...]:
    messages = people_and_model(request)
    last = max(at for at, each in enumerate(messages) if each["role"] == "user")
    content = messages[last]["content"]
    asked = content if isinstance(content, str) else "\n".join(item["text"] for item in content)
    has_called = any(message["role"] == "assistant" for message in messages[last:])
    for words, (tool_call, reply) in ANSWERS.items():
        if words in asked:
            return (reply,) if has_called else (tool_call,)
    return ("Good night, and sleep well.",)


def programs(document: Path) -> Iterator[tuple[str, str | None]]:
    """Each with what it prints, where the document says that."""
    text = document.read_text(encoding="utf-8")
    pattern = r"```python\n(.*?)```(?:\n\nIt prints:\n\n```text\n(.*?)```)?"
    for program, printed in re.findall(pattern, text, re.DOTALL):
        yield program, printed or None


@pytest.fixture(scope="module")
def running_platform(tmp_path_factory: pytest.TempPathFactory) -> Generator[Platform]:
    folder = tmp_path_factory.mktemp("service")
    write_first_suite(folder)  # which a program of schedules.md runs every night
    with platform(folder, answer=clerk) as started:
        yield started


def address_program(program: str, running: Platform) -> str:
    return program.replace("http://127.0.0.1:8700", running.url).replace("msk_...", running.key)


def test_documented_programs_print_what_the_document_says(
    running_platform: Platform, capsys: pytest.CaptureFixture[str]
):
    names: dict[str, Any] = {}
    for program, printed in (*programs(CLIENTS), *programs(SCHEDULES)):
        if "# worker.py" in program:
            continue
        exec(compile(address_program(program, running_platform), "clients.md", "exec"), names)  # noqa: S102 (ours)
        shown = capsys.readouterr().out
        assert printed is None or shown == printed, program
    names["client"].close()


def test_the_documented_webhook_receiver_verifies_signatures(
    running_platform: Platform, capsys: pytest.CaptureFixture[str]
):
    program = next(each for each, _ in programs(CLIENTS) if "def receive" in each)
    with Anthropic(base_url=running_platform.url, api_key=running_platform.key) as client:
        names: dict[str, Any] = {"client": client}
        exec(program, names)  # noqa: S102 (ours)
        body = '{"type": "event", "id": "whe_1", "data": {"type": "session.idled", "id": "sesn_1"}}'
        secrets = [names["endpoint"]["secret"]]
        names["receive"](
            body, signed_headers("whe_1", body.encode(), secrets=secrets, now=clock.now())
        )
    assert capsys.readouterr().out == "session.idled sesn_1\n"


def test_the_documented_worker_does_the_work(running_platform: Platform, tmp_path: Path):
    program = next(each for each, _ in programs(CLIENTS) if "# worker.py" in each)
    (tmp_path / "worker.py").write_text(
        address_program(program, running_platform), encoding="utf-8"
    )
    with Anthropic(
        base_url=running_platform.url, api_key=running_platform.key, timeout=_SECONDS
    ) as client:
        agent = client.beta.agents.create(
            name="guest", model="sonnet", tools=[{"type": "agent_toolset_20260401"}]
        )
        env = client.beta.environments.create(name="own", config={"type": "self_hosted"})
        key: Any = client.post(
            "/v1/mainspring/keys", cast_to=object, body={"name": "own", "environment_id": env.id}
        )
        session = client.beta.sessions.create(agent=agent.id, environment_id=env.id)
        worker = subprocess.Popen(
            [sys.executable, "worker.py"],
            cwd=tmp_path,
            env={"ENVIRONMENT": env.id, "WORKER_KEY": key["key"]},
        )
        try:
            with client.beta.sessions.events.stream(session.id) as stream:
                client.beta.sessions.events.send(
                    session.id,
                    events=[
                        {
                            "type": "user.message",
                            "content": [{"type": "text", "text": "Where are you?"}],
                        }
                    ],
                )
                for event in stream:
                    if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                        break
        finally:
            worker.terminate()
            worker.wait(_SECONDS)
    assert (tmp_path / "here.txt").read_text().strip() == str(tmp_path)


def test_the_program_of_the_readme_runs_more_than_once(
    running_platform: Platform, capsys: pytest.CaptureFixture[str]
):
    program = next(p for p, _ in programs(ROOT / "README.md") if "from anthropic import" in p)
    for _ in range(2):
        exec(address_program(program, running_platform), {})  # noqa: S102 (ours)
        assert "Good night" in capsys.readouterr().out
