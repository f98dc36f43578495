"""What people see and decide: the command from the first settings to the report, and Python."""

import json
import subprocess
from pathlib import Path

import pytest
from tests import fork_server
from tests.environ import clean_environ
from tests.improve.evolution.support_agent import change, write_support_agent

from mainspring import InvalidInput, aevolve, evolve
from mainspring.improve.evals.suite import Case


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_support_agent(tmp_path / "support", per_topic=6)


def knows(case: Case, answer: str) -> float:
    return float((case.gold or "?") in answer)


def test_python_improves_an_agent_by_a_function_that_scores_answers(folder: Path):
    suite = folder / "evals/support.yaml"
    suite.write_text(suite.read_text().replace("type: contains", "type: not_contains"))
    improver = folder / "improver.yaml"
    improver.write_text(improver.read_text().replace("contains 3 days", "knows"))
    detail = evolve(folder, metric=knows, budget=150)
    assert detail.recommended is not None
    assert detail.recommended.track == "prompt"
    assert "message: knows" in detail.recommended.reason
    assert detail.calls["metric"] + detail.calls.get("sealed", 0) <= 150


def test_a_function_that_always_says_the_same_is_refused_by_name(folder: Path):
    def always_good(case: Case, answer: str) -> float:
        return 1.0

    detail = evolve(folder, metric=always_good)
    assert detail.campaign.status == "failed"
    assert "an agent that does nothing scores 100%" in detail.campaign.reason
    assert detail.calls == {}


async def test_evolve_says_what_to_use_in_an_event_loop(folder: Path):
    with pytest.raises(InvalidInput, match="await aevolve"):
        evolve(folder)
    assert (await aevolve(folder, budget=9)).campaign.status == "undecided"


@pytest.mark.slow
def test_the_command_estimates_refuses_what_is_not_committed_and_writes_a_report(folder: Path):
    environ = {**clean_environ(), "HOME": str(folder.parent)}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return fork_server.run("evolve", *arguments, cwd=folder, env=environ, stdin="")

    def git(*arguments: str) -> None:
        own = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)

    assert "9 cases to develop with, 9 sealed" in run("run", "--dry-run").stdout
    git("init")
    git("add", "--all")
    git("commit", "-m", "first")
    (folder / "AGENTS.md").write_text("You answer customers.\n")
    refused = run("run")
    assert refused.returncode != 0
    assert "not committed: AGENTS.md" in refused.stderr
    git("commit", "-a", "-m", "second")
    change(folder / "evolve.yaml", calls={"metric": 110})
    ended = run("run", "--json")
    assert json.loads(ended.stdout)["trials"] > 9
    assert "the sealed cases were looked at" in run("status").stdout
    assert run("show", "--html", "report.html").returncode == 0
    page = (folder / "report.html").read_text()
    assert page.count("<svg") >= 2
    assert "<script" not in page
