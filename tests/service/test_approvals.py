from pathlib import Path

import anyio
import pytest
from tests.api.approvals_api import PATH, Office, erasing, person, session_context
from tests.api.sessions_api import session, waiting
from tests.at_once import at_once
from tests.service.schedule_setup import Crash

from mainspring.core.errors import Forbidden, InvalidInput, StaleVersion
from mainspring.core.events import (
    AgentToolResult,
    AgentToolUse,
    ApprovalAnswered,
    ApprovalRequested,
    ThreadCreated,
    ToolCallAuthorized,
    ToolCallStarted,
    UserInterrupt,
    UserToolConfirmation,
)
from mainspring.core.tool import PersonQuestion
from mainspring.log.records import RecordChange, RecordQuery
from mainspring.log.task_groups import run_in_background
from mainspring.runtime.approvals import (
    ApprovalQuestion,
    answer_to,
    evidence_of,
    request_approval,
)
from mainspring.service.approvals.approval_policy import AnswerPermission, SetApprovalPolicy
from mainspring.service.approvals.approval_record import MAX_INPUT_BYTES, Approval, shorten_input
from mainspring.service.approvals.approvals import ApprovalAnswer, Approvals
from mainspring.service.approvals.reconciliation import NoNotifications
from mainspring.service.jobs.dispatcher import Job
from mainspring.service.jobs.embedded_dispatcher import EmbeddedDispatcher
from mainspring.service.sessions.event_sender import EventSender
from mainspring.service.sessions.events.event_content import SendConfirmation, SendInterrupt
from mainspring.service.sessions.session_params import ForkSession
from mainspring.service.storage.repository import ListQuery, Notification
from mainspring.testing import Scripted, calls, says

BOSS = person("boss", "operator")
ALLOW, DENY = ApprovalAnswer(result="allow"), ApprovalAnswer(result="deny")


async def approvals_of(context: Office, *, closed: bool = False) -> list[Approval]:
    listing = ListQuery(is_ascending=True, include_archived=closed)
    return list((await context.approvals.page(BOSS, listing)).data)


async def answers(context: Office, session_id: str) -> list[UserToolConfirmation]:
    found = await context.home.log.read(session_id, types=["user.tool_confirmation"])
    return [item.payload for item in found if isinstance(item.payload, UserToolConfirmation)]


async def set_policy(context: Office, **policy: object) -> None:
    await context.approvals.policies.set(BOSS, SetApprovalPolicy(**policy))  # pyright: ignore[reportArgumentType]


