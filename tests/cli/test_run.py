"""`mainspring run`: the real command, with the offline model or a model server of the test's."""

import json
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.cli.terminal import at_terminal
from tests.cli.upstream import Upstream, call, interrupted_run
from tests.fork_server import Run
from tests.repositories import git
from tests.written_files import write_file

STORY = """\
# The story

Once upon a **time**.

```python
print("end")
```
"""


def sessions(mainspring: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in mainspring("sessions", "ls", "--json").stdout.splitlines()]


def test_the_offline_model_answers_and_says_that_it_is_offline(mainspring: Run):
    result = mainspring("run", "hello")
    assert result.returncode == 0
    assert result.stdout.startswith("[offline demonstration model] You said: 'hello'")
    assert "this is the offline demonstration model" in result.stderr
    assert "export ANTHROPIC_API_KEY=" in result.stderr
    assert "--model ollama:NAME" in result.stderr
    assert "ollama:NAME" not in mainspring("run", "hello", "--model", "demo").stderr
    assert "1 turn · " in result.stderr
    session = sessions(mainspring)[-1]
    assert f"mainspring run --resume {session['id']}" in result.stderr


def test_in_a_pipe_standard_output_is_only_the_plain_reply(mainspring: Run, upstream: Upstream):
    upstream.says("I look.", call("history_search", query="key"))
    upstream.says(STORY)
    result = mainspring("run", "-", stdin="tell it\n", **upstream.variables)
    assert (result.returncode, result.stdout) == (0, f"I look.\n\n{STORY}")
    assert "✓ history_search key" in result.stderr
    assert "2 turns · 2.0k in (90% cached), 40 out · $0.00" in result.stderr
    assert upstream.requests[0]["messages"][-1]["content"] == "tell it"


def test_replies_at_a_terminal_are_rendered_as_markdown(
    upstream: Upstream, place: Path, environ: dict[str, str]
):
    upstream.says(call("history_search", query="key"), call("history_search", query="x", limit=0))
    upstream.says(STORY)
    env = {**environ, **upstream.variables}
    with at_terminal("run", "tell it", cwd=place, env=env) as terminal:
        assert terminal.wait() == 0
    lines = [line.rstrip() for line in terminal.text.splitlines()]
    assert any(line.startswith("✓ history_search key  ") for line in lines)
    assert "✗ history_search x" in lines
    assert "The story" in lines
    assert "Once upon a time." in lines
    assert '  print("end")' in lines
    assert "# The story" not in terminal.text
    assert "\x1b[" in terminal.raw


def test_control_characters_in_a_reply_do_not_reach_the_terminal(
    upstream: Upstream, mainspring: Run, place: Path, environ: dict[str, str]
):
    upstream.says("red \x1b[31m alert \x07")
    upstream.says("red \x1b[31m alert \x07")
    env = {**environ, **upstream.variables, "NO_COLOR": "1"}
    with at_terminal("run", "go", cwd=place, env=env) as terminal:
        assert terminal.wait() == 0
    assert "\x1b[31m" not in terminal.raw
    assert "\x07" not in terminal.raw
    assert "\x1b" not in mainspring("run", "go", **upstream.variables).stdout


def test_json_output_is_every_event_followed_by_the_result(mainspring: Run):
    result = mainspring("run", "hello", "--json")
    *told, last = [json.loads(line) for line in result.stdout.splitlines()]
    shown = mainspring("log", "show", last["session_id"], "--json").stdout
    assert told == [json.loads(line) for line in shown.splitlines()]
    assert (last["type"], last["reason"], last["exit_status"]) == ("result", "completed", 0)
    assert last["text"].startswith("[offline demonstration model]")


def test_a_missing_prompt_is_an_error(mainspring: Run):
    assert "no prompt: standard input" in mainspring("run").stderr
    assert mainspring("run").returncode == 1
    assert sessions(mainspring) == []


def test_a_model_without_a_key_is_refused_before_a_session_is_created(mainspring: Run):
    result = mainspring("run", "hello", "--model", "sonnet")
    assert result.returncode == 1
    assert "ANTHROPIC_API_KEY is not set" in result.stderr
    assert "--model scripted:demo" in result.stderr
    assert sessions(mainspring) == []


