"""Daily budgets over the counters of a store: shared by all workers, never exceeded."""

from decimal import Decimal
from pathlib import Path

import pytest
from tests.at_once import at_once
from tests.runtime.test_sessions import ExpensiveModels
from tests.service.fixed_clock import Time, person

from mainspring import Agent, RunResult, open_runtime
from mainspring.harness.budget import Charge
from mainspring.log.records import Records
from mainspring.service.access.api_keys import CreateKey, Keys
from mainspring.service.access.budget_ledger import LIMIT_SECONDS, DailyBudgetLedger
from mainspring.service.access.tenants import CreateTenant, Tenants, UpdateTenant
from mainspring.testing import Scripted, says


@pytest.fixture
def time() -> Time:
    return Time()


def ledger_of(records: Records, time: Time) -> DailyBudgetLedger:
    return DailyBudgetLedger(records, clock=time.now, monotonic=time.monotonic)


def charge(number: int, cost: str, **payers: str) -> Charge:
    return Charge(reservation_id=f"rsrv_{number}", cost_usd=Decimal(cost), **payers)


async def test_a_reservation_counts_until_it_is_settled(records: Records, time: Time):
    await Tenants(records).create(CreateTenant(id="acme", daily_budget_usd=Decimal("1.00")))
    ledger = ledger_of(records, time)
    assert await ledger.reserve(charge(1, "0.60", tenant="acme")) is None
    assert await ledger.reserve(charge(1, "0.60", tenant="acme")) is None  # the same again
    refused = await ledger.reserve(charge(2, "0.50", tenant="acme"))
    assert refused == (
        "tenant acme has used 0.60 of today's 1.00 US dollars, and the next call may cost 0.50"
    )
    await ledger.settle("rsrv_1", Decimal("0.10"))
    assert await ledger.reserve(charge(2, "0.50", tenant="acme")) is None
    assert await ledger.spent_usd("acme", "tenant", "acme") == Decimal("0.60")
    await ledger.settle("rsrv_2", Decimal(0))
    await ledger.settle("rsrv_2", Decimal(5))  # known no more
    assert await ledger.spent_usd("acme", "tenant", "acme") == Decimal("0.10")


async def test_limits_of_key_agent_and_tenant_are_reserved_together(records: Records, time: Time):
    await Tenants(records).create(
        CreateTenant(
            id="acme",
            daily_budget_usd=Decimal(10),
            agent_daily_budgets_usd={"clerk": Decimal(2), "*": Decimal(3)},
        )
    )
    key = await Keys(records).create(person(), CreateKey(name="ci", daily_budget_usd=Decimal(1)))
    ledger = ledger_of(records, time)
    everybody = {"agent": "clerk", "user": key.id, "tenant": "acme"}
    refused = await ledger.reserve(charge(1, "1.50", **everybody))
    assert refused is not None
    assert refused.startswith(f"key {key.id}")
    refused = await ledger.reserve(charge(2, "2.50", agent="clerk", tenant="acme"))
    assert refused is not None
    assert refused.startswith("agent clerk")
    assert await ledger.reserve(charge(3, "2.50", agent="cook", tenant="acme")) is None
    assert await ledger.spent_usd("acme", "user", key.id) == 0
    assert await ledger.spent_usd("acme", "agent", "clerk") == 0
    assert await ledger.spent_usd("acme", "tenant", "acme") == Decimal("2.50")


async def test_agents_with_one_name_in_two_tenants_have_separate_budgets(
    records: Records, time: Time
):
    for tenant in ("acme", "rival"):
        budgets = {"clerk": Decimal(1)}
        await Tenants(records).create(CreateTenant(id=tenant, agent_daily_budgets_usd=budgets))
    ledger = ledger_of(records, time)
    assert await ledger.reserve(charge(1, "1", agent="clerk", tenant="acme")) is None
    assert await ledger.reserve(charge(2, "1", agent="clerk", tenant="rival")) is None


