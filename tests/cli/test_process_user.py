"""Whom `mainspring serve` and `worker` run as: root only if told so, else another user for good."""

import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.environ import UID, python_of_all
from tests.fork_server import Run
from tests.sandbox.attacks.attack_targets import fresh_root

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="is about what root may not do")
SECONDS = 60


@pytest.fixture
def passable() -> Generator[Path]:
    """A folder that users other than root can reach, unlike pytest's own."""
    root = fresh_root()
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


@needs_root
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_running_as_root_is_refused_before_anything_is_created(
    mainspring: Run, place: Path, command: str
):
    refused = mainspring(command, MAINSPRING_ALLOW_ROOT="")
    assert refused.returncode == 1
    assert "the service does not run as root" in refused.stderr
    assert "--user NAME" in refused.stderr
    assert "--allow-root" in refused.stderr
    assert list(place.iterdir()) == []


@needs_root
@pytest.mark.parametrize(
    ("user", "told"),
    [
        ("root", "that is root"),
        ("0", "that is root"),
        ("no-such-user", "there is no such user"),
        ("99999999999", "there is no such user"),
    ],
)
def test_an_unusable_user_is_reported(mainspring: Run, user: str, told: str):
    refused = mainspring("serve", "--port", "0", "--user", user)
    assert refused.returncode == 1
    assert told in refused.stderr


@needs_root
def test_a_service_that_switched_user_keeps_no_root_privileges(
    passable: Path, environ: dict[str, str]
):
    if (python := python_of_all()) is None:
        pytest.skip("there is no Python here that others may run")
    process = subprocess.Popen(
        [*python, "serve", "--port", "0", "--model", "scripted:demo", "--user", str(UID)],
        cwd=passable,
        env={**environ, "MAINSPRING_ALLOW_ROOT": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "http://" not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        status = Path(f"/proc/{process.pid}/status").read_text()
        [url] = re.findall(r"http://\S+", said)
        with urllib.request.urlopen(f"{url}/healthz", timeout=SECONDS) as answer:
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 0
    for ids in ("Uid", "Gid"):
        assert set(re.findall(rf"^{ids}:\s(.*)$", status, re.M)[0].split()) == {str(UID)}
    assert re.findall(r"^Groups:\s(.*)$", status, re.M)[0].split() == [str(UID)]
    assert re.findall(r"^CapEff:\s0*(.*)$", status, re.M) == [""]
    made = [path for path in passable.rglob("*") if path.is_file() or path.is_dir()]
    assert made
    assert {path.stat().st_uid for path in made} == {UID}
    for path in made:
        assert path.stat().st_mode & 0o066 == 0, path  # 0711 lets others through, and no more


@needs_root
def test_a_store_owned_by_root_is_left_unchanged_and_reported(passable: Path, mainspring: Run):
    (passable / ".mainspring").mkdir(mode=0o700)
    refused = mainspring("serve", "--port", "0", "--user", str(UID), cwd=passable)
    assert refused.returncode == 1
    assert f"chown -R {UID}:{UID} {passable / '.mainspring'}" in refused.stderr
    assert (passable / ".mainspring").stat().st_uid == 0


@needs_root
def test_a_user_who_can_keep_no_key_is_reported_before_anything_is_served(
    passable: Path, mainspring: Run
):
    variables = {"MAINSPRING_VAULT": str(passable / "closed" / "vault.json")}
    refused = mainspring(
        *("serve", "--port", "0", "--user", str(UID)),
        cwd=passable,
        MAINSPRING_VAULT_KEY="",
        **variables,
    )
    assert refused.returncode == 1
    assert f"cannot use {passable / 'closed' / 'vault.key'}" in refused.stderr
    assert "or set MAINSPRING_VAULT_KEY" in refused.stderr
    assert "Permission denied" not in refused.stderr


@needs_root
def test_adopting_the_store_of_another_user_warns_that_their_server_refuses_it(
    place: Path, mainspring: Run
):
    mainspring("run", "hello", "--model", "scripted:demo", MAINSPRING_VAULT_KEY="A" * 43 + "=")
    for path in (place / ".mainspring").iterdir():
        os.chown(path, UID, UID)
    shown = mainspring("adopt")
    assert "not written by this installation: 1 session" in shown.stdout
    assert f"belongs to another user (uid {UID})" in shown.stderr
    assert "belongs to another user" not in mainspring("adopt", "--all", "--json").stdout
