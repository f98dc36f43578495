from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest
from tests.service.schedule_setup import TENANT, Crash, Works, works

from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.core.content import TextBlock
from mainspring.core.errors import (
    InvalidInput,
    MainspringError,
    NotFound,
    ProviderFailed,
    RateLimited,
    StoreUnavailable,
)
from mainspring.log.records import RecordChange, RecordRow, Records, Remove
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.resources.environments import Environments
from mainspring.service.schedules.cron import SchedulePolicy
from mainspring.service.schedules.deployment_runner import DeploymentRunner
from mainspring.service.schedules.deployment_store import DeploymentStore
from mainspring.service.schedules.deployment_types import (
    CreateDeployment,
    Deployment,
    DeploymentRun,
    ScheduleParams,
    UpdateDeployment,
)
from mainspring.service.sessions.events.event_content import SendMessage
from mainspring.service.sessions.resource_types import RepositoryResourceParams
from mainspring.service.storage.repository import ListQuery
from mainspring.service.webhooks.webhook_endpoints import CreateWebhook
from mainspring.service.webhooks.webhook_events import EVENT_TYPES


@pytest.fixture
async def works_(tmp_path: Path) -> AsyncGenerator[Works]:
    async with works(tmp_path) as made:
        yield made


async def create_deployment(
    made: Works, policy: SchedulePolicy | None = None, expression: str = "0 * * * *"
) -> Deployment:
    return await made.deployments.create(
        TENANT,
        CreateDeployment(
            agent="agent_1",
            environment_id=made.environment_id,
            name="hourly",
            initial_events=(SendMessage(content=(TextBlock("go"),)),),
            schedule=ScheduleParams(
                expression=expression,
                timezone="UTC",
                policy=policy or SchedulePolicy(jitter_seconds=0),
            ),
        ),
    )


async def runs_of(made: Works) -> list[DeploymentRun]:
    return [*(await made.runs.page(TENANT, ListQuery(limit=1000))).data][::-1]


async def test_a_schedule_fires_at_its_time_and_then_waits_for_the_next(works_: Works):
    made = await create_deployment(works_)
    await works_.fire_due()
    assert works_.sessions.starts == 0
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    [run] = await runs_of(works_)
    assert run.session_id == "sesn_acme_0"
    assert works_.sessions.orders[run.id].initial_events == made.initial_events
    [(_, at)] = works_.jobs.waiting.values()
    assert at == datetime(2026, 5, 4, 10, tzinfo=UTC)
    shown = await works_.deployments.get(TENANT, made.id)
    assert shown.schedule
    assert shown.schedule.last_run_at == works_.clock.now


class DyingRecords:
    """Records whose writer dies: before its nth write from now on, or right after it."""

    def __init__(self, records: Records, *, n: int, after: bool) -> None:
        self._records = records
        self._left = n
        self._after = after

    async def write(self, *changes: RecordChange) -> tuple[RecordRow, ...]:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash
        written = await self._records.write(*changes)
        if self._left == 0:
            raise Crash
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._records, name)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("n", [1, 2])
async def test_a_worker_that_dies_at_any_write_leaves_one_session_per_firing(
    works_: Works, n: int, after: bool
):
    made = await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    dying = cast("Records", DyingRecords(works_.records, n=n, after=after))
    keep = DeploymentStore(
        dying,
        outbox=works_.outbox,
        seal=AesSeal(bytes(32)),
        put=works_.jobs.put,
        clock=works_.clock,
    )
    doomed = DeploymentRunner(
        keep, works_.runs, session_starter=works_.sessions, clock=works_.clock
    )
    [job] = works_.jobs.take("fire", works_.clock.now)
    with pytest.raises(Crash):
        await doomed.fire(job)
    await works_.firing.fire(job)
    await works_.firing.fire(job)
    assert len(await runs_of(works_)) == 1
    assert len(works_.sessions.orders) == 1
    assert (await works_.deployments.get(TENANT, made.id)).status == "active"


@pytest.mark.parametrize("place", ["dies_before_start", "dies_after_start"])
async def test_a_worker_that_dies_while_starting_a_session_leaves_one_per_firing(
    works_: Works, place: str
):
    await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    [job] = works_.jobs.take("fire", works_.clock.now)
    setattr(works_.sessions, place, True)
    with pytest.raises(Crash):
        await works_.firing.fire(job)
    assert await runs_of(works_) == []
    setattr(works_.sessions, place, False)
    works_.clock.pass_by(minutes=7)  # the one that takes over comes later
    await works_.firing.fire(job)
    [run] = await runs_of(works_)
    assert list(works_.sessions.orders) == [run.id]


