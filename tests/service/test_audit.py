"""The audit: one chain a tenant, whole whoever writes to it at once."""

import hashlib
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.at_once import at_once
from tests.service.fixed_clock import Time

from mainspring.core.errors import StoreUnavailable
from mainspring.edges.api.app import HandledRequest
from mainspring.edges.api.request_observers import AuditObserver
from mainspring.edges.api.route import ApiCall, Method, Route
from mainspring.log.records import RecordChange, RecordQuery, RecordRow, Records, Remove, Replace
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.audit import Audit, AuditAction, AuditEntry, delete_expired_data
from mainspring.service.access.principal import Principal
from mainspring.service.access.tenants import CreateTenant, Tenants
from mainspring.service.storage.repository import ListQuery

ACT = AuditAction(operation="post /v1/agents", status=200)


async def add_entries(audit: Audit, times: int, tenant: str = "acme") -> None:
    for number in range(times):
        await audit.note(tenant, msgspec.structs.replace(ACT, request_id=f"req_{number}"))


async def entries(audit: Audit, tenant: str = "acme") -> list[AuditEntry]:
    async with aclosing(audit.entries(tenant)) as found:
        return [entry async for entry in found]


async def rewrite_entry(
    records: Records, seq: int, change: Callable[[RecordRow], RecordChange]
) -> None:
    record = await records.named("audit", f"{seq:015d}", tenant="acme")
    await records.write(change(record))


async def test_entries_are_numbered_and_chained_by_hash(records: Records):
    audit = Audit(records)
    await add_entries(audit, 3)
    await add_entries(audit, 1, "rival")
    found = await entries(audit)
    assert [item.seq for item in found] == [1, 2, 3]
    assert found[0].previous == "0" * 64
    assert [item.previous for item in found[1:]] == [item.hash for item in found[:2]]
    verified = await audit.verify("acme")
    assert (verified.ok, verified.entries, verified.head) == (True, 3, found[-1].hash)
    assert [item.seq for item in (await audit.page("acme", ListQuery())).data] == [3, 2, 1]


async def test_several_processes_write_one_chain_without_gaps(records: Records):
    processes = [Audit(records) for _ in range(4)]
    acts = (msgspec.structs.replace(ACT, request_id=f"req_{number}") for number in range(100))
    await at_once(lambda item: processes[item[0] % 4].note("acme", item[1]), enumerate(acts))
    verified = await processes[0].verify("acme")
    assert (verified.problems, verified.last_seq) == ((), 100)
    assert len({entry.request_id for entry in await entries(processes[0])}) == 100


async def test_a_clock_that_goes_back_does_not_break_the_order(records: Records):
    time = Time()
    audit = Audit(records, clock=time.now)
    for _ in range(3):
        await audit.note("acme", ACT)
        time.pass_(-60)
    await Audit(records, clock=time.now).note("acme", ACT)
    found = await entries(audit)
    assert [item.seq for item in found] == [1, 2, 3, 4]
    assert [item.time for item in found] == sorted(item.time for item in found)


async def test_a_changed_entry_is_detected(records: Records):
    audit = Audit(records)
    await add_entries(audit, 3)

    def change(record: RecordRow) -> RecordChange:
        return Replace(
            row=replace(record, body=record.body.replace(b'"status":200', b'"status":403'))
        )

    await rewrite_entry(records, 2, change)
    assert (await audit.verify("acme")).problems == ("entry 2 was changed",)


async def test_a_changed_entry_with_a_new_hash_is_detected_by_the_next_entry(records: Records):
    audit = Audit(records)
    await add_entries(audit, 3)
    [_, second, _] = await entries(audit)

    def change(record: RecordRow) -> RecordChange:
        other = msgspec.structs.replace(second, status=403, hash="")
        told = msgspec.json.encode(other, order="sorted")
        digest = hashlib.sha256(told).hexdigest()
        whole = msgspec.structs.replace(other, hash=digest)
        return Replace(row=replace(record, body=msgspec.json.encode(whole)))

    await rewrite_entry(records, 2, change)
    assert (await audit.verify("acme")).problems == ("entry 3 does not continue entry 2",)


async def test_a_removed_entry_is_detected(records: Records):
    audit = Audit(records)
    await add_entries(audit, 3)
    await rewrite_entry(records, 2, lambda record: Remove(row=record))
    assert (await audit.verify("acme")).problems == (
        "entry 3 follows 1: the entries between them are missing",
    )


