"""A uid for each session: never that of another, the same until the session is deleted."""

import multiprocessing
from pathlib import Path

import pytest

from mainspring.capabilities.sandbox.backends.session_uids import SessionUids
from mainspring.core.errors import SandboxFailed

CROWDED = range(5000, 5012)


def _claim_all(claims: Path, names: list[str]) -> dict[str, int]:
    uids = SessionUids(uids=CROWDED, claims=claims)
    return {name: uids.uid(name) for name in names}


def test_concurrent_processes_never_give_one_uid_to_two_sessions(tmp_path: Path):
    names = [f"session-{number}" for number in range(len(CROWDED))]
    orders = [names, names[::-1], names[5:] + names[:5]]
    with multiprocessing.get_context("spawn").Pool(len(orders)) as pool:
        answers = pool.starmap(_claim_all, [(tmp_path, order) for order in orders])
    assert answers[0] == answers[1] == answers[2]
    assert set(answers[0].values()) == set(CROWDED)


def test_a_uid_is_kept_until_its_session_is_deleted(tmp_path: Path):
    uids = SessionUids(uids=range(5000, 5002), claims=tmp_path)
    first, second = uids.uid("first"), uids.uid("second")
    with pytest.raises(SandboxFailed, match="no uid is left"):
        uids.uid("third")
    uids.release("first")
    assert uids.uid("second") == second  # although its first choice may be free now
    assert uids.uid("third") == first


def test_a_claims_folder_behind_a_link_is_refused(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "claims").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SandboxFailed, match="not a folder of this user"):
        SessionUids(uids=CROWDED, claims=tmp_path / "claims").uid("session")