async def test_a_lost_job_is_found_by_the_sweep(works_: Works):
    await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    works_.jobs.waiting.clear()
    assert await works_.firing.sweep() == 1
    await works_.fire_due()
    assert len(await runs_of(works_)) == 1
    assert await works_.firing.sweep() == 0


async def test_two_workers_with_one_job_make_one_run(works_: Works):
    made = await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    job = Job(task="fire", key=made.id, tenant=TENANT)
    kept = await works_.keep.get(TENANT, made.id)
    await works_.firing.fire(job)
    # the second one had read the queue before the first was done with it
    await works_.keep.change(
        TENANT,
        made.id,
        lambda current: type(current)(
            deployment=current.deployment, decided_upto=kept.decided_upto, queue=kept.queue
        ),
    )
    await works_.firing.fire(job)
    assert len(await runs_of(works_)) == 1
    assert len(works_.sessions.orders) == 1


@pytest.mark.parametrize(
    ("policy", "started"),
    [
        (SchedulePolicy(missed="skip", jitter_seconds=0), 0),
        (SchedulePolicy(missed="once", jitter_seconds=0), 1),
        (SchedulePolicy(missed="all", max_missed=3, jitter_seconds=0), 3),
    ],
)
async def test_missed_firings_follow_the_policy(
    works_: Works, policy: SchedulePolicy, started: int
):
    await create_deployment(works_, policy)
    works_.clock.pass_by(hours=5, minutes=40)
    await works_.fire_due()
    assert len(works_.sessions.orders) == started


@pytest.mark.parametrize(
    ("policy", "meanwhile", "afterwards"),
    [
        (SchedulePolicy(overlap="skip", jitter_seconds=0), 1, 1),
        (SchedulePolicy(overlap="queue", jitter_seconds=0), 1, 2),
        (SchedulePolicy(overlap="allow", jitter_seconds=0), 2, 2),
    ],
)
async def test_overlapping_firings_wait_or_are_skipped_by_policy(
    works_: Works, policy: SchedulePolicy, meanwhile: int, afterwards: int
):
    await create_deployment(works_, policy)
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    works_.sessions.busy.add("sesn_acme_0")
    works_.clock.pass_by(hours=1)
    await works_.fire_due()
    assert len(works_.sessions.orders) == meanwhile
    works_.sessions.busy.clear()
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    assert len(works_.sessions.orders) == afterwards


async def test_a_paused_deployment_does_not_fire_and_missed_firings_stay_missed(works_: Works):
    made = await create_deployment(works_, SchedulePolicy(missed="all", jitter_seconds=0))
    await works_.deployments.pause(TENANT, made.id)
    works_.clock.pass_by(hours=3)
    await works_.fire_due()
    assert works_.sessions.starts == 0
    assert (await works_.firing.run_now(TENANT, made.id)).session_id
    assert (await works_.deployments.unpause(TENANT, made.id)).paused_reason is None
    await works_.fire_due()
    assert works_.sessions.starts == 1
    works_.clock.pass_by(hours=1)
    await works_.fire_due()
    assert works_.sessions.starts == 2


async def test_unpausing_an_active_deployment_changes_nothing(works_: Works):
    made = await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    await works_.deployments.unpause(TENANT, made.id)
    await works_.fire_due()
    assert works_.sessions.starts == 1


@pytest.mark.parametrize(
    ("refusal", "type_", "status"),
    [
        (RateLimited("slow down", retry_after_seconds=1), "session_rate_limited_error", "active"),
        (InvalidInput("no"), "session_creation_rejected_error", "active"),
        (NotFound("skill", "skill_1"), "skill_not_found_error", "paused"),
        (NotFound("memory_store", "m"), "session_resource_not_found_error", "paused"),
        (ProviderFailed("p", "server", "down"), "unknown_error", "paused"),
    ],
)
async def test_a_session_that_cannot_be_created_is_a_failed_run_and_may_pause(
    works_: Works, refusal: MainspringError, type_: str, status: str
):
    made = await create_deployment(works_)
    works_.sessions.refusal = refusal
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    [run] = await runs_of(works_)
    assert run.error
    assert run.error.type == type_
    assert run.session_id is None
    assert (await works_.deployments.get(TENANT, made.id)).status == status


async def test_an_unavailable_store_fails_no_run_and_the_job_is_retried(works_: Works):
    await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    [job] = works_.jobs.take("fire", works_.clock.now)
    works_.sessions.refusal = StoreUnavailable("restarting")
    with pytest.raises(StoreUnavailable):
        await works_.firing.fire(job)
    works_.sessions.refusal = None
    await works_.firing.fire(job)
    [run] = await runs_of(works_)
    assert run.session_id


