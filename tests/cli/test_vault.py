"""`mainspring vault`."""

import json
from pathlib import Path

import pytest
from tests.cli.terminal import at_terminal
from tests.fork_server import Run

VALUE = "correct-horse-battery-staple-9"


@pytest.fixture
def own(environ: dict[str, str], tmp_path: Path) -> Path:
    """A vault of this test's own."""
    path = tmp_path / "home" / "vault.json"
    environ["MAINSPRING_VAULT"] = str(path)
    return path


def test_a_secret_is_saved_listed_and_removed_and_its_value_never_shown(mainspring: Run, own: Path):
    hosts = ("--host", "api.test", "--host", "*.x.test")
    kept = mainspring("vault", "set", "TOKEN", *hosts, "--json", stdin=VALUE + "\n")
    assert kept.returncode == 0, kept.stderr
    assert json.loads(kept.stdout)["hosts"] == ["*.x.test", "api.test"]
    listed = mainspring("vault", "ls")
    assert listed.stdout.split("\n")[1].startswith("TOKEN  *.x.test, api.test  20")
    [view] = [json.loads(line) for line in mainspring("vault", "ls", "--json").stdout.splitlines()]
    assert set(view) == {"name", "hosts", "created", "updated"}
    assert json.loads(mainspring("vault", "rm", "TOKEN", "--json").stdout) == {"removed": "TOKEN"}
    assert "empty" in mainspring("vault", "ls").stderr
    said = kept.stdout + kept.stderr + listed.stdout + listed.stderr
    assert VALUE not in said
    assert VALUE.encode() not in b"".join(item.read_bytes() for item in own.parent.iterdir())


def test_a_typed_value_is_not_echoed(own: Path, place: Path, environ: dict[str, str]):
    with at_terminal("vault", "set", "TOKEN", cwd=place, env=environ) as terminal:
        terminal.expect("Value of TOKEN:")
        terminal.type(VALUE + "\n")
        terminal.expect("saved TOKEN")
        assert terminal.wait() == 0
        assert VALUE not in terminal.text
    assert own.exists()


def test_a_value_on_the_command_line_is_refused(mainspring: Run, own: Path):
    assert mainspring("vault", "set", "TOKEN", VALUE).returncode == 2
    assert not own.exists()


@pytest.mark.parametrize(
    ("arguments", "stdin", "why"),
    [
        (("set", "not-a-name"), VALUE, "a name has letters"),
        (("set", "TOKEN", "--host", "10.0.0.1"), VALUE, "is not a host name"),
        (("set", "TOKEN"), "", "less than 8"),
        (("rm", "TOKEN"), "", "no 'TOKEN'"),
    ],
)
def test_invalid_vault_commands_are_refused_without_showing_the_value(
    mainspring: Run, own: Path, arguments: tuple[str, ...], stdin: str, why: str
):
    refused = mainspring("vault", *arguments, stdin=stdin)
    assert refused.returncode == 1
    assert why in refused.stderr
    assert VALUE not in refused.stdout + refused.stderr


def test_a_wrong_vault_key_is_refused_by_vault_and_run(mainspring: Run, own: Path):
    mainspring("vault", "set", "TOKEN", stdin=VALUE)
    wrong = {"MAINSPRING_VAULT_KEY": "A" * 43 + "="}
    for command in (("vault", "ls"), ("run", "hello")):
        refused = mainspring(*command, **wrong)
        assert refused.returncode == 1
        assert "the key differs" in refused.stderr
