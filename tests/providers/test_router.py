"""Several models behave as one: retries, failover, breakers, pacing."""

import itertools

import anyio
import pytest
from tests.providers.fake_models import (
    Fake,
    Time,
    answer,
    ask,
    fails,
    fleet,
    quick_to_open,
    request,
    says,
)

from mainspring.capabilities.providers.rate_limit import RateLimitSettings
from mainspring.capabilities.providers.retry import OutagePolicy, RetryPolicy
from mainspring.capabilities.providers.router import RouterSettings
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, ProviderFailed, ProviderFailure
from mainspring.core.model import (
    Assistant,
    FailedOver,
    RetryScheduled,
    Stalled,
    TextDelta,
    ToolResultBlock,
    ToolSpec,
    ToolUse,
    ToolUseReady,
    User,
)

MAIN, SPARE, THIRD = "anthropic:opus", "openai:gpt", "gemini:flash"
READ = ToolSpec(name="read", description="", input_schema={})


async def test_the_first_candidate_answers_and_the_reply_has_its_id():
    main, spare = Fake(says("hi")), Fake(says("no"))
    items = await ask(fleet({MAIN: main, SPARE: spare}))
    assert main.requests[0].model == "opus"
    assert (await answer(fleet({MAIN: main}))).model == MAIN
    assert not any(isinstance(item, FailedOver) for item in items)
    assert spare.requests == []


async def test_after_a_revoked_key_the_whole_conversation_goes_to_the_second_model():
    conversation = request(
        messages=(
            User((TextBlock("read it"),)),
            Assistant((ToolUse(id="t1", name="read", input={"path": "a"}),)),
            User((ToolResultBlock(tool_use_id="t1", content=(TextBlock("contents"),)),)),
        ),
        tools=(READ,),
    )
    main, spare = Fake(says("first"), fails("forbidden")), Fake(says("second"))
    route = fleet({MAIN: main, SPARE: spare}).route()
    await ask(route)
    items = await ask(route, conversation)
    assert items[0] == FailedOver(
        from_model=MAIN, to_model=SPARE, reason=f"{MAIN}: it is forbidden"
    )
    assert spare.requests[0].messages == conversation.messages
    assert (spare.requests[0].tools, spare.requests[0].model) == (conversation.tools, "gpt")
    assert len(main.requests) == 2, "a refused key is not tried again"


@pytest.mark.parametrize("kind", ["unauthorized", "forbidden", "billing", "not_found"])
async def test_lost_access_fails_over_at_once_and_is_not_retried_by_the_next_call(
    kind: ProviderFailure,
):
    main, spare = Fake(fails(kind)), Fake(says("ok"))
    time = Time()
    route = fleet({MAIN: main, SPARE: spare}, time).route()
    await ask(route)
    await ask(route)
    assert len(main.requests) == 1
    assert time.slept == []


@pytest.mark.parametrize("kind", ["overloaded", "rate_limited", "connection", "server"])
async def test_a_temporary_failure_is_retried_on_the_same_model_without_an_event(
    kind: ProviderFailure,
):
    main, spare = Fake(fails(kind), fails(kind), says("third time")), Fake(says("no"))
    time = Time()
    assert (await ask(fleet({MAIN: main, SPARE: spare}, time)))[0] == TextDelta("third time")
    assert spare.requests == []
    assert len(time.slept) == 2
    assert max(time.slept[0], time.slept[1] - 1) <= 1, "jitter stays under the doubling ceiling"


async def test_after_the_maximum_retries_the_next_model_answers():
    main, spare = Fake(fails("server")), Fake(says("ok"))
    items = await ask(fleet({MAIN: main, SPARE: spare}))
    assert len(main.requests) == 3
    assert isinstance(items[0], FailedOver)
    assert "3 attempts" in items[0].reason


