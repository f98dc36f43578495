"""kill -9 at every instant of work for an outcome: it is graded as often as it should be, and the
verdicts are the same."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.crash.stores import open_store
from tests.harness.killable_outcome_worker import RUBRIC, live
from tests.harness.killable_worker import Fuse, Lives, Order, lives
from tests.senders import TESTER

from mainspring.core.content import plain_text
from mainspring.core.events import (
    AgentMessage,
    ModelRequestEnded,
    OutcomeEvaluationEnded,
    OutcomeEvaluationStarted,
)
from mainspring.harness.state.outcome_state import outcome_definition
from mainspring.log.session_log import SessionLog
from mainspring.log.verify import verify


async def new_order(log: SessionLog, folder: Path, url: str) -> Order:
    session = await log.create()
    await log.submit(session.id, outcome_definition("A text", RUBRIC), sender=TESTER)
    return Order(url=url, session_id=session.id, ledger=str(folder / session.id))


async def check(log: SessionLog, session_id: str) -> None:
    assert (await verify(log, session_id)).ok
    payloads = [event.payload for event in await log.read(session_id)]
    verdicts = [item for item in payloads if isinstance(item, OutcomeEvaluationEnded)]
    starts = [item for item in payloads if isinstance(item, OutcomeEvaluationStarted)]
    words = [plain_text(item.content) for item in payloads if isinstance(item, AgentMessage)]
    assert [(item.iteration, item.result) for item in verdicts] == [
        (1, "needs_revision"),
        (2, "satisfied"),
    ]
    assert [item.iteration for item in starts] == [1, 2]
    assert words == ["Version 1", "Version 2"]
    paid = [
        item.purpose
        for item in payloads
        if isinstance(item, ModelRequestEnded) and not item.is_error
    ]
    assert paid.count(None) == 2
    assert paid.count("grade") == 2  # a reply is in the log together with its verdict


@pytest.mark.parametrize(
    ("where", "every"),
    [
        pytest.param("before write", 1, marks=pytest.mark.slow),
        pytest.param("after write", 1, marks=pytest.mark.slow),
        pytest.param("delta", 1, marks=pytest.mark.slow),
        ("before effect", 1),
        ("after effect", 1),
    ],
)
async def test_an_outcome_killed_at_any_point_is_graded_as_if_undisturbed(
    tmp_path: Path, where: str, every: int
):
    url = str(tmp_path / "log.db")
    async with open_store(url) as store:
        log = SessionLog(store)
        undisturbed, fuse = await new_order(log, tmp_path, url), Fuse("", 0)
        await live(undisturbed, fuse)
        await check(log, undisturbed.session_id)
        assert fuse.passed[where] >= 2
        process: Lives[Order]
        with lives(Order, "tests.harness.killable_outcome_worker") as process:
            for number in range(1, fuse.passed[where] + 1, every):
                order = await new_order(log, tmp_path, url)
                assert process.live(replace(order, where=where, number=number)), "was not killed"
                assert not process.live(order)
                await check(log, order.session_id)