async def test_a_truncated_log_is_detected_with_a_saved_head_hash(records: Records):
    audit = Audit(records)
    await add_entries(audit, 3)
    head = (await audit.verify("acme")).head
    await add_entries(audit, 1)
    assert (await audit.verify("acme", head=head)).ok
    for seq in (4, 3):
        await rewrite_entry(records, seq, lambda record: Remove(row=record))
    assert (await audit.verify("acme")).ok
    assert not (await audit.verify("acme", head=head)).ok


async def test_old_entries_are_pruned_and_the_rest_still_verifies(records: Records):
    time = Time()
    audit = Audit(records, clock=time.now)
    await add_entries(audit, 5)
    time.pass_(86400)
    await add_entries(audit, 2)
    assert await audit.prune("acme", keep=timedelta(hours=1)) == 5
    verified = await audit.verify("acme")
    assert (verified.problems, verified.entries, verified.last_seq) == ((), 2, 7)
    time.pass_(86400)
    assert await audit.prune("acme", keep=timedelta(hours=1)) == 2
    await add_entries(Audit(records, clock=time.now), 1)
    verified = await audit.verify("acme")
    assert (verified.problems, verified.entries, verified.last_seq) == ((), 1, 8)


async def _handle(_call: ApiCall[object, object]) -> None:
    raise NotImplementedError


POST = Route(method="POST", path="/v1/agents/{agent_id}", handle=_handle, summary="")
HEARTBEAT = replace(POST, path="/v1/environments/{environment_id}/work/{work_id}/heartbeat")
WORKER = Principal(tenant="acme", key_id="key_2", role="user", environment_id="env_1")


def handled_request(method: Method = "POST", status: int = 200) -> HandledRequest:
    return HandledRequest(
        route=replace(POST, method=method),
        who=Principal(tenant="acme", key_id="key_1", role="admin", name="ci"),
        path={"agent_id": "agent_1"},
        status=status,
        seconds=0.0,
        request_id="req_1",
    )


@pytest.mark.parametrize(
    ("asked", "is_noted"),
    [
        (handled_request(), True),
        (handled_request(status=404), True),
        (handled_request("GET"), False),
        (handled_request("GET", 403), True),
        (handled_request("GET", 404), False),
        (replace(handled_request("GET", 401), who=None), True),
        (handled_request(status=429), False),
        (replace(handled_request(status=404), route=None), False),
        (replace(handled_request(), who=WORKER), True),
        (replace(handled_request(), route=HEARTBEAT, who=WORKER), False),
        (replace(handled_request(status=403), who=WORKER), True),
    ],
)
async def test_only_changes_and_refusals_are_audited(
    tmp_path: Path, asked: HandledRequest, is_noted: bool
):
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        await AuditObserver(Audit(store.records))(asked)
        assert await store.records.count(RecordQuery(kind="audit")) == is_noted


async def test_unauthenticated_requests_cannot_fill_the_audit_log(tmp_path: Path):
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        witness = AuditObserver(Audit(store.records), monotonic=lambda: 5.0)
        for _ in range(100):
            await witness(replace(handled_request(status=401), who=None))
        assert await store.records.count(RecordQuery(kind="audit")) == 20


async def test_an_entry_that_cannot_be_stored_is_logged_and_raises_an_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    class Full:
        async def list(self, wanted: RecordQuery) -> list[RecordRow]:
            raise StoreUnavailable(f"no {wanted.kind}")

    alarms: list[int] = []
    audit = Audit(Full())  # pyright: ignore[reportArgumentType]
    witness = AuditObserver(audit, alarm=lambda: alarms.append(1))
    with caplog.at_level(logging.ERROR):
        await witness(handled_request())
    assert alarms == [1]
    assert "post /v1/agents/{agent_id}" in caplog.text
    assert "key_1" in caplog.text


async def test_the_daily_task_prunes_old_entries_of_every_tenant(records: Records):
    time = Time()
    tenants = Tenants(records)
    for tenant in ("acme", "rival"):
        await tenants.create(CreateTenant(id=tenant))
    audit = Audit(records, clock=time.now)
    for tenant in ("", "acme", "rival"):
        await add_entries(audit, 2, tenant)
    time.pass_(100 * 86400)
    await add_entries(audit, 1)
    await delete_expired_data(records, keep_audit=None, clock=time.now)
    assert await records.count(RecordQuery(kind="audit")) == 7
    await at_once(
        lambda _: delete_expired_data(records, keep_audit=timedelta(90), clock=time.now), range(3)
    )
    assert await records.count(RecordQuery(kind="audit")) == 1
    assert (await audit.verify("acme")).ok
