"""Hooks in the frontmatter of skills and subagents, in a session of the command."""

import json
from pathlib import Path
from typing import Any

from tests.cli.upstream import Part, Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file

_SKILL = """---
name: careful
description: Checks what it runs.
hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - type: command
          command: '"${CLAUDE_SKILL_DIR}/scripts/deny.sh"'
  PostToolUse:
    - hooks:
        - type: command
          command: echo once >> "$CLAUDE_PROJECT_DIR/skill-log"
          once: true
---
Be careful.
"""
_SUBAGENT = """---
name: looker
description: Looks.
hooks:
  PreToolUse:
    - hooks:
        - type: command
          command: cat >> "$CLAUDE_PROJECT_DIR/agent-log"
  Stop:
    - hooks:
        - type: command
          command: cat > "$CLAUDE_PROJECT_DIR/agent-stop"
---
Look.
"""


def _bash(command: str) -> dict[str, Any]:
    return call("bash", command=command)


def test_hooks_of_a_trusted_skill_run_while_the_skill_is_in_use(
    mainspring: Run, upstream: Upstream, place: Path
):
    folder = place / ".claude/skills/careful"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(_SKILL)
    (folder / "scripts/deny.sh").write_text("#!/bin/sh\necho 'THE SKILL SAYS NO' >&2\nexit 2\n")
    (folder / "scripts/deny.sh").chmod(0o755)

    def results() -> str:
        upstream.says(_bash("echo before"))
        upstream.says(call("skill", name="careful"))
        upstream.says(_bash("echo during"), call("read", file_path="CLAUDE.md"))
        upstream.says("done")
        (place / "CLAUDE.md").write_text("Hello.\n")
        ran = mainspring("run", "go", "--mode", "acceptEdits", **upstream.variables)
        assert ran.returncode == 0, ran.stderr
        return json.dumps(upstream.requests[-1]["messages"])

    (place / ".claude/settings.json").write_text('{"env": {"A": "1"}}')  # trust in it is apart
    assert "THE SKILL SAYS NO" not in results()
    trusted = mainspring("skill", "scan", "careful", "--trust", "--yes")
    assert trusted.returncode == 0, trusted.stderr
    assert results().count("THE SKILL SAYS NO") == 1
    assert (place / "skill-log").read_text() == "once\n"


def test_hooks_of_a_subagent_run_only_on_its_threads(
    mainspring: Run, upstream: Upstream, place: Path
):
    write_file(place / ".claude/agents/looker.md", _SUBAGENT)
    (place / "a.txt").write_text("x\n")
    broken = "---\nname: broken\ndescription: It.\nhooks:\n  Stop: nonsense\n---\nx\n"
    (place / ".claude/agents/broken.md").write_text(broken)

    def answer(request: dict[str, Any]) -> tuple[Part, ...]:
        words = json.dumps(request["messages"])
        is_child = "part one" in words and "look at" not in words
        if '"role": "tool"' in words:
            return ("CHILD DONE." if is_child else "All done.",)
        if is_child:
            return (call("read", file_path="a.txt"),)
        return (
            call("read", file_path="a.txt"),
            call("agent", description="look at", prompt="part one", subagent_type="looker"),
        )

    upstream.otherwise = answer
    first = mainspring("run", "go", **upstream.variables)
    assert first.returncode == 0, first.stderr
    assert not (place / "agent-log").exists()
    trusted = mainspring("policy", "trust")
    assert trusted.returncode == 0, trusted.stderr
    second = mainspring("run", "go", **upstream.variables)
    assert second.returncode == 0, second.stderr
    assert "broken.md: hooks.Stop: " in second.stderr
    [told] = [json.loads(line) for line in (place / "agent-log").read_text().splitlines()]
    assert (told["tool_name"], told["agent_type"]) == ("Read", "looker")
    assert json.loads((place / "agent-stop").read_text())["hook_event_name"] == "SubagentStop"
    (place / "agent-log").unlink()
    file = place / ".claude/agents/looker.md"
    file.write_text(file.read_text().replace("cat >>", "tee -a"))
    assert mainspring("run", "go", **upstream.variables).returncode == 0
    assert not (place / "agent-log").exists()


def test_skill_model_and_effort_and_ultrathink_apply_to_one_turn(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    def skill(name: str, more: str, body: str) -> None:
        file = Path(environ["HOME"]) / f".claude/skills/{name}/SKILL.md"
        write_file(file, f"---\nname: {name}\ndescription: It.\n{more}---\n{body}\n")

    skill("deep", "model: ollama:deep\neffort: medium\n", "Think.")
    skill("deeper", "", "Ultrathink about it.")
    entry = '[models."ollama:{}"]\nwindow = 100000\nefforts = ["low", "medium", "high", "xhigh"]\n'
    toml = "".join(entry.format(name) for name in ("test", "deep"))
    write_file(Path(environ["HOME"]) / ".mainspring/models.toml", toml)
    session = ""

    def asked(*arguments: str) -> list[tuple[str, str | None]]:
        upstream.requests.clear()
        ran = mainspring("run", "--json", *arguments, **upstream.variables)
        assert ran.returncode == 0, ran.stderr
        nonlocal session
        session = json.loads(ran.stdout.splitlines()[-1])["session_id"]
        return [(r["model"], r.get("reasoning_effort")) for r in upstream.requests]

    upstream.says(call("skill", name="deep"))
    assert asked("go") == [("test", None), ("deep", "medium")]
    assert asked("--resume", session, "and then?") == [("test", None)]
    assert asked("--resume", session, "/deep") == [("deep", "medium")]
    assert asked("--resume", session, "Please ULTRATHINK.") == [("test", "high")]
    upstream.says(call("skill", name="deeper"))
    assert asked("--resume", session, "more") == [("test", None), ("test", "high")]
    shown = mainspring("replay", session)
    assert shown.returncode == 0, shown.stdout
