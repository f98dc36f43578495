"""Nothing in a store that this installation did not write takes effect before it is adopted."""

import json
import sqlite3
from pathlib import Path

import pytest
from tests import fork_server
from tests.cli.conftest import (
    environ,
    mainspring,
    mainspring_from_nothing,
    place,
    store,
    upstream,
)
from tests.cli.upstream import Upstream
from tests.fork_server import Run
from tests.keys import KEY
from tests.trust.foreign_store import ARRIVALS, COMMANDS, READERS, Attacker, prepare

from mainspring.log.provenance import Provenance
from mainspring.log.store import Head

__all__ = [
    "environ",
    "mainspring",
    "mainspring_from_nothing",
    "place",
    "store",
    "upstream",
]  # fixtures


@pytest.fixture
def attacker(tmp_path: Path, environ: dict[str, str], upstream: Upstream) -> Attacker:
    return prepare(tmp_path, environ, upstream)


def _check(
    attacker: Attacker,
    upstream: Upstream,
    place: Path,
    environ: dict[str, str],
    arrival: str,
    commands: dict[str, tuple[str, ...]],
) -> None:
    """Run the commands where the store arrived."""
    path = ARRIVALS[arrival](attacker, place, environ)
    store = () if path is None else ("--store", str(path))
    env = {**environ, **upstream.variables}
    has_records = arrival != "import"
    for name, words in commands.items():
        if not has_records and words[0] in ("serve", "worker", "keys", "deployments"):
            continue  # they would wait for work
        arguments = [word.format(id=attacker.session_id) for word in words]
        result = fork_server.run(*arguments, *store, cwd=place, env=env, stdin="")
        case = f"{arrival}, {name}: {result.returncode} {result.stdout} {result.stderr}"
        assert attacker.fired() == [], case
        assert not upstream.requests, case
        assert not list(place.rglob("rule-canary")), case
        assert not (attacker.folder.parent / "elsewhere/rule-canary").exists(), case
        assert "Traceback" not in result.stderr, case
        if name in COMMANDS:
            assert result.returncode != 0, case
            assert "mainspring adopt" in result.stderr, case


def test_no_canary_of_a_cloned_store_fires(
    attacker: Attacker, upstream: Upstream, place: Path, environ: dict[str, str]
):
    chosen = ("run -c", "run --resume ID", "chat -c", "sessions fork", "serve")
    _check(
        attacker, upstream, place, environ, "git clone", {name: COMMANDS[name] for name in chosen}
    )


@pytest.mark.slow
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_no_canary_fires_whatever_the_way_and_the_command(
    attacker: Attacker, upstream: Upstream, place: Path, environ: dict[str, str], arrival: str
):
    _check(attacker, upstream, place, environ, arrival, COMMANDS | READERS)


@pytest.mark.slow
def test_no_canary_fires_in_a_volume_whose_key_is_gone(
    attacker: Attacker, upstream: Upstream, place: Path, environ: dict[str, str]
):
    env = {**environ, "MAINSPRING_VAULT_KEY": "A" * 43 + "="}
    _check(attacker, upstream, place, env, "copy", COMMANDS | READERS)


def test_an_adopted_session_continues_as_a_conversation_only(
    attacker: Attacker, upstream: Upstream, place: Path, mainspring: Run, environ: dict[str, str]
):
    ARRIVALS["import"](attacker, place, environ)
    shown = mainspring("adopt", attacker.session_id, "--yes", "--json")
    assert shown.returncode == 0, shown.stderr
    effects = json.loads(shown.stdout)
    assert effects["mode"] == "bypassPermissions"
    assert f"touch {attacker.canaries}/hook-Stop" in effects["hooks"]
    assert "Bash(*)" in effects["allow_rules"]
    assert effects["waiting"] == ["user.message"]
    upstream.otherwise = lambda _: ("Here I am.",)
    done = mainspring("run", "--resume", attacker.session_id, "hello", **upstream.variables)
    assert (done.returncode, attacker.fired()) == (0, []), done.stderr
    assert "begin" in json.dumps(upstream.requests[0]["messages"])
    assert "go on" not in json.dumps(upstream.requests[0]["messages"])
    status = mainspring("sessions", "show", attacker.session_id, "--json").stdout
    assert "bypassPermissions" not in status


def test_everything_in_a_store_is_adopted_after_one_question(
    attacker: Attacker, place: Path, mainspring: Run, environ: dict[str, str]
):
    ARRIVALS["copy"](attacker, place, environ)
    listed = mainspring("adopt")
    assert listed.returncode == 1
    assert "1 session" in listed.stdout
    assert "1 deployment" in listed.stdout
    assert mainspring("adopt", "--all").returncode == 1, "there is no terminal for the question"
    assert mainspring("keys", "ls").returncode == 1
    assert mainspring("adopt", "--all", "--yes").returncode == 0
    assert "evil" in mainspring("keys", "ls").stdout
    assert mainspring("adopt").returncode == 0


