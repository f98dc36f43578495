"""Programs for the package claude-agent-sdk run against the command, by its option `cli_path`.
The package is the real one, of `make peers`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.upstream import Upstream
from tests.mcp.peers import PYTHON
from tests.written_files import write_file

PROGRAM = Path(__file__).with_name("claude_agent_program.py")
COMMAND = Path(sys.executable).with_name("mainspring")
PACKAGE = PYTHON.parent.parent.glob("lib/python*/site-packages/claude_agent_sdk")
SCRIPT = """
- when: Ask the reviewer
  steps:
  - calls:
      - tool: agent
        input: {description: reviews, subagent_type: reviewer, prompt: Look at a.txt}
  - expects: It is fine.
    says: Reviewed.
- when: Look at a.txt
  steps:
  - says: It is fine.
- when: Write
  steps:
  - calls:
      - {tool: write, input: {file_path: a.txt, content: secret}}
  - says: Done.
- steps:
  - says: Hello there.
"""
PRICED = """
[models."ollama:priced"]
window = 100_000
max_output = 4_000
price = { input = "10", output = "100", cache_read = "1", cache_write = "10" }
price_date = "2026-11-01"
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(PACKAGE), reason="claude-agent-sdk: run `make peers`"),
]


@pytest.fixture
def play(place: Path, environ: dict[str, str], upstream: Upstream) -> Any:  # noqa: ANN401 (a function)
    (place / "s.yaml").write_text(SCRIPT)
    (place / "agent.yaml").write_text("name: sdk\nmodel: scripted:s.yaml\n")
    write_file(Path(environ["HOME"]) / ".mainspring/models.toml", PRICED)

    def run(scenario: str) -> dict[str, Any]:
        result = subprocess.run(
            [PYTHON, PROGRAM, scenario, COMMAND],
            cwd=place,
            env={**environ, "OLLAMA_BASE_URL": upstream.url, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert "unsupported" not in result.stderr
        return json.loads(result.stdout)

    return run


def test_a_query_returns_the_reply(play: Any):  # noqa: ANN401
    assert play("query") == {"text": "Hello there.", "is_error": False, "turns": 1}


def test_agents_defined_by_the_program_are_called(play: Any):  # noqa: ANN401
    assert play("agents") == {"text": "Reviewed."}


def test_hooks_of_the_program_observe_and_deny_calls(play: Any):  # noqa: ANN401
    assert play("hooks") == {
        "seen": [["UserPromptSubmit", None], ["refused", "secret"]],
        "written": False,
    }


def test_the_can_use_tool_callback_denies_calls_and_changes_their_input(play: Any):  # noqa: ANN401
    assert play("can_use_tool") == {
        "asked": [["Write", "secret"], ["Write", "secret"]],
        "written": "public",
    }


def test_exceeding_the_budget_ends_the_query_with_an_error(play: Any):  # noqa: ANN401
    assert play("budget") == {"subtype": "error_max_budget_usd", "is_error": True}


def test_a_session_can_be_resumed_and_forked(play: Any):  # noqa: ANN401
    assert play("fork") == {"is_new": True, "is_same": True, "text": "Hello there."}