@pytest.mark.parametrize(("models", "asked"), [(2, 1), (1, 3)])
async def test_a_timeout_is_not_retried_while_another_model_is_available(models: int, asked: int):
    main = Fake(fails("timeout"), fails("timeout"), says("at last"))
    names = dict(list({MAIN: main, SPARE: Fake(says("ok"))}.items())[:models])
    await ask(fleet(names))
    assert len(main.requests) == asked


async def test_retry_after_is_honored():
    time = Time()
    main = Fake(fails("rate_limited", retry_after=12.0), says("ok"))
    await ask(fleet({MAIN: main, SPARE: Fake(says("no"))}, time))
    assert len(time.slept) == 1
    assert 12.0 <= time.slept[0] <= 13.0


async def test_a_long_retry_after_fails_over_and_opens_the_breaker_for_that_time():
    time = Time()
    main, spare = Fake(fails("rate_limited", retry_after=90.0)), Fake(says("ok"))
    router = fleet({MAIN: main, SPARE: spare}, time, quick_to_open())
    await ask(router)
    assert time.slept == []
    assert router.breaker(MAIN).seconds_left == 90.0


async def test_without_another_model_a_long_retry_after_is_waited_for():
    time = Time()
    main = Fake(fails("rate_limited", retry_after=90.0), says("ok"))
    assert (await answer(fleet({MAIN: main}, time))).model == MAIN
    assert time.slept[0] >= 90.0


@pytest.mark.parametrize("kind", ["prompt_too_long", "media_too_large", "invalid_request"])
async def test_an_invalid_request_is_not_tried_on_another_model(kind: ProviderFailure):
    main, spare = Fake(fails(kind)), Fake(says("ok"))
    router = fleet({MAIN: main, SPARE: spare})
    with pytest.raises(ProviderFailed) as caught:
        await ask(router)
    assert caught.value.kind == kind
    assert len(main.requests) == 1
    assert spare.requests == []
    assert router.breaker(MAIN).state == "closed"


@pytest.mark.parametrize(
    "part", [TextDelta("once"), ToolUseReady(ToolUse(id="t", name="read", input={}))]
)
async def test_after_part_of_the_reply_was_emitted_nothing_is_retried(
    part: TextDelta | ToolUseReady,
):
    main, spare = Fake(fails("connection", after=[part])), Fake(says("ok"))
    with pytest.raises(ProviderFailed, match="connection"):
        await ask(fleet({MAIN: main, SPARE: spare}))
    assert len(main.requests) == 1
    assert spare.requests == []


async def test_a_stall_is_not_part_of_the_reply_and_the_next_model_answers():
    main = Fake(fails("stalled", after=[Stalled(seconds=45)]))
    items = await ask(fleet({MAIN: main, SPARE: Fake(says("ok"))}))
    assert [type(item) for item in items[:3]] == [Stalled, FailedOver, TextDelta]


async def test_a_model_whose_streams_keep_breaking_is_tried_last():
    main = Fake(fails("connection", after=[TextDelta("once upon")]))
    route = fleet({MAIN: main, SPARE: Fake(says("ok"))}).route()
    for _ in range(2):
        with pytest.raises(ProviderFailed):
            await ask(route)
    assert (await answer(route)).model == SPARE


async def test_a_stream_that_ends_without_a_reply_is_a_failure():
    main, spare = Fake([]), Fake(says("ok"))
    assert (await answer(fleet({MAIN: main, SPARE: spare}))).model == SPARE


async def test_if_all_models_fail_one_error_names_each():
    models = {
        MAIN: Fake(fails("forbidden")),
        SPARE: Fake(fails("server")),
        THIRD: Fake(fails("rate_limited", retry_after=45.0)),
    }
    settings = RouterSettings(retry_policy=RetryPolicy(attempts=1))
    with pytest.raises(ProviderFailed) as caught:
        await ask(fleet(models, settings=settings))
    text = str(caught.value)
    assert all(name in text for name in models)
    assert "it is forbidden" in text
    assert "it is server" in text
    assert caught.value.retryable, "one of them may answer later"
    assert caught.value.retry_after_seconds == 45.0