async def test_an_archived_environment_pauses_a_schedule_but_not_after_a_manual_run(works_: Works):
    made = await create_deployment(works_)
    await Environments(works_.records).archive(TENANT, works_.environment_id)
    by_hand = await works_.firing.run_now(TENANT, made.id)
    assert by_hand.error
    assert by_hand.error.type == "environment_archived_error"
    assert (await works_.deployments.get(TENANT, made.id)).status == "active"
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    assert (await works_.deployments.get(TENANT, made.id)).status == "paused"


async def test_a_deleted_agent_archives_its_deployments_without_a_run(works_: Works):
    made = await create_deployment(works_)
    await works_.records.write(Remove(row=await works_.records.get("agent", "agent_1")))
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    assert (await works_.deployments.get(TENANT, made.id)).archived_at
    assert await runs_of(works_) == []


async def test_archiving_an_agent_archives_its_deployments(works_: Works):
    made = [await create_deployment(works_) for _ in range(3)]
    await works_.deployments.archive_for_agent(TENANT, "agent_1")
    for item in made:
        assert (await works_.deployments.get(TENANT, item.id)).archived_at


async def test_an_archived_deployment_cannot_change_or_run(works_: Works):
    made = await create_deployment(works_)
    await works_.deployments.archive(TENANT, made.id)
    with pytest.raises(InvalidInput, match="archived"):
        await works_.deployments.update(TENANT, made.id, UpdateDeployment(name="x"))
    with pytest.raises(InvalidInput, match="archived"):
        await works_.deployments.pause(TENANT, made.id)
    with pytest.raises(InvalidInput, match="archived"):
        await works_.firing.run_now(TENANT, made.id)
    with pytest.raises(InvalidInput, match="archived"):
        await works_.deployments.request_run(TENANT, made.id)


async def test_a_requested_run_is_done_by_a_worker_under_the_returned_id(works_: Works):
    made = await create_deployment(works_)
    await works_.deployments.pause(TENANT, made.id)
    works_.jobs.waiting.clear()  # asked for without an engine, as the command line does
    run_id = await works_.deployments.request_run(TENANT, made.id)
    works_.jobs.waiting.clear()
    await works_.firing.sweep()
    await works_.fire_due()
    assert (await works_.runs.get(TENANT, run_id)).session_id


async def test_a_token_reaches_the_session_and_is_in_no_record(works_: Works):
    token = "ghp_a_very_secret_token"
    made = await works_.deployments.create(
        TENANT,
        CreateDeployment(
            agent="agent_1",
            environment_id=works_.environment_id,
            name="repo",
            initial_events=(SendMessage(content=(TextBlock("go"),)),),
            resources=(
                RepositoryResourceParams(url="https://github.com/a/b", authorization_token=token),
                RepositoryResourceParams(url="https://github.com/a/c"),
            ),
        ),
    )
    run = await works_.firing.run_now(TENANT, made.id)
    first, second = works_.sessions.orders[run.id].resources
    assert isinstance(first, RepositoryResourceParams)
    assert isinstance(second, RepositoryResourceParams)
    assert (first.authorization_token, second.authorization_token) == (token, None)
    record = await works_.records.get("deployment", made.id)
    assert token.encode() not in record.body
    assert token.encode() not in await works_.records.content("deployment", made.id)


async def test_changes_of_deployments_and_runs_are_notified(works_: Works):
    await works_.webhooks.create(
        TENANT, CreateWebhook(url="https://example.com/", event_types=EVENT_TYPES)
    )
    made = await create_deployment(works_)
    works_.clock.pass_by(minutes=1)
    await works_.fire_due()
    await works_.deployments.archive(TENANT, made.id)
    page = await works_.deliveries.page(TENANT, ListQuery(limit=100))
    assert sorted(item.event_type for item in page.data) == [
        "deployment.archived",
        "deployment.created",
        "deployment_run.started",
        "deployment_run.succeeded",
    ]


async def test_a_changed_schedule_drops_the_pending_firing_of_the_old_one(works_: Works):
    made = await create_deployment(works_)
    works_.clock.pass_by(minutes=10)
    await works_.deployments.update(
        TENANT,
        made.id,
        UpdateDeployment(schedule=ScheduleParams(expression="30 * * * *", timezone="UTC")),
    )
    await works_.fire_due()
    assert works_.sessions.starts == 0
    cleared = await works_.deployments.update(TENANT, made.id, UpdateDeployment(schedule=None))
    assert cleared.schedule is None
    works_.clock.pass_by(hours=2)
    await works_.fire_due()
    assert works_.sessions.starts == 0
