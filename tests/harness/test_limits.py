"""What is spent is folded from the log; what might pass a limit is not begun."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.events import (
    AgentCustomToolUse,
    AgentMcpToolUse,
    AgentToolUse,
    BudgetReserved,
    BudgetSettled,
    KnownPayload,
    LoopContinued,
    ModelRequestEnded,
    SessionForked,
    SessionWoken,
    StatusIdle,
    StatusRunning,
    StopReason,
    Usage,
)
from mainspring.core.model_facts import ModelFacts, Price
from mainspring.harness import budget
from mainspring.harness.budget import (
    BudgetTier,
    SpendRate,
    affordable_output,
    calls_over,
    reservation_cost,
)
from mainspring.harness.limits import (
    Limits,
    Spending,
    continuation,
    fold,
    limit_reached,
    worst_cost,
)
from mainspring.harness.state.thread_tree import SpendAccount
from mainspring.harness.stop_reasons import Ended

PRICE = Price(
    input=Decimal(2),
    output=Decimal(10),
    cache_read=Decimal("0.2"),
    cache_write=Decimal("2.5"),
    date="2026-11-10",
)
FACTS = ModelFacts(id="a:b", window=200_000, max_output=64_000, price=PRICE)
FREE = ModelFacts(id="c:d", window=8_000, max_output=4_000)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
IDLE = StatusIdle(stop_reason=StopReason(type="end_turn"))
WOKEN = SessionWoken(owner="w", epoch=2, attempt=1)

cents = st.integers(0, 500).map(lambda cents: Decimal(cents) / 100)


def tiers(spending: Spending, limits: Limits) -> list[BudgetTier]:
    return [BudgetTier(SpendAccount(spending=spending), limits)]


def status_block(spending: Spending, limits: Limits) -> str | None:
    return budget.budget_status(tiers(spending, limits))


def budget_reserved(id_: str, cost: Decimal, tokens: int = 0) -> BudgetReserved:
    return BudgetReserved(
        reservation_id=id_, cost_usd=str(cost), input_tokens=tokens, output_tokens=tokens
    )


def budget_settled(id_: str, cost: Decimal) -> BudgetSettled:
    return BudgetSettled(reservation_id=id_, cost_usd=str(cost))


def request_ended(output: int = 0, **tokens: int) -> ModelRequestEnded:
    return ModelRequestEnded(
        model_request_start_id="x", model_usage=Usage(output_tokens=output, **tokens)
    )


def spending_after(*payloads: KnownPayload) -> Spending:
    spent = Spending()
    for payload in payloads:
        spent = fold(spent, payload)
    return spent


def spending_at(*moments: tuple[int, KnownPayload]) -> Spending:
    spent = Spending()
    for second, payload in moments:
        spent = fold(spent, payload, NOON + timedelta(seconds=second))
    return spent


def test_turns_tokens_and_tool_calls_of_all_kinds_are_counted():
    spent = spending_after(
        request_ended(5, input_tokens=1, cache_creation_input_tokens=2, cache_read_input_tokens=4),
        AgentToolUse(name="a", input={}),
        AgentMcpToolUse(mcp_server_name="s", name="a", input={}),
        AgentCustomToolUse(name="a", input={}),
        request_ended(5),
    )
    assert (spent.turns, spent.input_tokens, spent.output_tokens) == (2, 7, 10)
    assert spent.tool_calls == 3


def test_a_reservation_counts_until_settled_and_is_settled_only_once():
    spent = spending_after(budget_reserved("r", Decimal(3)))
    assert (spent.cost_usd, spent.committed_usd) == (0, 3)
    spent = spending_after(budget_reserved("r", Decimal(3)), *[budget_settled("r", Decimal(1))] * 2)
    assert (spent.cost_usd, spent.committed_usd) == (1, 1)


def test_a_fork_inherits_spending_but_not_open_reservations():
    spent = spending_after(
        budget_reserved("a", Decimal(1)),
        budget_settled("a", Decimal(1)),
        budget_reserved("b", Decimal(5)),
        SessionForked(parent_session_id="p", parent_seq=3),
    )
    assert spent.committed_usd == 1


def test_time_counts_while_running_but_not_while_waiting_for_people():
    spent = spending_at(
        (0, StatusRunning()), (10, IDLE), (500, StatusRunning()), (505, request_ended())
    )
    assert spent.seconds == 15


def test_threads_running_concurrently_share_the_time():
    spent = spending_at(
        (0, StatusRunning()), (5, StatusRunning()), (20, IDLE), (30, IDLE), (99, WOKEN)
    )
    assert spent.seconds == 30


def test_time_between_a_crash_and_the_wake_is_not_counted():
    assert (
        spending_at(
            (0, StatusRunning()), (10, request_ended()), (5000, WOKEN), (5002, IDLE)
        ).seconds
        == 12
    )


money_moves = st.one_of(
    st.builds(budget_reserved, st.sampled_from("abcdef"), cents, st.integers(0, 1000)),
    st.builds(budget_settled, st.sampled_from("abcdef"), cents),
)
any_event = st.one_of(
    money_moves,
    st.builds(request_ended, st.integers(0, 9000), input_tokens=st.integers(0, 9000)),
    st.sampled_from(
        [
            StatusRunning(),
            IDLE,
            WOKEN,
            SessionForked(parent_session_id="p", parent_seq=1),
            AgentToolUse(name="a", input={}),
            LoopContinued(reason="budget_continuation"),
            LoopContinued(reason="next_turn"),
        ]
    ),
)


@given(st.lists(st.tuples(st.integers(0, 60), any_event)))
def test_spending_never_decreases_over_any_prefix_of_a_log(story: list[tuple[int, KnownPayload]]):
    spent, now = Spending(), NOON
    for seconds, payload in story:
        now += timedelta(seconds=seconds)
        before, spent = spent, fold(spent, payload, now)
        assert spent.cost_usd >= before.cost_usd
        assert spent.turns >= before.turns
        assert spent.seconds >= before.seconds
        assert spent.running >= 0
        assert spent.committed_usd >= spent.cost_usd
        assert (spent.running_since is None) == (spent.running == 0)


@given(st.lists(st.tuples(cents, cents)), st.randoms())
def test_settling_reservations_in_any_order_gives_the_sum_of_the_costs(
    calls: list[tuple[Decimal, Decimal]], random: Random
):
    opened = [budget_reserved(str(number), asked) for number, (asked, _) in enumerate(calls)]
    closed = [budget_settled(str(number), cost) for number, (_, cost) in enumerate(calls)]
    random.shuffle(closed)
    spent = spending_after(*opened, *closed)
    assert spent.cost_usd == sum(cost for _, cost in calls)
    assert spent.reservations == {}


def test_a_call_reserves_the_highest_input_price_and_its_maximum_output():
    amount = reservation_cost(
        tiers(Spending(), Limits()), FACTS, input_tokens=1_000_000, output_tokens=100_000
    )
    assert amount == Decimal("3.5")


@given(
    st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 8_000), st.integers(0, 100))),
    cents,
    st.integers(0, 200_000),
)
def test_reserved_and_spent_amounts_together_never_exceed_the_limit(
    calls: list[tuple[int, int, int]], max_usd: Decimal, max_tokens: int
):
    limits = Limits(max_cost_usd=max_usd, max_input_tokens=max_tokens)
    spent = Spending()
    for number, (input_tokens, output_tokens, used_percent) in enumerate(calls):
        amount = reservation_cost(
            tiers(spent, limits), FACTS, input_tokens=input_tokens, output_tokens=output_tokens
        )
        if isinstance(amount, Ended):
            assert amount.reason == "budget_reached"
            continue
        asked = BudgetReserved(
            reservation_id=str(number), cost_usd=str(amount), input_tokens=input_tokens
        )
        spent = fold(spent, asked)
        assert spent.committed_usd <= max_usd
        assert spent.committed_input_tokens <= max_tokens
        if number % 2:  # the others stay open, as those of parallel threads do
            spent = fold(spent, request_ended(input_tokens=input_tokens))
            spent = fold(spent, budget_settled(str(number), amount * used_percent / 100))
            assert spent.committed_usd <= max_usd
            assert spent.committed_input_tokens <= max_tokens


@pytest.mark.parametrize(
    ("limits", "spent", "reason", "names"),
    [
        (
            Limits(max_turns=2),
            spending_after(request_ended(), request_ended()),
            "max_turns",
            "2 of 2 turns",
        ),
        (
            Limits(max_seconds=10),
            spending_at((0, StatusRunning()), (10, request_ended())),
            "budget_reached",
            "seconds",
        ),
        (
            Limits(max_tool_calls=1),
            spending_after(AgentToolUse(name="a", input={})),
            "budget_reached",
            "tool calls",
        ),
        (
            Limits(max_input_tokens=1500),
            spending_after(request_ended(input_tokens=501)),
            "budget_reached",
            "input",
        ),
        (
            Limits(max_output_tokens=150),
            spending_after(request_ended(51)),
            "budget_reached",
            "output",
        ),
        (
            Limits(max_cost_usd=Decimal("0.01")),
            spending_after(budget_reserved("r", Decimal("0.01"))),
            "budget_reached",
            "dollars",
        ),
    ],
)
def test_each_limit_ends_the_run_and_is_named_in_the_detail(
    limits: Limits, spent: Spending, reason: str, names: str
):
    stop = reservation_cost(tiers(spent, limits), FACTS, input_tokens=1000, output_tokens=100)
    assert isinstance(stop, Ended)
    assert stop.reason == reason
    assert names in (stop.detail or "")


def test_a_limit_of_zero_dollars_allows_a_free_model():
    limits = Limits(max_cost_usd=Decimal(0))
    assert reservation_cost(tiers(Spending(), limits), FREE, input_tokens=10, output_tokens=10) == 0
    assert isinstance(
        reservation_cost(tiers(Spending(), limits), FACTS, input_tokens=10, output_tokens=10), Ended
    )


def test_a_call_that_cost_more_than_reserved_reaches_the_limit():
    spent = spending_after(budget_reserved("r", Decimal(1)), budget_settled("r", Decimal(2)))
    assert limit_reached(spent, Limits(max_cost_usd=Decimal(1))) is not None


@given(cents, st.integers(0, 100_000), st.integers(0, 64_000), st.integers(0, 64_000))
def test_the_affordable_output_is_the_largest_that_can_be_reserved(
    max_usd: Decimal, input_tokens: int, wanted: int, max_output: int
):
    limits = Limits(max_cost_usd=max_usd, max_output_tokens=max_output)
    output = affordable_output(
        tiers(Spending(), limits), FACTS, input_tokens=input_tokens, output_tokens=wanted
    )
    assert 0 <= output <= wanted
    if output:
        assert worst_cost(PRICE, input_tokens=input_tokens, output_tokens=output) <= max_usd
    if 0 < output < min(wanted, max_output):
        assert worst_cost(PRICE, input_tokens=input_tokens, output_tokens=output + 1) > max_usd


def test_calls_beyond_the_limit_are_counted():
    spent = spending_after(*[AgentToolUse(name="a", input={})] * 5)
    assert calls_over(tiers(spent, Limits(max_tool_calls=3))) == 2
    assert calls_over(tiers(spent, Limits())) == 0


def test_a_model_that_stops_early_is_asked_to_continue_until_90_percent_of_its_target():
    limits = Limits(target_tokens=10_000)
    assert "40 % of the 10000" in (continuation(spending_after(request_ended(4_000)), limits) or "")
    assert continuation(spending_after(request_ended(9_000)), limits) is None
    assert continuation(spending_after(request_ended(4_000)), Limits()) is None


def test_a_model_that_produces_little_more_may_stop():
    more = LoopContinued(reason="budget_continuation")
    spent = spending_after(
        request_ended(1000),
        more,
        request_ended(1000),
        more,
        request_ended(100),
        more,
        request_ended(100),
    )
    assert continuation(spent, Limits(target_tokens=100_000)) is None


def test_there_is_no_budget_status_without_limits():
    assert status_block(Spending(turns=5), Limits(target_tokens=5)) is None


def test_the_budget_status_changes_only_at_a_few_steps():
    limits = Limits(max_turns=100)
    said = [status_block(Spending(turns=turns), limits) for turns in range(101)]
    assert [turns for turns in range(1, 101) if said[turns] != said[turns - 1]] == [26, 51, 76, 91]


def test_the_budget_status_names_the_limit_that_is_reached_first():
    limits = Limits(max_turns=100, max_cost_usd=Decimal(1))
    spent = Spending(turns=1, cost_usd=Decimal("0.95"))
    assert status_block(spent, limits) == (
        "Budget: less than 10 % of your money is left."
        " Finish now: say what is done, what is verified and what is missing."
    )


def test_reservations_of_other_threads_do_not_change_the_budget_status():
    limits = Limits(max_cost_usd=Decimal(10))
    busy = spending_after(budget_reserved("other", Decimal(9)))
    assert status_block(busy, limits) == status_block(Spending(), limits)


def test_spending_too_fast_trips_the_breaker_until_it_is_reset():
    now = [0.0]
    rate = SpendRate(Decimal(1), seconds=60, clock=lambda: now[0])
    assert rate.record(Decimal("0.6")) is None
    now[0] = 61
    assert rate.record(Decimal("0.6")) is None, "the first is a minute old"
    now[0] = 62
    assert "1.20 US dollars" in (rate.record(Decimal("0.6")) or "")
    now[0] = 500
    assert rate.record(Decimal(0)) is not None
    rate.reset()
    assert rate.record(Decimal("0.6")) is None
