"""Our own attack list against each backend: nothing on it may win. And with no sandbox the harmless
part of it must win, or the list has gone stale."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.abilities import require_bubblewrap, require_isolation
from tests.sandbox.attacks.attack import PRELUDE
from tests.sandbox.attacks.attack_run import ATTACKS, Outcome

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks on Linux sandboxes")

ROOT = Path(__file__).parents[2]
ORDINARY_UID = 1500
PLANTED = "planted-7f3c1d0a9b"
SECONDS = 110

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def run_attacks(
    backend: str, python: str = sys.executable, uid: int | None = None, only: str = ""
) -> Outcome:
    done = subprocess.run(
        [python, "-m", "tests.sandbox.attacks.attack_run", backend, PLANTED, only],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return msgspec.json.decode(done.stdout, type=Outcome)


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, sys.path)]
    return {"PLANTED": PLANTED, "PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"}


def python_for(uid: int) -> str:
    """One that somebody else may run: ours may be in a home folder."""
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        command = [python, "-c", "import tests.sandbox.attacks.attack_run"]
        try:
            subprocess.run(
                command,
                env=environment(),
                cwd=ROOT,
                user=uid,
                group=uid,
                extra_groups=[],
                check=True,
                capture_output=True,
                timeout=30,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.skip(f"uid {uid} can run no Python that has what we need")


def test_there_are_many_attacks_with_unique_names():
    names = [attack.name for attack in ATTACKS]
    assert len(names) == len(set(names)) >= 180
    assert sum(attack.harmless for attack in ATTACKS) >= 100


def test_every_attack_is_a_valid_program():
    for attack in ATTACKS:
        assert bool(attack.bash) != bool(attack.python), attack.name
        if attack.python:
            compile(PRELUDE + attack.python, attack.name, "exec")
        else:
            subprocess.run(["bash", "-n", "-c", attack.bash], check=True)


@pytest.mark.parametrize(
    ("only", "least"), [("outside", 10), pytest.param("", 100, marks=pytest.mark.slow)]
)
def test_without_a_sandbox_every_harmless_attack_succeeds(only: str, least: int):
    outcome = run_attacks("nothing", only=only)
    assert set(outcome.ran) == set(outcome.won)
    assert len(outcome.won) >= least


def test_no_attack_succeeds_against_the_default_backend():
    backend = require_isolation()
    outcome = run_attacks("default")
    assert outcome.box == f"{backend.name} (isolated)"
    assert (outcome.won, len(outcome.ran)) == ([], len(ATTACKS))


@needs_root
@pytest.mark.parametrize("only", ["outside", pytest.param("", marks=pytest.mark.slow)])
def test_no_attack_succeeds_against_the_default_backend_of_an_ordinary_user(only: str):
    require_bubblewrap()
    outcome = run_attacks("default", python_for(ORDINARY_UID), ORDINARY_UID, only)
    assert outcome.box == "bubblewrap (isolated)"
    assert (outcome.won, outcome.ran) == ([], [item.name for item in ATTACKS if only in item.name])


@pytest.mark.slow
@needs_root
def test_no_attack_succeeds_against_landlock_with_its_own_uid():
    outcome = run_attacks("landlock")
    assert outcome.box == "landlock (isolated)"
    assert (outcome.won, len(outcome.ran)) == ([], len(ATTACKS))
