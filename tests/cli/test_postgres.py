"""The command on PostgreSQL: the same, by URL."""

import json
from pathlib import Path

from tests.fork_server import Run


def test_a_session_moves_from_a_file_to_a_server(
    mainspring: Run, session_id: str, postgres_url: str
):
    exported = mainspring("log", "export", session_id).stdout
    imported = mainspring("log", "import", "-", "--store", postgres_url, stdin=exported)
    assert imported.returncode == 0, imported.stderr
    assert session_id in mainspring("log", "ls", MAINSPRING_STORE=postgres_url).stdout
    assert mainspring("log", "export", session_id, "--store", postgres_url).stdout == exported


def test_ls_on_an_empty_server_says_so(mainspring: Run, postgres_url: str):
    result = mainspring("log", "ls", "--store", postgres_url)
    assert (result.returncode, result.stdout) == (0, "")
    assert "no sessions yet in postgresql://" in result.stderr


def test_doctor_checks_the_server(mainspring: Run, postgres_url: str):
    result = mainspring("doctor", "--store", postgres_url, "--json")
    assert result.returncode == 0, result.stdout
    [store] = [load for load in json.loads(result.stdout)["findings"] if load["name"] == "store"]
    assert "(PostgreSQL " in store["found"]


def test_a_missing_driver_is_reported_with_the_install_command(
    mainspring_from_nothing: Run, place: Path
):
    hidden = place / "hidden"
    hidden.mkdir()
    without = "raise ModuleNotFoundError('hidden', name='psycopg')"
    (hidden / "psycopg.py").write_text(without, encoding="utf-8")
    url = "postgresql://localhost/logs"
    result = mainspring_from_nothing("log", "ls", "--store", url, PYTHONPATH=str(hidden))
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "error: the PostgreSQL driver is not installed",
        "hint: pip install 'mainspring[postgres]'",
    ]
    doctor = mainspring_from_nothing("doctor", "--store", url, PYTHONPATH=str(hidden))
    assert doctor.returncode == 1
    assert "fix: pip install 'mainspring[postgres]'" in doctor.stdout
