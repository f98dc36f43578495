"""`mainspring keys`, `tenants`, `halt` and `resume`."""

import json
from pathlib import Path

import anyio
from tests.abilities import require_tenants
from tests.api.guarded_api import add_record
from tests.fork_server import Run
from tests.keys import KEY

from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.api_keys import Key, Keys, digest_of


def key_of(store: Path, secret: str) -> Key:
    async def find() -> Key:
        async with open_sqlite(store, key=KEY) as opened:
            return await Keys(opened.records).find(digest_of(secret))

    return anyio.run(find)


def put(store: Path, kind: str, id_: str) -> None:
    async def write() -> None:
        async with open_sqlite(store, key=KEY) as opened:
            await add_record(opened.records, kind, id_)

    anyio.run(write)


def test_a_key_is_created_shown_once_listed_and_revoked(mainspring: Run, store: Path):
    made = mainspring("keys", "create", "ci", "--role", "operator", "--daily-budget", "2.50")
    assert made.returncode == 0, made.stderr
    [secret] = made.stdout.splitlines()
    assert secret.startswith("msk_")
    key = key_of(store, secret)
    assert (key.tenant_id, key.role, str(key.daily_budget_usd)) == ("default", "operator", "2.50")
    listed = mainspring("keys", "ls")
    assert key.id in listed.stdout
    assert secret not in listed.stdout
    revoked = mainspring("keys", "revoke", secret)
    assert revoked.returncode == 0, revoked.stderr
    assert secret not in revoked.stdout
    assert key_of(store, secret).revoked_at is not None
    assert key.id not in mainspring("keys", "ls").stdout
    assert key.id in mainspring("keys", "ls", "--all").stdout


def test_json_output_contains_the_secret_only_at_creation(mainspring: Run, store: Path):
    put(store, "environment", "env_1")
    limits = ("--environment", "env_1", "--expires-in", "30d")
    made = mainspring("keys", "create", "w", *limits, "--json")
    key = json.loads(made.stdout)
    assert key["environment_id"] == "env_1"
    assert key["expires_at"] is not None
    listed = json.loads(mainspring("keys", "ls", "--json").stdout)
    assert "key" not in listed
    assert listed["id"] == key["id"]


def test_invalid_key_tenant_and_halt_commands_are_refused_with_a_reason(mainspring: Run):
    nowhere = mainspring("keys", "create", "x", "--tenant", "nowhere")
    assert nowhere.returncode == 1
    assert "there is no tenant nowhere" in nowhere.stderr
    assert "`mainspring serve` creates `default`" in nowhere.stderr
    assert mainspring("keys", "create", "x", "--role", "god").returncode == 2
    assert mainspring("keys", "create", "x", "--daily-budget", "lots").returncode == 2
    assert "there is no api key" in mainspring("keys", "revoke", "key_none").stderr
    wrong = mainspring("tenants", "create", "Not An Id")
    assert wrong.returncode == 1
    assert "lower-case letters" in wrong.stderr
    assert mainspring("resume").returncode == 2
    assert mainspring("halt", "--all", "--tenant", "acme").returncode == 2


def test_listing_keys_without_a_store_creates_no_store(mainspring: Run, store: Path):
    assert mainspring("keys", "ls").returncode == 1
    assert not store.exists()


def test_tenants_are_created_changed_shown_and_disabled(mainspring: Run):
    require_tenants()
    budgets = ("--daily-budget", "10", "--agent-budget", "*=2", "--agent-budget", "clerk=5")
    assert mainspring("tenants", "create", "acme", *budgets).returncode == 0
    assert mainspring("tenants", "set", "acme", "--rate", "600").returncode == 0
    shown = json.loads(mainspring("tenants", "show", "acme", "--json").stdout)
    assert shown["tenant"]["requests_per_minute"] == 600
    assert shown["tenant"]["agent_daily_budgets_usd"] == {"*": "2", "clerk": "5"}
    assert "budget a day" in mainspring("tenants", "show", "acme").stdout
    assert mainspring("keys", "create", "x", "--tenant", "acme").returncode == 0
    assert mainspring("tenants", "disable", "acme").returncode == 0
    assert "disabled" in mainspring("tenants", "ls").stdout
    assert mainspring("tenants", "enable", "acme").returncode == 0
    assert "disabled" not in mainspring("tenants", "ls").stdout


def test_agents_are_halted_and_resumed(mainspring: Run, store: Path):
    put(store, "agent", "agent_1")
    halted = mainspring("halt", "--agent", "agent_1", "--reason", "it deletes things")
    assert halted.returncode == 0, halted.stderr
    assert mainspring("halt", "--all").returncode == 0
    shown = mainspring("halt").stdout
    assert "agent_1 of default" in shown
    assert "everything" in shown
    assert mainspring("resume", "--all").returncode == 0
    assert mainspring("resume", "--agent", "agent_1").returncode == 0
    assert "nothing is stopped" in mainspring("halt").stderr
    again = mainspring("resume", "--all")
    assert again.returncode == 1
    assert "that is not stopped" in again.stderr


def test_unknown_agents_tenants_and_environments_are_refused(mainspring: Run):
    require_tenants()
    missing = {
        "there is no agent agent_1": ("halt", "--agent", "agent_1"),
        "there is no tenant acme": ("halt", "--tenant", "acme"),
        "there is no environment env_1": ("keys", "create", "x", "--environment", "env_1"),
    }
    for message, command in missing.items():
        refused = mainspring(*command)
        assert (refused.returncode, message in refused.stderr) == (1, True), refused
    assert "nothing is stopped" in mainspring("halt").stderr
    assert mainspring("tenants", "create", "acme").returncode == 0
    assert "there is no" not in mainspring("halt", "--tenant", "acme").stderr