def test_the_generated_gitignore_hides_session_files_but_not_shared_ones(
    mainspring: Run, place: Path
):
    git(place, "init", "-q")
    write_file(place / "poet" / "AGENTS.md", "Rhyme.")
    git(place, "add", "poet")
    for agent in ("poet", "."):
        assert mainspring("run", "hello", "-m", "demo", "--agent", agent).returncode == 0
    status = ("status", "--porcelain", "--untracked-files=all")
    assert git(place, *status) == "A  poet/AGENTS.md"
    shared = place / ".mainspring" / "skills" / "hi" / "SKILL.md"
    write_file(shared, "---\nname: hi\n---\n")
    assert git(place, *status).splitlines()[1:] == ["?? .mainspring/skills/hi/SKILL.md"]
    (place / ".mainspring" / ".gitignore").write_text("mine\n")
    (place / ".mainspring" / "mainspring.db").unlink()
    assert mainspring("run", "hello", "-m", "demo").returncode == 0
    assert (place / ".mainspring" / ".gitignore").read_text() == "mine\n"


def test_a_model_error_exits_with_status_1(mainspring: Run, upstream: Upstream):
    upstream.says(400)
    result = mainspring("run", "hello", **upstream.variables)
    assert result.returncode == 1
    assert "as the test says" in result.stderr
    assert sessions(mainspring)[0]["reason"] == "model_error"


def test_instructions_of_the_folder_are_sent_to_the_model(
    mainspring: Run, upstream: Upstream, place: Path
):
    (place / "AGENTS.md").write_text("Answer in rhymes.")
    mainspring("run", "hello", **upstream.variables)
    assert "Answer in rhymes." in json.dumps(upstream.requests[0]["messages"][0])


def test_an_agent_folder_defines_the_agent_and_resuming_loads_it_again(
    mainspring: Run, upstream: Upstream, place: Path, tmp_path: Path
):
    folder = place / "agents" / "poet"
    write_file(folder / "CLAUDE.md", "Answer in rhymes.")
    (folder / "agent.yaml").write_text(
        "name: bard\nmodel: ollama:verse\nrules: [Never swear.]\ncolour: blue\n"
    )
    address = {"OLLAMA_BASE_URL": upstream.url}
    result = mainspring("run", "hello", "--agent", "agents/poet", **address)
    assert result.returncode == 0
    assert "agent.yaml:4: colour is unknown" in result.stderr
    first = upstream.requests[0]
    assert first["model"] == "verse"
    assert "Never swear." in json.dumps(first["messages"][0])
    [session] = sessions(mainspring)
    assert (session["agent"], session["model"]) == ("bard", "ollama:verse")
    elsewhere = ["--resume", session["id"], "--store", str(place / ".mainspring/mainspring.db")]
    mainspring("run", "more", *elsewhere, cwd=tmp_path, **address)
    second = upstream.requests[1]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert second["model"] == "verse"


def test_an_error_in_agent_yaml_is_reported_with_its_line(mainspring: Run, place: Path):
    (place / "agent.yaml").write_text("name: x\nlimits:\n  max_turns: many\n")
    result = mainspring("run", "hello")
    assert result.returncode == 1
    assert "agent.yaml:3: max_turns must be a whole number, not 'many'" in result.stderr
    assert "there is no such folder" in mainspring("run", "x", "--agent", "nowhere").stderr


def test_reaching_max_turns_exits_with_status_4(mainspring: Run, upstream: Upstream):
    for number in range(3):
        upstream.says(call("history_search", query=str(number)))
    result = mainspring("run", "go", "--max-turns", "2", **upstream.variables)
    assert result.returncode == 4
    assert "max turns: 2 of 2 turns taken" in result.stderr
    assert len(upstream.requests) == 2


def test_max_cost_must_be_a_positive_amount(mainspring: Run):
    assert mainspring("run", "x", "--max-cost", "much").returncode == 2
    assert mainspring("run", "x", "--max-cost", "0").returncode == 2
    assert mainspring("run", "x", "--max-cost", "$0.50").returncode == 0


