"""The line editor of chat at a terminal: completion, mentions, commands of your own, rules,
history, paste, the status line; and going back to earlier sessions and messages."""

import base64
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.terminal import Chat
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.written_files import write_file

from mainspring.edges.cli.run.file_index import FileIndex
from mainspring.runtime.corrections import Corrections

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def window(environ: dict[str, str]) -> None:
    write_file(
        Path(environ["HOME"]) / ".mainspring/models.toml",
        '[models."ollama:test"]\nwindow = 100_000\n',
    )


def request_text(upstream: Upstream) -> str:
    return json.dumps(upstream.requests[-1])


def test_paths_are_completed_and_mentioned_files_are_attached(
    chat: Chat, upstream: Upstream, place: Path, mainspring: Run
):
    write_file(place / "src/prices.py", "RATE = 1.19\n")
    (place / "dot.png").write_bytes(PNG)
    with chat() as terminal:
        terminal.type("what is in @pri")
        terminal.watch("src/prices.py")  # the list of completions
        terminal.type("\t\r")  # chosen; Enter takes it, the next one sends
        terminal.watch("> what is in @src/prices.py")
        terminal.type(" and @src/ and @nowhere and @dot.png?\r")
        terminal.expect("attached: src/prices.py, src/, dot.png")
        terminal.expect("all I know")
        terminal.expect("> ")
        sent = request_text(upstream)
        assert "RATE = 1.19" in sent
        assert "<folder path='src/'>" in sent
        assert base64.b64encode(PNG).decode() in mainspring("log", "export", "last").stdout
        assert "@nowhere" in sent
        terminal.type("look at @https://docs.example.com/page\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        terminal.type("/exit\r")
        assert terminal.wait() == 0


def test_a_user_shell_command_runs_and_its_output_goes_with_the_next_message(
    chat: Chat, upstream: Upstream, place: Path
):
    (place / "notes.txt").write_text("x")
    with chat() as terminal:
        terminal.type("!ls; exit 3\r")
        terminal.expect("notes.txt")
        terminal.expect("exit status 3")
        terminal.expect("> ")
        assert upstream.requests == []
        terminal.type("what was that?\r")
        terminal.expect("all I know")
        assert "<shell command='ls; exit 3' exit_status=3>" in request_text(upstream)
        terminal.expect("> ")
        terminal.type("!sleep 600\r")
        terminal.press("\x03", until="exit status")
        terminal.expect("> ")
        terminal.type("!trap '' INT; sleep 600 & echo $! > pid; echo re''ady; wait\r")
        terminal.expect("ready")
        child = Path("/proc", (place / "pid").read_text().strip(), "stat")
        terminal.press("\x03", until="exit status")
        assert not child.exists() or child.read_text().split()[2] == "Z", "no child is left behind"
        terminal.expect("> ")


def test_piped_input_runs_no_command_and_attaches_no_file(
    mainspring: Run, upstream: Upstream, place: Path
):
    (place / "secret.txt").write_text("the secret")
    text = "!touch ran\n#rule\nlook at @secret.txt\n"
    result = mainspring("chat", stdin=text, **upstream.variables)
    assert result.returncode == 0
    assert not (place / "ran").exists()
    assert not (place / "AGENTS.md").exists()
    assert upstream.last_words() == "look at @secret.txt"
    assert "the secret" not in json.dumps(upstream.requests)


def test_a_hash_line_adds_a_rule_to_the_instructions_file(
    chat: Chat, upstream: Upstream, place: Path
):
    (place / "CLAUDE.md").write_text("# Shop\n- old rule")
    with chat() as terminal:
        terminal.type("# never use tabs\r")
        terminal.expect("+- never use tabs")
        terminal.expect("add this line to CLAUDE.md? [y/n] ")
        terminal.type("n\r")
        terminal.expect("nothing was changed")
        terminal.expect("> ")
        assert (place / "CLAUDE.md").read_text() == "# Shop\n- old rule"
        terminal.type("#never use tabs\r")
        terminal.expect("[y/n] ")
        terminal.type("y\r")
        terminal.expect("added to CLAUDE.md")
        terminal.expect("> ")
        assert (place / "CLAUDE.md").read_text() == "# Shop\n- old rule\n- never use tabs\n"
        terminal.type("go\r")
        terminal.expect("all I know")
        assert "this rule of the project applies: - never use tabs" in request_text(upstream)


def test_history_is_searchable_and_keeps_multiline_messages_whole(chat: Chat, upstream: Upstream):
    with chat() as terminal:
        terminal.type("first\x1b\rsecond \\ line\r")  # Alt-Enter
        terminal.expect("all I know")
        terminal.expect("> ")
        terminal.type("another\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        terminal.type("/exit\r")
        assert terminal.wait() == 0
    with chat() as terminal:
        terminal.type("\x12")  # Ctrl-R
        terminal.watch("I-search backward:")
        terminal.type("seco")
        terminal.watch("second \\ line")
        terminal.type("\r")
        terminal.type("\r")
        terminal.expect("all I know")
        assert upstream.last_words() == "first\nsecond \\ line"


def test_pasted_lines_are_one_message_and_a_pasted_image_path_is_attached(
    chat: Chat, upstream: Upstream, place: Path, mainspring: Run
):
    (place / "a dot.png").write_bytes(PNG)
    with chat() as terminal:
        terminal.type("\x1b[200~one\ntwo\n/three\x1b[201~")
        terminal.watch("/three")
        assert upstream.requests == []
        terminal.type("\r")
        terminal.expect("all I know")
        assert upstream.last_words() == "one\ntwo\n/three"
        terminal.watch("· 90% cached")  # the status line of the next prompt, which reads keys now
        terminal.type(f"\x1b[200~{place}/a\\ dot.png\x1b[201~")
        terminal.watch('" ')  # the end of the path, wherever the line is broken
        terminal.type("what is it?\r")
        terminal.expect("attached: ")
        terminal.expect("all I know")
        assert base64.b64encode(PNG).decode() in mainspring("log", "export", "last").stdout


def test_the_status_line_shows_model_mode_context_cost_and_cache(chat: Chat):
    with chat() as terminal:
        terminal.watch("test · mode default")
        terminal.type("hello\r")
        terminal.expect("all I know")
        terminal.watch("test · mode default · context")
        terminal.watch("90% cached")
        terminal.type("/mode plan\r")
        terminal.watch("test · mode plan")


def test_a_resumed_conversation_is_shown_and_another_session_can_be_picked(
    chat: Chat, upstream: Upstream
):
    upstream.says("It is *seven*.")
    with chat() as terminal:
        terminal.type("the number?\r")
        terminal.expect("It is seven.")
        terminal.expect("> ")
        terminal.type("/clear\r")
        terminal.expect("a new session begins")
        terminal.type("other things\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        terminal.type("/resume\r")
        terminal.watch("session: ")
        terminal.type("numb")
        terminal.watch("1 of 1 ")
        terminal.type("\r")
        terminal.expect("> the number?")
        terminal.expect("It is seven.")
        terminal.expect("this is session ")
        terminal.expect("> ")
        terminal.type("and?\r")
        terminal.expect("all I know")
        assert "other things" not in request_text(upstream)
        assert "the number?" in request_text(upstream)
    with chat("--continue") as terminal:
        assert "It is seven." in terminal.text
        assert "> and?" in terminal.text


def test_rewind_restores_files_and_conversation(chat: Chat, upstream: Upstream, place: Path):
    with chat("--mode", "acceptEdits") as terminal:
        terminal.type("/rewind\r")
        terminal.expect("nothing yet")
        terminal.type("hello\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        upstream.says(call("write", file_path="a.txt", content="new"))
        upstream.says("Changed.")
        terminal.type("change it\r")
        terminal.expect("Changed.")
        terminal.expect("> ")
        assert (place / "a.txt").read_text() == "new"
        terminal.type("/diff\r")
        terminal.expect("a.txt")
        terminal.expect("> ")
        terminal.type("/export talk.md\r")
        terminal.expect("wrote ")
        terminal.expect("> ")
        assert "change it" in (place / "talk.md").read_text()
        terminal.type("/rewind\r")
        terminal.watch("❯ change it")
        terminal.type("\r")
        terminal.expect("Go back?")
        terminal.type("y\r")
        terminal.expect("restored ")
        terminal.expect("this is session ")
        terminal.expect("> ")
        assert not (place / "a.txt").exists()
        terminal.type("what now?\r")
        terminal.expect("all I know")
        assert "hello" in request_text(upstream)
        assert "change it" not in request_text(upstream)


def test_a_second_correction_of_the_same_point_offers_diagnosis_or_clean_start(
    chat: Chat, upstream: Upstream
):
    with chat() as terminal:
        for message in ("write the report as a table", "no, the table needs a header"):
            terminal.type(f"{message}\r")
            terminal.expect("all I know")
            terminal.expect("> ")
        terminal.type("still not right: the header of the table is missing\r")
        terminal.expect("you have corrected this twice")
        terminal.expect("Enter to send it as it is: ")
        terminal.type("d\r")
        terminal.expect("all I know")
        terminal.expect("> ")
        assert "Do not change anything yet." in upstream.last_words()
        terminal.type("no! the header\r")
        terminal.expect("Enter to send it as it is: ")
        terminal.type("c\r")
        terminal.expect("a new session begins")
        terminal.expect("all I know")
        terminal.expect("> ")
        first = upstream.last_words()
        assert first.startswith("write the report as a table\n\nAn earlier attempt went wrong.")
        assert "- no! the header" in first
        terminal.type("/agents new reviewer Reviews changes: all of them\r")
        terminal.expect("wrote ")
        terminal.expect("> ")
        terminal.type("/agents new reviewer again\r")
        terminal.expect("exists already")
        terminal.expect("> ")
        terminal.type("/clear\r")
        terminal.expect("> ")
        terminal.type("/agents\r")
        terminal.expect("reviewer (project)")


def test_unrelated_messages_do_not_count_as_corrections():
    corrections = Corrections()
    for message in ("no", "add tests", "no, tests for parse()", "now the docs", "no, the docs"):
        assert not corrections.note(message), message
    assert corrections.note("I said the docs")


NAMES = st.text("ab/.", min_size=1, max_size=6).map(lambda name: name.strip("/").replace("//", "/"))


@given(st.lists(NAMES.filter(bool), max_size=30), st.text("ab/.", max_size=3), st.booleans())
def test_every_path_containing_the_typed_text_is_found_exactly_once(
    paths: list[str], typed: str, is_finished: bool
):
    index = FileIndex()
    index.add(dict.fromkeys(paths))
    if is_finished:
        index.finish()
    hits = list(index.search(typed))
    assert len(hits) == len(set(hits))
    assert {path for path in paths if typed in path} <= set(hits)