async def test_all_access_lost_is_not_retryable():
    models = {MAIN: Fake(fails("forbidden")), SPARE: Fake(fails("unauthorized"))}
    router = fleet(models)
    for _ in range(2):  # the second time from the breakers
        with pytest.raises(ProviderFailed) as caught:
            await ask(router)
        assert not caught.value.retryable


async def test_the_breaker_opens_after_consecutive_failures_and_one_probe_closes_it():
    time = Time()
    main = Fake(fails("server"), fails("server"), says("back"))
    settings = RouterSettings(
        retry_policy=RetryPolicy(attempts=1), breaker=quick_to_open(failures=2).breaker
    )
    router = fleet({MAIN: main, SPARE: Fake(says("ok"))}, time, settings)
    route = router.route()
    await ask(route)
    assert router.breaker(MAIN).state == "closed"
    await ask(route)
    assert router.breaker(MAIN).state == "open"
    await ask(route)
    assert len(main.requests) == 2, "left alone while open"
    time.now += 30
    assert router.breaker(MAIN).state == "half_open"
    items = await ask(route)
    assert items[0] == FailedOver(from_model=SPARE, to_model=MAIN, reason=f"{MAIN} answers again")
    assert router.breaker(MAIN).state == "closed"


async def test_only_one_call_probes_a_half_open_breaker():
    time = Time()
    main, spare = Fake(fails("server"), says("back")), Fake(says("ok"))
    settings = RouterSettings(retry_policy=RetryPolicy(attempts=1), breaker=quick_to_open().breaker)
    router = fleet({MAIN: main, SPARE: spare}, time, settings)
    await ask(router)
    time.now += 30
    main.gate = anyio.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, router)
            await anyio.wait_all_tasks_blocked()
            assert (await answer(router)).model == SPARE
            main.gate.set()
    assert len(main.requests) == 2


async def test_a_failed_probe_is_not_an_event_and_doubles_the_cooldown():
    time = Time()
    main = Fake(fails("server"))
    settings = RouterSettings(retry_policy=RetryPolicy(attempts=1), breaker=quick_to_open().breaker)
    router = fleet({MAIN: main, SPARE: Fake(says("ok"))}, time, settings)
    route = router.route()
    await ask(route)
    time.now += 30
    items = await ask(route)
    assert not any(isinstance(item, FailedOver) for item in items)
    assert router.breaker(MAIN).seconds_left == 60


async def test_a_cancelled_probe_leaves_the_breaker_ready_for_another():
    time = Time()
    main = Fake(fails("server"), says("back"))
    settings = RouterSettings(retry_policy=RetryPolicy(attempts=1), breaker=quick_to_open().breaker)
    router = fleet({MAIN: main, SPARE: Fake(says("ok"))}, time, settings)
    await ask(router)
    time.now += 30
    main.gate = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(ask, router)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert router.breaker(MAIN).is_admitting


OUTAGE_KINDS: list[ProviderFailure] = [
    "overloaded",
    "rate_limited",
    "server",
    "connection",
    "refused",
    "unresolved",
    "timeout",
]


@pytest.mark.parametrize("kind", OUTAGE_KINDS)
async def test_an_outage_of_the_only_model_is_waited_for_and_each_wait_is_announced(
    kind: ProviderFailure,
):
    time = Time()
    main = Fake(*[fails(kind)] * 9, says("back"))
    items = await ask(fleet({MAIN: main}, time))
    waits = [item for item in items if isinstance(item, RetryScheduled)]
    assert [item.attempt for item in waits] == [*range(2, 11)]
    assert [item.seconds for item in waits] == time.slept
    assert waits[0] == RetryScheduled(
        model=MAIN,
        kind=kind,
        reason=f"it is {kind}",
        attempt=2,
        attempts=10,
        seconds=time.slept[0],
        waited_seconds=0.0,
        limit_seconds=600.0,
    )
    assert all(later > 1.1 * before for before, later in itertools.pairwise(time.slept[:6]))
    assert 360 < sum(time.slept) < 490
    assert items[len(waits)] == TextDelta("back")


