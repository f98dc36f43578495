"""`mainspring doctor` on this machine, whatever it can do."""

import json
import os
from pathlib import Path

from tests.fork_server import Run


def test_doctor_checks_everything_and_changes_nothing(mainspring: Run, place: Path):
    result = mainspring("doctor")
    assert result.returncode == 0, result.stdout
    for name in ("python", "platform", "disk", "sqlite", "sqlite fts5", "store", "ripgrep", "git"):
        assert any(line[9:].startswith(name) for line in result.stdout.splitlines()), name
    assert result.stdout.splitlines()[-1].startswith("sessions can run here")
    assert list(place.iterdir()) == []


def test_every_finding_has_a_consequence_and_every_problem_a_fix(mainspring: Run):
    report = json.loads(mainspring("doctor", "--json").stdout)
    assert report["ok"]
    for finding in report["findings"]:
        assert finding["consequence"]
        assert finding["status"] == "ok" or finding["fix"], finding


def test_keys_are_reported_by_name_never_by_value(mainspring: Run):
    ran = mainspring("doctor", "--json", ANTHROPIC_API_KEY="sk-secret")
    keys = json.loads(ran.stdout)["keys"]
    assert keys["ANTHROPIC_API_KEY"]
    assert not keys["OPENAI_API_KEY"]
    assert "sk-secret" not in ran.stdout + mainspring("doctor", OPENAI_API_KEY="sk-secret").stdout


def test_doctor_counts_the_sessions_of_the_store(mainspring: Run, session_id: str, store: Path):
    del session_id
    assert f"{store} (1 session, " in mainspring("doctor").stdout


def test_doctor_fails_for_a_store_that_is_not_a_database(mainspring: Run, place: Path):
    (place / "notes.txt").write_text("not a database, and long enough to be read as one" * 9)
    result = mainspring("doctor", "--store", "notes.txt")
    assert result.returncode == 1
    assert "cannot be read" in result.stdout


def test_doctor_fails_for_a_store_that_cannot_be_created(mainspring: Run):
    place = "/proc/x.db" if os.geteuid() == 0 else "/x.db"  # where even root cannot write
    result = mainspring("doctor", "--store", place, "--json")
    assert result.returncode == 1, result.stdout
    [store] = [load for load in json.loads(result.stdout)["findings"] if load["name"] == "store"]
    assert store["status"] == "missing"


def test_doctor_fails_for_an_unreachable_server_and_hides_the_password(mainspring: Run):
    result = mainspring("doctor", "--store", "postgresql://me:hunter2@127.0.0.1:1/logs")
    assert result.returncode == 1
    assert "postgresql://me@127.0.0.1:1/logs" in result.stdout
    assert "hunter2" not in result.stdout + result.stderr


def test_weak_protection_of_the_operators_files_is_reported(
    mainspring: Run, session_id: str, store: Path
):
    del session_id
    store.chmod(0o644)
    report = json.loads(
        mainspring("doctor", "--json", MAINSPRING_WORKSPACES=str(store.parent)).stdout
    )
    findings = {item["name"]: item for item in report["findings"]}
    assert findings["user"]["status"] == ("warn" if os.geteuid() == 0 else "ok")
    if os.geteuid() != 0:
        assert findings["uid per session"]["status"] == "warn"
    assert findings["private files"]["fix"].startswith(f"chmod 600 {store}")
    assert findings["store's place"]["status"] == "warn"
