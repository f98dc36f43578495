"""`mainspring log verify`, `export`, `import`, `rm` and `expire` on a real store."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.fork_server import Run


def list_sessions(mainspring: Run, *arguments: str) -> list[str]:
    result = mainspring("log", "ls", "--json", *arguments)
    return [json.loads(line)["id"] for line in result.stdout.splitlines()]


def tamper(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("update event set body = replace(body, 'midnight', 'noon') where seq = 2")
    db.close()


def test_verify_accepts_an_unchanged_session(mainspring: Run, session_id: str):
    result = mainspring("log", "verify", session_id)
    assert (result.returncode, result.stdout) == (0, f"ok    {session_id}  6 events\n")


def test_verify_reports_a_changed_event_and_fails(mainspring: Run, session_id: str, store: Path):
    tamper(store)
    result = mainspring("log", "verify", session_id)
    assert result.returncode == 1
    assert result.stdout.startswith(f"BAD   {session_id}\n")
    assert "event 3: does not match the hash of the event before it" in result.stdout


def test_verify_all_reports_as_json(mainspring: Run, session_id: str, fork_id: str, store: Path):
    tamper(store)
    result = mainspring("log", "verify", "--all", "--json")
    assert result.returncode == 1
    reports = {item["session_id"]: item for item in map(json.loads, result.stdout.splitlines())}
    assert reports.keys() == {session_id, fork_id}
    assert not reports[session_id]["ok"]
    assert reports[session_id]["problems"][0]["seq"] == 3


@pytest.mark.parametrize("arguments", [(), ("some-session", "--all")])
def test_verify_needs_either_a_session_or_all(mainspring: Run, arguments: tuple[str, ...]):
    assert mainspring("log", "verify", *arguments).returncode == 2


def test_an_exported_fork_is_identical_in_another_store(
    mainspring: Run, session_id: str, fork_id: str, tmp_path: Path
):
    elsewhere = ("--store", str(tmp_path / "elsewhere.db"))
    exported = mainspring("log", "export", fork_id).stdout
    imported = mainspring("log", "import", "-", *elsewhere, stdin=exported)
    assert imported.returncode == 0, imported.stderr
    assert {line.split()[1] for line in imported.stdout.splitlines()} == {session_id, fork_id}
    assert mainspring("log", "export", fork_id, *elsewhere).stdout == exported
    assert mainspring("log", "verify", "--all", *elsewhere).returncode == 0
    again = mainspring("log", "import", "-", *elsewhere, stdin=exported)
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing new" in again.stderr


def test_export_to_a_file_leaves_no_other_file_behind(
    mainspring: Run, session_id: str, tmp_path: Path
):
    folder = tmp_path / "out"
    folder.mkdir()
    file = folder / "session.jsonl"
    file.write_text("what was there before", encoding="utf-8")
    result = mainspring("log", "export", session_id, "-o", str(file))
    assert (result.returncode, result.stdout) == (0, "")
    assert file.read_text(encoding="utf-8") == mainspring("log", "export", session_id).stdout
    assert list(folder.iterdir()) == [file]
    assert file.stat().st_mode & 0o077 == 0


def test_a_failed_export_leaves_the_file_unchanged(mainspring: Run, session_id: str, store: Path):
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("update event set body = '{' where seq = 5")
    db.close()
    file = store.parent / "session.jsonl"
    file.write_text("what was there before", encoding="utf-8")
    assert mainspring("log", "export", session_id, "-o", str(file)).returncode == 1
    assert file.read_text(encoding="utf-8") == "what was there before"
    assert not [item for item in store.parent.iterdir() if item.name.startswith(".")]


def test_import_reports_the_line_number_of_an_error(mainspring: Run, session_id: str, place: Path):
    exported = mainspring("log", "export", session_id).stdout.splitlines(keepends=True)
    (place / "bad.jsonl").write_text("".join([*exported[:2], "nonsense\n"]), encoding="utf-8")
    result = mainspring("log", "import", "bad.jsonl", "--store", "new.db")
    assert result.returncode == 1
    assert "line 3" in result.stderr
    missing = mainspring("log", "import", "none.jsonl")
    assert missing.stderr.startswith("error: none.jsonl: No such file")


def test_rm_without_a_terminal_needs_yes(mainspring: Run, session_id: str):
    refused = mainspring("log", "rm", session_id, stdin="y\n")
    assert refused.returncode == 1
    assert "--yes" in refused.stderr
    assert list_sessions(mainspring) == [session_id]
    done = mainspring("log", "rm", session_id, "--yes")
    assert (done.returncode, done.stdout) == (0, f"deleted {session_id}\n")
    assert list_sessions(mainspring) == []


def test_rm_of_a_session_with_forks_needs_cascade(mainspring: Run, session_id: str, fork_id: str):
    refused = mainspring("log", "rm", session_id, "--yes")
    assert refused.returncode == 1
    assert "--cascade" in refused.stderr
    done = mainspring("log", "rm", session_id, "--yes", "--cascade", "--json")
    assert done.returncode == 0, done.stderr
    deleted = [json.loads(line)["deleted"] for line in done.stdout.splitlines()]
    assert sorted(deleted) == sorted([session_id, fork_id])
    assert list_sessions(mainspring) == []


def test_expire_deletes_only_old_sessions(mainspring: Run, session_id: str, store: Path):
    young = mainspring("log", "expire", "--older-than", "30d", "--yes")
    assert (young.returncode, young.stdout) == (0, "")
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("update session set updated = updated - ?", (31 * 86_400_000_000,))
    db.close()
    assert mainspring("log", "expire", "--older-than", "30d").returncode == 1
    old = mainspring("log", "expire", "--older-than", "30d", "--yes")
    assert (old.returncode, old.stdout) == (0, f"deleted {session_id}\n")


@pytest.mark.parametrize("time", ["soon", "0d", "-3d", "3", "3y"])
def test_expire_refuses_an_invalid_age(mainspring: Run, time: str):
    result = mainspring("log", "expire", "--older-than", time, "--yes")
    assert result.returncode == 2
    assert "30d" in result.stderr
