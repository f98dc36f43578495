"""The log under kill -9. See `tests.crash` for what is done and what is checked."""

from pathlib import Path

import pytest
from tests import crash

DEFECTS = "tests.crash.defects"


def summary(report: crash.Report) -> str:
    return "\n".join(f"{found.point}: {found.kind} {found.what}" for found in report.violations)


async def test_no_acknowledged_write_to_sqlite_is_lost_by_kills(tmp_path: Path):
    report = await crash.run(str(tmp_path / "log.db"), points=72, seed=1)
    assert report.ok, summary(report)
    assert (report.points, list(tmp_path.iterdir())) == (72, [])
    assert report.acknowledged > 400
    assert {"append", "hold", "submit", "fork"} <= report.in_flight.keys()
    died_before = " ".join(report.statements)
    # about eight of the 72 die in a write, but no sample has every statement
    assert any(word in died_before for word in ("begin", "insert into", "update", "commit"))


async def test_no_acknowledged_write_to_postgres_is_lost_by_kills(postgres_url: str):
    report = await crash.run(postgres_url, points=18, seed=1)
    assert report.ok, summary(report)
    assert report.points == 18
    assert report.acknowledged > 150


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("acknowledges_early", "lost"),
        # whoever follows waits for the row
        pytest.param("drops_a_row", "broken_chain", marks=pytest.mark.slow),
        ("tears_batches", "torn_batch"),
        ("ignores_the_epoch", "fenced_append"),
        ("shares_leases", "double_lease"),
        ("forgets_clients", "duplicate"),
    ],
)
async def test_a_store_with_a_planted_defect_is_detected(tmp_path: Path, defect: str, found: str):
    # a round ends with whatever it finds first: several rounds, so that chance decides nothing
    kinds: set[str] = set()
    for start in range(0, 6 * crash.ROUND, crash.ROUND):
        options = crash.Options(child_opener=f"{DEFECTS}:{defect}", start=start)
        store = tmp_path / str(start) / "log.db"
        store.parent.mkdir()
        report = await crash.run(str(store), points=crash.ROUND, seed=1, options=options)
        kinds |= {violation.kind for violation in report.violations}
        if found in kinds:
            return
    raise AssertionError(kinds)


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_nothing_is_lost_in_ten_thousand_crashes(tmp_path: Path, postgres_url: str):
    sqlite = await crash.run(str(tmp_path / "log.db"), points=8000, seed=10, lanes=2)
    assert sqlite.ok, summary(sqlite)
    assert {"append", "hold", "submit", "fold", "fork", "create"} <= sqlite.in_flight.keys()
    died_before = " ".join(sqlite.statements)
    assert all(item in died_before for item in ("begin", "insert into event", "update", "commit"))
    postgres = await crash.run(postgres_url, points=2000, seed=10, lanes=2)
    assert postgres.ok, summary(postgres)
    assert sqlite.points + postgres.points == 10_000