def test_ctrl_c_interrupts_the_reply_and_keeps_the_text_so_far(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    held = threading.Event()
    upstream.says("I was about to ", held)
    env = {**environ, **upstream.variables}
    with at_terminal("run", "go", cwd=place, env=env) as terminal:
        terminal.expect("about to")
        terminal.type("\x03")
        terminal.expect("interrupting")
        assert terminal.wait() == 130
    held.set()
    assert "interrupted" in terminal.text
    [session] = sessions(mainspring)
    assert (session["status"], session["reason"]) == ("idle", "interrupted_streaming")
    assert "I was about to" in mainspring("sessions", "show", session["id"]).stdout


def test_ctrl_c_twice_exits_at_once_and_the_session_can_be_resumed(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str], store: Path
):
    held = threading.Event()
    upstream.says("I was about to ", held)
    env = {**environ, **upstream.variables}
    with at_terminal("run", "go", cwd=place, env=env) as terminal:
        terminal.expect("about to")
        with closing(sqlite3.connect(store, isolation_level=None)) as db:
            db.execute("begin immediate")  # the interrupt cannot be written down
            terminal.type("\x03")
            terminal.expect("interrupting")
            terminal.type("\x03")
            terminal.expect("leaving")
            db.execute("rollback")
        assert terminal.wait() == 130
    held.set()
    assert "left; session" in terminal.text
    [session] = sessions(mainspring)
    result = mainspring("run", "go on", "--resume", session["id"][-8:], **upstream.variables)
    assert result.returncode == 0
    assert "That is all I know." in result.stdout


def test_continue_resumes_the_most_recently_active_session(mainspring: Run, upstream: Upstream):
    mainspring("run", "first", **upstream.variables)
    older = sessions(mainspring)[-1]
    mainspring("run", "second", **upstream.variables)
    mainspring("run", "-c", "third", **upstream.variables)
    mainspring("run", "fourth", "--resume", older["id"], **upstream.variables)
    result = mainspring("run", "fifth", "--continue", **upstream.variables)
    assert result.returncode == 0, result.stderr
    asked = [
        [each["content"] for each in request["messages"] if each["role"] == "user"]
        for request in upstream.requests
    ]
    assert asked[2:] == [["second", "third"], ["first", "fourth"], ["first", "fourth", "fifth"]]
    both = mainspring("run", "-c", "--resume", older["id"], "x", **upstream.variables)
    assert both.returncode == 2
    assert len(sessions(mainspring)) == 2


def test_continue_in_a_folder_without_sessions_says_so(mainspring: Run):
    result = mainspring("run", "-c", "go")
    assert result.returncode == 1
    assert "there are no sessions yet" in result.stderr


def test_a_run_killed_during_a_reply_can_be_resumed_at_once(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    with interrupted_run(upstream, place, environ, "write it down") as process:
        process.send_signal(signal.SIGKILL)
    [session] = sessions(mainspring)
    assert session["status"] == "unfinished"
    upstream.says("Written down.")
    result = mainspring("run", "--resume", session["id"], **upstream.variables)
    assert result.returncode == 0
    assert result.stdout == "Written down.\n"
    assert "resumes where it stopped" in result.stderr
    assert upstream.last_words() == "write it down"
    again = mainspring("run", "--resume", session["id"], **upstream.variables)
    assert again.returncode == 0
    assert "nothing to do" in again.stderr


def test_resuming_without_a_store_creates_nothing(mainspring: Run, place: Path):
    result = mainspring("run", "--resume", "abc")
    assert result.returncode == 1
    assert "there are no sessions yet" in result.stderr
    assert list(place.iterdir()) == []


def test_work_is_graded_against_a_rubric_and_revised(mainspring: Run, place: Path):
    steps = (
        "{calls: [{tool: write, input: {file_path: out.txt, content: one}}]}",
        "{says: Written.}",
        "{calls: [{tool: write, input: {file_path: out.txt, content: two}}]}",
        "{says: Now it is two.}",
    )
    (place / "play.yaml").write_text(f"[{{steps: [{', '.join(steps)}]}}]")
    (place / "rubric.md").write_text("- run: grep -q two out.txt\n")
    arguments = ("--model", "scripted:play.yaml", "--mode", "bypassPermissions")
    done = mainspring("run", "write it", "--outcome", "rubric.md", *arguments)
    assert done.returncode == 0, done.stderr
    assert "graded 1: needs revision" in done.stderr
    assert "graded 2: satisfied" in done.stderr
    assert (place / "out.txt").read_text() == "two"
    assert "satisfied" in mainspring("sessions", "ls").stdout
    missing = mainspring("run", "x", "--outcome", "no.md", *arguments)
    assert "there is no such file" in missing.stderr
