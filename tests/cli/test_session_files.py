"""Sessions as files: what `sessions export` writes, and the transcripts that hooks are given."""

import json
import stat
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run
from tests.cli.upstream import Upstream, call

HOOK = """\
import json, pathlib, sys
told = json.load(sys.stdin)
paths = [told["transcript_path"], told.get("agent_transcript_path", "")]
read = lambda path: pathlib.Path(path).read_text() if path and pathlib.Path(path).exists() else None
told["texts"] = [read(path) for path in paths]
with open(pathlib.Path(__file__).with_name("told.jsonl"), "a") as file:
    file.write(json.dumps(told) + "\\n")
"""
SECRET = "sk-ant-api03-" + "Zq8xT4mK" * 11 + "-AAAA"


def write_hook_settings(environ: dict[str, str]) -> Path:
    """The user's settings with a hook that keeps what it is told."""
    home = Path(environ["HOME"], ".mainspring")
    home.mkdir(exist_ok=True)
    (home / "hook.py").write_text(HOOK, encoding="utf-8")
    handler = {"type": "command", "command": f"python3 {home / 'hook.py'}"}
    events = ("PreToolUse", "Stop", "SubagentStop")
    hooks = {event: [{"matcher": "", "hooks": [handler]}] for event in events}
    settings = {"hooks": hooks, "permissions": {"allow": ["Bash(cp:*)", "Bash(cat:*)"]}}
    (home / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    return home / "told.jsonl"


def read_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def kinds(lines: list[dict[str, Any]]) -> list[str]:
    """The type of each line's content."""
    found: list[str] = []
    for line in lines:
        content = line.get("message", {}).get("content", line["type"])
        found += ["text"] if isinstance(content, str) else [item["type"] for item in content]
    return found


def the_session(mainspring: Run) -> str:
    return json.loads(mainspring("sessions", "ls", "--json").stdout)["id"]


def test_hooks_read_a_transcript_that_grows_while_the_session_runs(
    mainspring: Run, upstream: Upstream, environ: dict[str, str], place: Path
):
    file = write_hook_settings(environ)
    (place / "notes.txt").write_text(f"key {SECRET}\n", encoding="utf-8")
    upstream.says("I look.", call("bash", command="cp notes.txt copy.txt && cat copy.txt"))
    upstream.says(call("agent", description="review", prompt="review it", subagent_type="explore"))
    upstream.says("The subagent is done.")
    upstream.says("All done.")
    assert mainspring("run", "look", **upstream.variables).returncode == 0
    told = read_lines(file.read_text(encoding="utf-8"))
    by_event = {item["hook_event_name"]: item for item in told}

    before = read_lines(told[0]["texts"][0])
    assert kinds(before) == ["text", "text", "tool_use"]
    assert before[-1]["message"]["content"][0]["id"] == told[0]["tool_use_id"]
    assert before[-1]["message"]["content"][0]["name"] == told[0]["tool_name"] == "Bash"
    assert {line["sessionId"] for line in before} == {told[0]["session_id"]}

    stopped = by_event["SubagentStop"]
    side = read_lines(stopped["texts"][1])
    assert kinds(side) == ["text", "text"]
    assert {line["agentId"] for line in side} == {stopped["agent_id"]}
    assert all(line["isSidechain"] for line in side)
    assert "agent_transcript_path" not in by_event["Stop"]

    transcript = Path(by_event["Stop"]["transcript_path"])
    assert transcript.is_relative_to(place / ".mainspring")
    for made in (transcript, transcript.parent, Path(stopped["agent_transcript_path"])):
        assert stat.S_IMODE(made.stat().st_mode) & 0o077 == 0
    whole = transcript.read_text(encoding="utf-8")
    assert SECRET not in whole
    assert "All done." in whole

    with transcript.open("a", encoding="utf-8") as torn:  # as a crash would leave it
        torn.write('{"parentUuid":"cut in ha')
    assert mainspring("run", "--resume", the_session(mainspring), "more", **upstream.variables)
    assert transcript.read_text(encoding="utf-8").startswith(whole)
    lines = read_lines(transcript.read_text(encoding="utf-8"))
    assert kinds(lines)[-2:] == ["text", "text"]
    chain = [line["uuid"] for line in lines]
    assert [line["parentUuid"] for line in lines] == [None, *chain[:-1]]

    mainspring("sessions", "rm", "--yes", the_session(mainspring))
    assert list(transcript.parent.iterdir()) == []


def test_a_session_is_exported_in_every_format(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    upstream.says("<b>I look.</b>", call("bash", command="echo '<script>x</script>'"))
    upstream.says(call("agent", description="review", prompt="review it", subagent_type="explore"))
    upstream.says("The subagent is done.")
    upstream.says("# Done\n\n```sh\nls\n```")
    free = ("--mode", "bypassPermissions")
    assert mainspring("run", "look <i>closely</i>", *free, **upstream.variables).returncode == 0
    session = the_session(mainspring)
    assert not (place / ".mainspring" / "transcripts").exists()  # there are no hooks

    lines = read_lines(mainspring("sessions", "export", session).stdout)
    main = [line for line in lines if not line["isSidechain"]]
    assert kinds(main) == (
        # after each result, the status block
        [
            "text",
            "text",
            "tool_use",
            "tool_result",
            "text",
            "tool_use",
            "tool_result",
            "text",
            "text",
        ]
    )
    [name] = {line["sessionId"] for line in lines}
    assert name.replace("-", "") == session.removeprefix("sesn_")
    [side] = {line["agentId"] for line in lines if line["isSidechain"]}
    assert (main[6]["toolUseResult"], main[1]["message"]["model"]) == ({"agentId": side}, "test")
    assert main[1]["message"]["usage"]["cache_read_input_tokens"] == 900
    assert {line["cwd"] for line in lines} == {str(place)}

    page = place / "page.html"
    made = mainspring("sessions", "export", session, "-f", "html", "-o", "page.html")
    assert (made.returncode, made.stdout) == (0, "")
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;I look.&lt;/b&gt;" in text
    assert "<script" not in text
    assert "Subagent explore: review" in text
    assert stat.S_IMODE(page.stat().st_mode) == 0o600

    markdown = mainspring("sessions", "export", session, "--format", "markdown").stdout
    assert markdown.startswith("# look \\<i\\>closely\\</i\\>\n")
    assert "> &lt;b>I look.&lt;/b>" in markdown
    assert "\n## Subagent explore: review\n" in markdown

    raw = mainspring("sessions", "export", session, "-f", "jsonl").stdout
    assert raw == mainspring("log", "export", session).stdout


def test_a_session_is_renamed_and_found_by_message_text(mainspring: Run, session_id: str):
    renamed = mainspring("sessions", "rename", session_id, "Dates  at midnight")
    assert renamed.returncode == 0, renamed.stderr
    [listed] = read_lines(mainspring("sessions", "ls", "--json").stdout)
    assert listed["title"] == "Dates at midnight"
    assert mainspring("sessions", "rename", session_id, " ").returncode == 1

    [found] = read_lines(mainspring("sessions", "search", "midnight", "why", "--json").stdout)
    assert (found["session_id"], found["seq"]) == (session_id, 2)
    assert "midnight" in found["snippet"]
    shown = mainspring("sessions", "search", "midnight").stdout
    assert shown.startswith(f"{session_id}  {found['time'][:10]} ")
    assert "no session has all of these words" in mainspring("sessions", "search", "xyz").stderr
