"""Whatever comes in whatever order, each call has one outcome."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

import anyio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.approvals_api import Office, erasing, person, session_context
from tests.property_examples import examples

from mainspring.core.errors import MainspringError
from mainspring.core.events import AgentToolResult, ToolCallStarted, UserToolConfirmation
from mainspring.service.approvals.approval_policy import AnswerPermission, SetApprovalPolicy
from mainspring.service.approvals.approval_record import Approval
from mainspring.service.approvals.approvals import ApprovalAnswer
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_content import SendConfirmation, SendInterrupt
from mainspring.service.storage.repository import ListQuery

Deed: TypeAlias = Literal[
    "allow", "deny", "send", "expire", "interrupt", "run", "catch_up", "sweep"
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("allow", "deny", "send", "expire", "interrupt", "run", "catch_up", "sweep")
        ),
        st.integers(0, 1),
        st.sampled_from(("olga", "vera")),
    ),
    min_size=3,
    max_size=8,
)
BOSS = person("boss", "operator")


class ApprovalHistory:
    def __init__(self, context: Office, session_id: str, calls: list[Approval]) -> None:
        self.context = context
        self.session_id = session_id
        self.calls = calls
        self.accepted: list[tuple[str, str, str]] = []

    async def do(self, deed: Deed, which: int, name: str) -> None:
        keeper, approval = self.context.approvals.keeper, self.calls[which]
        match deed:
            case "allow" | "deny":
                await self.context.approvals.answer(
                    person(name), approval.id, ApprovalAnswer(result=deed)
                )
                self.accepted.append((approval.tool_use_id, deed, f"key_{name}:{name}"))
            case "send":
                sent = SendConfirmation(tool_use_id=approval.tool_use_id, result="allow")
                await EventSender(
                    self.context.home.sessions,
                    AnswerPermission(self.context.home.log.store.records),
                ).send(person(name), self.session_id, [sent])
                self.accepted.append((approval.tool_use_id, "allow", f"key_{name}:{name}"))
            case "expire":
                self.context.later.put_on(hours=1)
                job = Job(task="approval", key=approval.id, tenant="acme")
                await self.context.approvals.attend(job)
            case "interrupt":
                sending = EventSender(
                    self.context.home.sessions,
                    AnswerPermission(self.context.home.log.store.records),
                )
                await sending.send(person(name), self.session_id, [SendInterrupt()])
            case "run":
                await self.run()
            case "catch_up":
                await keeper.catch_up("acme", self.session_id)
            case "sweep":
                await keeper.sweep()

    async def run(self) -> None:
        worker = self.context.home.worker
        worker.is_asleep = False
        worker.run(self.session_id)
        await worker.settled()
        worker.is_asleep = True


async def play_steps(folder: Path, steps: list[tuple[Deed, int, str]]) -> None:
    async with (
        session_context(folder, erasing("a", "b")) as context,
        context.home.client() as client,
    ):
        await context.approvals.policies.set(BOSS, SetApprovalPolicy(expires_after_seconds=60))
        session_id = await context.asked(client)
        listing = ListQuery(is_ascending=True, include_archived=True)
        calls = list((await context.approvals.page(BOSS, listing)).data)
        assert len(calls) == 2
        context.home.worker.is_asleep = True
        story = ApprovalHistory(context, session_id, calls)
        for deed, which, name in steps:
            try:
                await story.do(deed, which, name)
            except MainspringError:
                continue  # refused: it must not count
        for which in (0, 1):
            await story.do("expire", which, "olga")
        await story.run()
        await context.approvals.keeper.catch_up("acme", session_id)
        await check(story, listing)


async def check(story: ApprovalHistory, listing: ListQuery) -> None:
    log = await story.context.home.log.read(story.session_id)
    payloads = [event.payload for event in log]
    said = {
        payload.tool_use_id: (payload.tool_use_id, payload.result, payload.answered_by)
        for payload in payloads
        if isinstance(payload, UserToolConfirmation)
    }
    confirmed = Counter(e.tool_use_id for e in payloads if isinstance(e, UserToolConfirmation))
    settled = Counter(e.tool_use_id for e in payloads if isinstance(e, AgentToolResult))
    started = Counter(e.tool_use_id for e in payloads if isinstance(e, ToolCallStarted))
    assert settled == dict.fromkeys({call.tool_use_id for call in story.calls}, 1)
    assert set(confirmed.values()) <= {1}
    assert set(started.values()) <= {1}
    assert set(story.accepted) <= set(said.values())
    for kept in (await story.context.approvals.page(BOSS, listing)).data:
        told = said.get(kept.tool_use_id)
        assert kept.status == ("void" if told is None else "answered")
        assert told is None or (told[1], told[2]) == (kept.result, kept.answered_by)
    allowed = {id_ for id_, result, _ in said.values() if result == "allow"}
    assert set(started) <= allowed


@settings(max_examples=examples(0.25), suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_any_order_of_answers_gives_each_call_one_outcome(steps: list[tuple[Deed, int, str]]):
    with TemporaryDirectory() as folder:
        anyio.run(play_steps, Path(folder), steps)