async def test_an_unanswered_approval_expires_once_and_the_agent_gets_a_denial(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        await set_policy(context, expires_after_seconds=3600)
        session_id = await context.asked(client)
        [approval] = await approvals_of(context)
        assert approval.expires_at is not None
        assert await context.attend() == 0
        context.later.put_on(hours=2)
        [job] = context.jobs.take("approval", context.later())
        await at_once(lambda _: context.approvals.attend(job), range(3))
        await context.settled(session_id)
        [said] = await answers(context, session_id)
        assert (said.result, said.answered_by) == ("deny", "expired")
        [result] = await context.home.log.read(session_id, types=["agent.tool_result"])
        assert isinstance(result.payload, AgentToolResult)
        assert "nobody answered within 1 hour" in str(result.payload.content)
        [closed] = await approvals_of(context, closed=True)
        assert (closed.status, closed.answered_by) == ("answered", "expired")
        expired = [item for item in context.notices.told_of if item.id == approval.id]
        assert [item.type for item in expired] == ["mainspring.approval_expired"]
        with pytest.raises(StaleVersion, match="nobody in time"):
            await context.approvals.answer(BOSS, approval.id, ALLOW)


async def test_a_call_of_a_subagent_is_listed_with_its_name_and_thread(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        made = await session(client)
        context.home.worker.is_asleep = True
        writer = await context.home.log.hold(made.id, owner="test")
        await writer.append(ThreadCreated(session_thread_id="sthr_2", agent_name="scout"))
        [call] = await writer.append(AgentToolUse(name="erase", input={}), thread_id="sthr_2")
        asked = ToolCallAuthorized(tool_use_id=call.id, decision="ask", gate="rule")
        await writer.append(asked, thread_id="sthr_2")
        await context.approvals.keeper.catch_up("acme", made.id)
        [approval] = await approvals_of(context)
        assert (approval.subagent, approval.session_thread_id) == ("scout", "sthr_2")
        await context.approvals.answer(BOSS, approval.id, ALLOW)
        [item] = await context.home.log.store.pending(made.id)
        assert item.thread_id == "sthr_2"


async def test_with_on_expiry_leave_an_approval_keeps_waiting(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        await set_policy(context, expires_after_seconds=60, on_expiry="leave")
        session_id = await context.asked(client)
        context.later.put_on(hours=1)
        assert await context.attend() == 0
        assert await context.approvals.keeper.sweep() == 0
        [approval] = await approvals_of(context)
        await context.approvals.answer(BOSS, approval.id, ALLOW)
        await context.settled(session_id)
        assert [answer.result for answer in await answers(context, session_id)] == ["allow"]


async def test_an_escalated_approval_notifies_others_and_needs_a_higher_role(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        await set_policy(
            context,
            escalate_after_seconds=600,
            escalate_to="the night shift",
            escalated_role="operator",
            expires_after_seconds=3600,
        )
        session_id = await context.asked(client)
        [approval] = await approvals_of(context)
        assert approval.may_answer.role == "user"
        context.later.put_on(minutes=11)
        [job] = context.jobs.take("approval", context.later())
        await at_once(lambda _: context.approvals.attend(job), range(3))
        assert [item.type for item in context.notices.told_of] == ["mainspring.approval_escalated"]
        [escalated] = await approvals_of(context)
        assert escalated.escalated_at is not None
        assert (escalated.escalate_to, escalated.may_answer.role) == ("the night shift", "operator")
        with pytest.raises(Forbidden, match="role operator"):
            await context.approvals.answer(person(), approval.id, ALLOW)
        sending = EventSender(
            context.home.sessions, AnswerPermission(context.home.log.store.records)
        )
        confirm = SendConfirmation(tool_use_id=approval.tool_use_id, result="allow")
        with pytest.raises(Forbidden, match="role operator"):
            await sending.send(person(), session_id, [confirm])
        context.later.put_on(hours=1)
        assert await context.attend() == 1
        await context.settled(session_id)
        assert [answer.answered_by for answer in await answers(context, session_id)] == ["expired"]


@pytest.mark.parametrize("dies_at", ["submit", "wake", "close"])
async def test_an_expiry_interrupted_by_a_crash_is_completed_once(tmp_path: Path, dies_at: str):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        await set_policy(context, expires_after_seconds=60)
        session_id = await context.asked(client)
        [approval] = await approvals_of(context)
        context.later.put_on(hours=1)
        job = Job(task="approval", key=approval.id, tenant="acme")

        async def die(*_: object, **__: object) -> None:
            raise Crash

        dying = Approvals(context.home.log, wake_session=die, clock=context.later)
        if dies_at == "submit":
            dying.keeper.sessions.get = die  # pyright: ignore[reportAttributeAccessIssue]
        if dies_at == "close":
            dying = Approvals(
                context.home.log, notification_writer=_DyingNotifications(), clock=context.later
            )
        with pytest.raises(Crash):
            await dying.attend(job)
        context.jobs.waiting.clear()
        assert await context.approvals.keeper.sweep() == 1
        await context.attend()
        context.home.worker.run(session_id)
        await context.settled(session_id)
        assert [answer.answered_by for answer in await answers(context, session_id)] == ["expired"]
        assert [item.type for item in context.notices.told_of] == ["mainspring.approval_expired"]
        assert await approvals_of(context) == []


class _DyingNotifications(NoNotifications):
    async def prepare_changes(self, *notices: Notification) -> list[RecordChange]:
        raise Crash


async def test_the_embedded_dispatcher_expires_approvals(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        engine = EmbeddedDispatcher(context.home.log.store.records, clock=context.later)
        approvals = Approvals(
            context.home.log,
            wake_session=context.home.worker.wake,
            put=engine.put,
            clock=context.later,
        )
        await set_policy(context, expires_after_seconds=3600)
        closing = anyio.Event()

        async def work() -> None:
            await engine.work(approvals.attend, concurrency=2, closing=closing)

        session_id = await _ask_and_register(context, approvals, client)
        context.later.put_on(hours=1)
        async with run_in_background(work):
            await context.home.until(session_id, "user.tool_confirmation")
        await context.home.worker.settled()
        assert [answer.answered_by for answer in await answers(context, session_id)] == ["expired"]


async def _ask_and_register(context: Office, approvals: Approvals, client: object) -> str:
    session_id = await context.asked(client)  # pyright: ignore[reportArgumentType]
    [approval] = await approvals_of(context)
    await approvals.keeper.put_next("acme", approval)
    return session_id


async def test_an_interrupt_voids_waiting_approvals(tmp_path: Path):
    async with (
        session_context(tmp_path, erasing("a", "b")) as context,
        context.home.client() as client,
    ):
        session_id = await context.asked(client)
        first, second = await approvals_of(context)
        await EventSender(
            context.home.sessions, AnswerPermission(context.home.log.store.records)
        ).send(BOSS, session_id, [SendInterrupt()])
        await context.settled(session_id)
        closed = await approvals_of(context, closed=True)
        assert [entry.status for entry in closed] == ["void", "void"]
        for item in (first, second):
            with pytest.raises(StaleVersion, match="no longer waits"):
                await context.approvals.answer(BOSS, item.id, DENY)


async def test_a_missing_approval_record_is_restored_by_the_sweep(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        session_id = await context.asked(client)
        await context.approvals.keeper.forget("acme", session_id)
        assert await approvals_of(context) == []
        await context.approvals.keeper.sweep()
        [approval] = await approvals_of(context)
        await context.approvals.answer(BOSS, approval.id, ALLOW)
        await context.home.worker.settled()
        await client.beta.sessions.delete(session_id)
        await context.approvals.keeper.catch_up("acme", session_id)
        assert await approvals_of(context, closed=True) == []


async def test_a_fork_has_its_own_approvals(tmp_path: Path):
    model = Scripted(calls("erase", x="a"), otherwise=says("Done."))
    async with session_context(tmp_path, model) as context, context.home.client() as client:
        session_id = await context.asked(client)
        forked = await context.home.sessions.fork(BOSS, session_id, ForkSession())
        await context.approvals.keeper.catch_up("acme", forked.id)
        assert [item.session_id for item in await approvals_of(context)] == [session_id]
        [call] = await waiting(client, forked.id)
        confirm = SendConfirmation(tool_use_id=call, result="allow")
        await EventSender(
            context.home.sessions, AnswerPermission(context.home.log.store.records)
        ).send(BOSS, forked.id, [confirm])  # of what it inherited
        await context.settled(forked.id)
        own = [item for item in await approvals_of(context) if item.session_id == forked.id]
        assert [item.tool_use_id for item in own] == [call]
        await context.approvals.answer(BOSS, own[0].id, ALLOW)
        await context.settled(forked.id)
        assert [item.session_id for item in await approvals_of(context)] == [session_id]


async def test_an_answer_is_in_the_inbox_and_off_the_list_before_the_session_runs(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        session_id = await context.asked(client)
        [approval] = await approvals_of(context)
        context.home.worker.is_asleep = True
        answered = await Approvals(context.home.log).answer(BOSS, approval.id, DENY)
        assert (answered.status, answered.answered_by) == ("answered", "key_boss:boss")
        assert await approvals_of(context) == []
        await context.approvals.keeper.catch_up("acme", session_id)
        assert await approvals_of(context) == []
        assert len(await context.home.log.store.pending(session_id)) == 1


async def test_a_job_for_an_unknown_approval_does_nothing(tmp_path: Path):
    async with session_context(tmp_path, erasing("a")) as context:
        await context.approvals.attend(Job(task="approval", key="appr_none", tenant="acme"))
        assert await context.home.log.store.records.list(RecordQuery(kind="approval")) == []


def test_a_long_input_is_shortened_and_marked():
    given = {"path": "a.txt", "content": "x" * MAX_INPUT_BYTES, "lines": list(range(1000))}
    shown, is_cut = shorten_input(given)
    assert is_cut
    assert shown["path"] == "a.txt"
    assert len(str(shown)) < 2000
    assert shorten_input({"path": "a.txt"}) == ({"path": "a.txt"}, False)


async def test_a_question_of_another_part_is_answered_with_a_choice_and_void_when_it_changes(
    tmp_path: Path,
):
    async with session_context(tmp_path, Scripted()) as context, context.home.client() as client:
        log, keeper = context.home.log, context.approvals.keeper
        made = await session(client)
        context.home.worker.is_asleep = True
        writer = await log.hold(made.id, owner="test")
        for diff in ("+a", "+b"):
            question = ApprovalQuestion(
                type="workflow_node",
                id="review",
                text="Merge it?",
                evidence=(evidence_of("diff", diff),),
                choices=("merge", "squash"),
            )
            await request_approval(log, writer, question)
            await keeper.catch_up("acme", made.id)
        await log.submit(made.id, UserInterrupt(), sender=BOSS.sender)  # of no thread's business
        void, open_ = await approvals_of(context, closed=True)
        assert (void.status, open_.status) == ("void", "waiting")
        assert (open_.name, open_.question, open_.choices) == (
            "workflow_node",
            "Merge it?",
            ("merge", "squash"),
        )
        assert open_.subject is not None
        assert [item.text for item in open_.subject.evidence] == ["+b"]
        with pytest.raises(StaleVersion):
            await context.approvals.answer(BOSS, void.id, ALLOW)
        async with context.http("acme:operator", x_name="boss") as http:
            path = f"{PATH}/{open_.id}/answer"
            refused = await http.post(path, json={"result": "allow"})
            assert refused.status_code == 400
            assert "choose one of merge, squash" in refused.text
            choice = {"result": "allow", "choice": "squash", "message": "go on"}
            closed = (await http.post(path, json=choice)).json()
            assert (closed["choice"], closed["message"]) == ("squash", "go on")
            assert (await http.post(path, json=choice)).status_code == 200
            other = await http.post(path, json={"result": "allow", "choice": "merge"})
            assert other.status_code == 409
        answer = await answer_to(log, made.id, question)
        assert answer is not None
        assert (answer.choice, answer.answered_by) == ("squash", "key_boss:boss")
        await writer.fold_inbox()
        assert await answer_to(log, made.id, question) == answer
        await writer.release()


async def test_a_question_of_a_call_is_answered_with_a_valid_form(tmp_path: Path):
    fields = {"n": {"type": "integer"}}
    schema: dict[str, object] = {"type": "object", "properties": fields, "required": ["n"]}
    async with session_context(tmp_path, erasing("a")) as context, context.home.client() as client:
        made = await session(client)
        context.home.worker.is_asleep = True
        writer = await context.home.log.hold(made.id, owner="test")
        [call] = await writer.append(AgentToolUse(name="count", input={}))
        await writer.append(ToolCallStarted(tool_use_id=call.id, idempotency_key="k"))
        for key in ("1", "2"):
            question = PersonQuestion(key=key, text=f"How many, {key}?", form_schema=schema)
            request = ApprovalRequested(
                approval_id=question.approval_id(call.id),
                subject=question.subject(call.id),
                question=question.text,
                form_schema=schema,
                tool_use_id=call.id,
            )
            await writer.append(request)
        for n in (1, 2):
            await context.approvals.keeper.catch_up("acme", made.id)
            [approval] = await approvals_of(context)
            assert (approval.question, approval.form_schema) == (f"How many, {n}?", schema)
            assert approval.subject is not None
            assert approval.subject.type == "elicitation"
            for wrong in (ALLOW, ApprovalAnswer(result="allow", form={"n": "three"})):
                with pytest.raises(InvalidInput, match=r"form\.n"):
                    await context.approvals.answer(BOSS, approval.id, wrong)
            given = ApprovalAnswer(result="allow", form={"n": n})
            closed = await context.approvals.answer(BOSS, approval.id, given)
            assert (closed.status, closed.form) == ("answered", {"n": n})
            assert await context.approvals.answer(BOSS, approval.id, given) == closed
            with pytest.raises(StaleVersion):
                await context.approvals.answer(BOSS, approval.id, DENY)
            [event] = await writer.fold_inbox()
            assert isinstance(event.payload, ApprovalAnswered)
            assert event.payload.answered_by == "key_boss:boss"