def test_rows_that_somebody_put_into_ones_own_store_are_noticed(
    mainspring: Run, upstream: Upstream, place: Path, store: Path
):
    """As after a `git pull` of a changed copy: single rows, with everything else unchanged."""
    for _ in range(2):
        assert mainspring("run", "hello", **upstream.variables).returncode == 0
    original = store.read_bytes()

    def refused_after(statement: str, *command: str) -> None:
        store.write_bytes(original)
        with sqlite3.connect(store) as database:
            assert database.execute(statement).rowcount > 0, statement
        database.close()
        before = len(upstream.requests)
        result = mainspring(*command, **upstream.variables)
        assert result.returncode != 0, statement
        assert "mainspring adopt" in result.stderr, (statement, result.stderr)
        assert len(upstream.requests) == before, statement

    go_on = ("run", "--resume", _newest(store), "go on")
    last = "select max(rowid) from event where session_key = 2"
    for statement in (
        "update event set body = replace(body, 'hello', 'other') where session_key = 2",
        f"delete from event where rowid = ({last})",
        "update event set type = 'user.interrupt' where type = 'policy.adopted'",
        "update event set thread_id = 'sthr_other' where seq = 1",
        "update session set mac = (select mac from session where key = 1) where key = 2",
        "update session set mac = null",
        "update session set seq = seq - 1 where key = 2",
    ):
        refused_after(statement, *go_on)


def _newest(store: Path) -> str:
    with sqlite3.connect(store) as database:
        [(session_id,)] = database.execute("select id from session where key = 2").fetchall()
    database.close()
    return str(session_id)


def test_ones_own_export_and_backup_need_no_question(
    mainspring: Run, upstream: Upstream, place: Path, store: Path
):
    assert mainspring("run", "hello", **upstream.variables).returncode == 0
    assert mainspring("keys", "create", "mine").returncode == 0
    assert mainspring("backup", "mine.backup").returncode == 0
    (place / "mine.jsonl").write_text(mainspring("log", "export", _first(store)).stdout)
    session_id = _first(store)
    store.unlink()
    assert mainspring("restore", "mine.backup").returncode == 0
    assert mainspring("run", "-c", "again", **upstream.variables).returncode == 0
    assert "mine" in mainspring("keys", "ls").stdout
    store.unlink()
    assert mainspring("log", "import", "mine.jsonl").returncode == 0
    done = mainspring("run", "--resume", session_id, "again", **upstream.variables)
    assert done.returncode == 0, done.stderr


def test_ones_own_export_of_a_fork_is_own_with_its_parents(
    mainspring: Run, upstream: Upstream, place: Path, store: Path
):
    """The parent went on after the fork, so the export has only its beginning."""
    assert mainspring("run", "hello", **upstream.variables).returncode == 0
    parent = _first(store)
    fork = json.loads(mainspring("sessions", "fork", parent, "--json").stdout)["id"]
    assert mainspring("run", "--resume", parent, "go on", **upstream.variables).returncode == 0
    (place / "fork.jsonl").write_text(mainspring("log", "export", fork).stdout)
    store.unlink()
    assert mainspring("log", "import", "fork.jsonl").returncode == 0
    assert mainspring("adopt").returncode == 0, "nothing is foreign"
    for session_id in (parent, fork):
        done = mainspring("run", "--resume", session_id, "again", **upstream.variables)
        assert done.returncode == 0, done.stderr


def _first(store: Path) -> str:
    with sqlite3.connect(store) as database:
        [(session_id,)] = database.execute("select id from session where key = 1").fetchall()
    database.close()
    return str(session_id)


def test_a_moved_project_continues_in_its_new_folder(
    mainspring: Run, upstream: Upstream, place: Path
):
    assert mainspring("run", "hello", **upstream.variables).returncode == 0
    moved = place.rename(place.with_name("moved"))
    done = mainspring("run", "-c", "where am I", cwd=moved, **upstream.variables)
    assert done.returncode == 0, done.stderr
    assert f"the session continues in {moved}" in done.stderr
    assert str(moved) in json.dumps(upstream.requests[-1])


def test_a_renamed_user_or_another_machine_with_the_same_home_needs_no_question(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str]
):
    assert mainspring("run", "hello", **upstream.variables).returncode == 0
    assert mainspring("keys", "create", "mine").returncode == 0
    home = Path(environ["HOME"])
    moved = place.rename(place.with_name("on-another-disk"))
    renamed = home.rename(home.with_name("renamed"))
    now = {**upstream.variables, "HOME": str(renamed), "USER": "renamed", "LOGNAME": "renamed"}
    done = mainspring("run", "-c", "again", cwd=moved, **now)
    assert done.returncode == 0, done.stderr
    assert "mine" in mainspring("keys", "ls", cwd=moved, **now).stdout
    assert mainspring("adopt", cwd=moved, **now).returncode == 0


def test_without_a_place_for_its_key_a_process_trusts_only_itself(
    mainspring_from_nothing: Run, mainspring: Run, upstream: Upstream, tmp_path: Path
):
    broken = {**upstream.variables, "MAINSPRING_VAULT": str(tmp_path / "none/vault.json")}
    (tmp_path / "none").write_text("no folder")
    done = mainspring_from_nothing("run", "hello", **broken)
    assert done.returncode == 0, done.stderr
    assert "no key can be kept" in done.stderr
    again = mainspring_from_nothing("run", "-c", "hello", **broken)
    assert again.returncode != 0
    assert "mainspring adopt" in again.stderr


def test_macs_of_one_kind_or_session_are_none_of_another() -> None:
    provenance, other, one = Provenance(KEY), Provenance(b"x" * 32), Head(1, b"1" * 32)
    from_log = provenance.log_mac("a", one)
    assert from_log != provenance.log_mac("b", one)
    assert from_log != provenance.log_mac("a", Head(2, one.hash))
    assert from_log != other.log_mac("a", one)
