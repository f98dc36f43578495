"""Keys: shown once, kept as a hash, never mightier than who makes them."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.at_once import at_once
from tests.service.fixed_clock import NOON, Time, person

from mainspring.core.errors import Forbidden, InvalidInput, Unauthenticated
from mainspring.log.records import RecordQuery, Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.api_keys import CreateKey, Keys, digest_of, ensure_first_key
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import ROOT_TENANT, Tenants

STRONG = "kJ3-9fQz_x7Lw2VbN8sTq4RmY6HcD1Ge"


@pytest.fixture
async def records(tmp_path: Path) -> AsyncGenerator[Records]:
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        yield store.records


def principal_of(key_id: str, tenant: str = "acme") -> Principal:
    return Principal(tenant=tenant, key_id=key_id, role="admin", name="a key")


async def test_a_key_is_found_by_the_hash_of_its_secret_and_not_stored(
    records: Records, tmp_path: Path
):
    keys = Keys(records)
    made = await keys.create(person(), CreateKey(name="ci", role="operator"))
    assert made.key.startswith("msk_")
    assert len(made.key) == 4 + 43
    found = await keys.find(digest_of(made.key))
    assert (found.id, found.tenant_id, found.role) == (made.id, "acme", "operator")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert made.id.encode() in kept
    assert made.key.encode() not in kept


async def test_a_hash_that_matches_only_in_its_first_half_is_refused(records: Records):
    keys = Keys(records)
    made = await keys.create(person(), CreateKey(name="ci"))
    forged = digest_of(made.key)[:32] + "0" * 32
    with pytest.raises(Unauthenticated):
        await keys.find(forged)


async def test_a_key_that_expires_creates_only_keys_that_expire_no_later(records: Records):
    keys = Keys(records, clock=lambda: NOON)
    soon = NOON + timedelta(days=1)
    made = await keys.create(person(), CreateKey(name="n", role="admin", expires_at=soon))
    for expires in (None, soon + timedelta(seconds=1)):
        with pytest.raises(Forbidden, match="expires_at"):
            await keys.create(principal_of(made.id), CreateKey(name="m", expires_at=expires))
    child = await keys.create(
        principal_of(made.id), CreateKey(name="m", role="admin", expires_at=soon)
    )
    assert child.created_by == made.id


async def test_the_last_use_is_recorded_to_the_hour(records: Records):
    time = Time()
    keys = Keys(records, clock=time.now)
    made = await keys.create(person(), CreateKey(name="ci"))
    await keys.note_use(made)
    first = await keys.get("acme", made.id)
    assert first.last_used_at == NOON
    time.pass_(1800)
    await keys.note_use(first)
    assert (await keys.get("acme", made.id)).last_used_at == NOON
    time.pass_(1800)
    await keys.note_use(first)
    assert (await keys.get("acme", made.id)).last_used_at == NOON + timedelta(hours=1)


async def test_the_first_start_creates_tenant_and_admin_key_and_the_second_nothing(
    records: Records,
):
    secret = await ensure_first_key(records)
    assert secret is not None
    key = await Keys(records).find(digest_of(secret))
    assert (key.tenant_id, key.role) == (ROOT_TENANT, "admin")
    assert (await Tenants(records).get(ROOT_TENANT)).disabled_at is None
    assert await ensure_first_key(records) is None
    await Keys(records).revoke(ROOT_TENANT, key.id)
    assert await ensure_first_key(records) is None


async def test_of_concurrent_starts_only_one_creates_the_key(records: Records):
    made = await at_once(lambda _: ensure_first_key(records), range(8))
    assert made.count(None) == 7
    assert await records.count(RecordQuery(kind="api_key")) == 1


async def test_a_root_tenant_without_keys_gets_its_first_key(records: Records):
    await Tenants(records).ensure_root()
    assert await ensure_first_key(records) is not None


async def test_a_chosen_key_is_adopted_and_the_previous_one_revoked(records: Records):
    assert await ensure_first_key(records, adopted=STRONG) is None
    assert await ensure_first_key(records, adopted=STRONG) is None
    keys = Keys(records)
    assert (await keys.find(digest_of(STRONG))).revoked_at is None
    await ensure_first_key(records, adopted=STRONG[::-1])
    assert (await keys.find(digest_of(STRONG))).revoked_at is not None
    with pytest.raises(InvalidInput, match="revoked"):
        await ensure_first_key(records, adopted=STRONG)


@pytest.mark.parametrize(
    "weak", ["", "short", "a" * 40, "secret secret secret secret secret 1", "ö" * 40]
)
async def test_a_weak_key_is_not_adopted(records: Records, weak: str):
    with pytest.raises(InvalidInput, match="MAINSPRING_ADMIN_KEY"):
        await ensure_first_key(records, adopted=weak)
    assert await records.count(RecordQuery(kind="api_key")) == 0