async def test_concurrent_workers_never_reserve_more_than_the_limit(records: Records, time: Time):
    await Tenants(records).create(CreateTenant(id="acme", daily_budget_usd=Decimal(1)))
    workers = [ledger_of(records, time) for _ in range(5)]
    refusals = await at_once(
        lambda number: workers[number % 5].reserve(charge(number, "0.30", tenant="acme")), range(40)
    )
    assert refusals.count(None) <= 3
    spent = await workers[0].spent_usd("acme", "tenant", "acme")
    assert spent == Decimal("0.30") * refusals.count(None)


async def test_a_new_day_starts_with_nothing_spent(records: Records, time: Time):
    await Tenants(records).create(CreateTenant(id="acme", daily_budget_usd=Decimal(1)))
    ledger = ledger_of(records, time)
    assert await ledger.reserve(charge(1, "1", tenant="acme")) is None
    time.pass_(86400)
    assert await ledger.spent_usd("acme", "tenant", "acme") == 0
    assert await ledger.reserve(charge(2, "1", tenant="acme")) is None
    await ledger.settle("rsrv_1", Decimal("0.5"))
    assert await ledger.spent_usd("acme", "tenant", "acme") == 1
    time.pass_(95 * 86400)
    await ledger.delete_expired()
    time.pass_(-96 * 86400)
    assert await ledger.spent_usd("acme", "tenant", "acme") == 0


async def test_a_reservation_left_by_a_crash_counts_for_the_day(records: Records, time: Time):
    await Tenants(records).create(CreateTenant(id="acme", daily_budget_usd=Decimal(1)))
    assert await ledger_of(records, time).reserve(charge(1, "0.80", tenant="acme")) is None
    after = ledger_of(records, time)
    await after.settle("rsrv_1", Decimal(0))
    assert await after.reserve(charge(2, "0.80", tenant="acme")) is not None


async def test_spending_is_counted_without_a_limit_too(records: Records, time: Time):
    await Tenants(records).create(CreateTenant(id="acme"))
    ledger = ledger_of(records, time)
    assert await ledger.reserve(charge(1, "100", user="oidc:eve", tenant="acme")) is None
    assert await ledger.spent_usd("acme", "tenant", "acme") == 0
    await ledger.settle("rsrv_1", Decimal("0.0000001"))
    assert await ledger.spent_usd("acme", "user", "oidc:eve") == Decimal("0.000001")


async def test_a_changed_budget_applies_within_seconds(records: Records, time: Time):
    tenants = Tenants(records)
    await tenants.create(CreateTenant(id="acme"))
    ledger = ledger_of(records, time)
    assert await ledger.reserve(charge(1, "1", tenant="acme")) is None
    await tenants.update("acme", UpdateTenant(daily_budget_usd=Decimal(0)))
    time.pass_(LIMIT_SECONDS)
    assert await ledger.reserve(charge(2, "1", tenant="acme")) is not None


async def test_sessions_stop_when_the_budget_of_their_key_is_reached(tmp_path: Path):
    async with open_runtime(store=str(tmp_path / "log.db")) as runtime:
        records = runtime.log.store.records
        asked = CreateKey(name="ci", daily_budget_usd=Decimal(3))
        key = await Keys(records).create(person("default"), asked)
        ledger = DailyBudgetLedger(records)
        runtime.models = ExpensiveModels(Scripted(otherwise=says("ok")))
        runtime.budget = ledger.budget("default", key.id)
        results: list[RunResult] = []
        for _ in range(6):
            result = await (await runtime.start(Agent(name="clerk"), "go")).run()
            assert result is not None
            results.append(result)
        reasons = [item.reason for item in results]
        assert set(reasons) == {"completed", "budget_reached"}
        assert reasons == sorted(reasons, reverse=True)
        assert f"key {key.id}" in (results[-1].detail or "")
        assert await ledger.spent_usd("default", "user", key.id) <= 3
