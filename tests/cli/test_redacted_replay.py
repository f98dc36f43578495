"""A secret in any place that a model's request is made of: redacted, and replayed all the same."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.upstream import Part, Upstream, call

TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cE3gI5"
SUBAGENT = "---\nname: helper\ndescription: Helps {0}\n---\nYou help. Use {0} for it.\n"
SKILL = "---\nname: notes\ndescription: Takes notes {0}\n---\nThe key is {0}, use it.\n"
COMMAND = "---\ndescription: Greets {0}\n---\nGreet with {0}.\n"
HOOKS = {"SessionStart": [{"hooks": [{"type": "command", "command": "echo hook {0}"}]}]}
FILES = {
    "CLAUDE.md": "Always use {0} to log in.\n",
    "sub/CLAUDE.md": "Below, use {0}.\n",
    ".claude/agents/helper.md": SUBAGENT,
    ".claude/skills/notes/SKILL.md": SKILL,
    ".claude/commands/greet.md": COMMAND,
    "sub/notes.txt": "The token is {0}.\n",
    ".claude/settings.json": json.dumps({"hooks": HOOKS}),
}


def write_project(place: Path) -> None:
    for name, content in FILES.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("{0}", TOKEN), encoding="utf-8")


def is_helper(request: dict[str, object]) -> bool:
    return "You help." in json.dumps(request)


@pytest.fixture
def session(place: Path, mainspring: Run, upstream: Upstream) -> str:
    write_project(place)
    turns = iter(
        (
            (call("read", file_path="sub/notes.txt"), call("skill", name="notes", arguments="")),
            (call("agent", description="help", prompt="help me", subagent_type="helper"),),
            (call("history_search", query=TOKEN),),
            (f"I was told {TOKEN}.",),
        )
    )

    def answer(request: dict[str, object]) -> tuple[Part, ...]:
        return ("Helped.",) if is_helper(request) else next(turns, ("Yes.",))

    upstream.otherwise = answer
    assert mainspring("policy", "trust", **upstream.variables).returncode == 0
    ran = mainspring("run", f"log in with {TOKEN}", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    session_id: str = json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]
    again = mainspring("run", "/greet me", "--resume", session_id, **upstream.variables)
    assert again.returncode == 0, again.stderr
    return session_id


def test_a_session_with_redacted_secrets_can_be_replayed(
    mainspring: Run, upstream: Upstream, session: str
):
    sent = json.dumps(upstream.requests)
    assert TOKEN not in sent
    for words in (
        "Always use",
        "Below, use",
        "Use",
        "The key is",
        "Greet with",
        "hook",
        "log in with",
    ):
        assert f"{words} [redacted:github_token]" in sent, words
    assert "Helps [redacted:github_token]" in sent
    verified = mainspring("log", "verify", session)
    assert verified.returncode == 0, verified.stdout
    replayed = mainspring("replay", session)
    assert (replayed.returncode, replayed.stderr) == (0, ""), replayed.stdout
    shown = mainspring("context", "show", session)
    assert shown.returncode == 0, shown.stderr
    assert TOKEN not in replayed.stdout + shown.stdout