async def test_after_ten_attempts_the_call_fails_and_says_how_often_it_tried():
    main = Fake(fails("overloaded"))
    with pytest.raises(ProviderFailed, match=r"it is overloaded \(10 attempts\)"):
        await ask(fleet({MAIN: main}))
    assert len(main.requests) == 10


@pytest.mark.parametrize(("limit", "asked"), [(0.0, 1), (40.0, 5), (80.0, 6)])
async def test_the_limit_ends_an_outage(limit: float, asked: int):
    time = Time()
    main = Fake(fails("overloaded"))
    settings = RouterSettings(outage=OutagePolicy(limit_seconds=limit))
    with pytest.raises(ProviderFailed):
        await ask(fleet({MAIN: main}, time, settings))
    assert (len(main.requests), sum(time.slept) <= limit) == (asked, True)


@pytest.mark.parametrize("kind", ["malformed", "stalled"])
async def test_what_is_no_outage_is_tried_three_times(kind: ProviderFailure):
    main = Fake(fails(kind))
    with pytest.raises(ProviderFailed):
        await ask(fleet({MAIN: main}))
    assert len(main.requests) == 3


@pytest.mark.parametrize("kind", ["unauthorized", "forbidden", "not_found", "certificate"])
async def test_what_only_a_person_can_mend_fails_at_once_and_the_next_call_tests_it(
    kind: ProviderFailure,
):
    time = Time()
    main = Fake(fails(kind), says("mended"))
    router = fleet({MAIN: main}, time)
    with pytest.raises(ProviderFailed):
        await ask(router)
    assert (await answer(router)).model == MAIN, "the only model is never locked"
    assert time.slept == []


async def test_if_all_models_are_out_all_are_asked_again_after_a_wait():
    time = Time()
    main, spare = Fake(fails("server")), Fake(fails("connection"), says("ok"))
    items = await ask(fleet({MAIN: main, SPARE: spare}, time))
    assert isinstance(items[0], RetryScheduled)
    assert (items[0].model, items[0].attempt) == ("no model answered", 2)
    assert isinstance(items[1], FailedOver)
    assert (len(main.requests), len(spare.requests)) == (6, 2)


async def test_concurrent_calls_are_limited_per_provider():
    main = Fake(says("ok"))
    main.gate = anyio.Event()
    router = fleet({MAIN: main}, settings=RouterSettings(pace=RateLimitSettings(max_concurrent=2)))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask, router)
            await anyio.wait_all_tasks_blocked()
            assert main.at_once == 2
            main.gate.set()
    assert (main.most_at_once, len(main.requests)) == (2, 5)


async def test_requests_per_minute_are_spread_out():
    time = Time()
    router = fleet(
        {MAIN: Fake(says("ok"))},
        time,
        RouterSettings(paces={"anthropic": RateLimitSettings(requests_per_minute=2)}),
    )
    for _ in range(4):
        await ask(router)
    assert time.slept == [30, 30]


async def test_tokens_per_minute_use_the_providers_count():
    time = Time()
    router = fleet(
        {MAIN: Fake(says("ok", tokens=1199))},
        time,
        RouterSettings(pace=RateLimitSettings(tokens_per_minute=1200)),
    )
    await ask(router)
    await ask(router)
    assert len(time.slept) == 1, "the first call took the whole minute's allowance"


async def test_a_drill_makes_the_second_model_answer_and_says_so():
    main, spare = Fake(says("no")), Fake(says("ok"))
    drill = fleet({MAIN: main, SPARE: spare}).drill("main")
    items = [*await ask(drill), *await ask(drill)]
    assert items[0] == FailedOver(from_model=MAIN, to_model=SPARE, reason="drill")
    assert len([item for item in items if isinstance(item, FailedOver)]) == 1
    assert main.requests == []


def test_a_drill_without_a_second_model_is_refused():
    with pytest.raises(InvalidInput, match="nothing to fail over to"):
        fleet({MAIN: Fake(says("ok"))}).drill("main")
