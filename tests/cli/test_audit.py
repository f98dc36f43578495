"""`mainspring audit`."""

import json
import os
import pwd
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.fork_server import Run


def test_cli_operations_are_in_the_audit_log_without_secrets(mainspring: Run):
    made = json.loads(mainspring("keys", "create", "ci", "--json", USER="olga").stdout)
    mainspring("keys", "revoke", made["id"], USER="olga")
    listed = mainspring("audit", "ls")
    assert listed.returncode == 0, listed.stderr
    assert "cli keys revoke" in listed.stdout.splitlines()[1]
    assert pwd.getpwuid(os.getuid()).pw_name in listed.stdout  # not what USER says
    exported = mainspring("audit", "export").stdout
    assert made["key"] not in exported
    entries = [json.loads(line) for line in exported.splitlines()]
    assert [(entry["seq"], entry["operation"]) for entry in entries] == [
        (1, "cli keys create"),
        (2, "cli keys revoke"),
    ]
    assert {entry["made"] for entry in entries} == {made["id"]}


def test_audit_verify_detects_a_forged_entry_and_a_truncated_log(mainspring: Run, store: Path):
    for name in ("a", "b", "c"):
        mainspring("keys", "create", name)
    verified = mainspring("audit", "verify", "--json")
    assert verified.returncode == 0, verified.stderr
    head = json.loads(verified.stdout)["head"]
    assert mainspring("audit", "verify", "--head", head).returncode == 0
    forge(store, swap_sql("200", "403"), seq=2)
    found = mainspring("audit", "verify")
    assert found.returncode == 1
    assert "the audit" in found.stderr
    assert "was not written by this installation" in found.stderr
    forge(store, swap_sql("403", "200"), seq=2)
    assert mainspring("audit", "verify").returncode == 0
    forge(store, "delete from record", seq=3)
    assert mainspring("audit", "verify").returncode == 0
    assert mainspring("audit", "verify", "--head", head).returncode == 1


def test_audit_prune_takes_an_age_and_refuses_an_invalid_one(mainspring: Run):
    mainspring("keys", "create", "a")
    pruned = mainspring("audit", "prune", "--older-than", "30d", "--json")
    assert json.loads(pruned.stdout) == {"tenant_id": "default", "removed": 0}
    assert mainspring("audit", "prune", "--older-than", "soon").returncode == 2


def swap_sql(old: str, new: str) -> str:
    changed = f"replace(cast(body as text), '\"status\":{old}', '\"status\":{new}')"
    return f"update record set body = cast({changed} as blob)"


def forge(store: Path, statement: str, *, seq: int) -> None:
    with closing(sqlite3.connect(store)) as database, database:
        condition = "where kind = 'audit' and tenant = 'default' and name = ?"
        assert database.execute(f"{statement} {condition}", (f"{seq:015d}",)).rowcount == 1
    database.close()
