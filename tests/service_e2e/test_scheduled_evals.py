"""A suite that a deployment runs in the service, killed in the middle: it is run and paid once, and
a webhook is told that it went wrong."""

import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import anyio
import pytest
import yaml
from tests.keys import KEY
from tests.service.receiver import Receiver, holds, receiving
from tests.service_e2e.service_processes import SECONDS, Stage, message

from mainspring.core.events import EvalCaseEnded, EvalRunEnded
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite

CASES = 6
LOOPBACK = ("--allow-network", "127.0.0.0/8")
ACTION = {
    "type": "eval",
    "suite": "basics",
    "model": "ollama:down,ollama:test",
    "is_drill": True,
}


def write_agent(stage: Stage) -> None:
    cases = [{"id": f"c{number}", "input": "say yes\nsay no"} for number in range(CASES)]
    graders = [{"type": "contains", "text": "something else"}]
    suite = {"graders": graders, "cases": cases, "parallel": 1}
    (stage.folder / "agent.yaml").write_text("name: clerk\n")
    (stage.folder / "evals").mkdir()
    (stage.folder / "evals/basics.yaml").write_text(yaml.safe_dump(suite))


async def wait_for_cases(stage: Stage, count: int) -> None:
    file = stage.folder / ".mainspring/mainspring.db"
    with anyio.fail_after(SECONDS):
        while True:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
                query = "select count(*) from event where type = 'eval_run.case_ended'"
                if int(store.execute(query).fetchone()[0]) >= count:
                    return
            await anyio.sleep(0.01)


async def wait_for_alarm(receiver: Receiver) -> tuple[dict[str, str], str]:
    with anyio.fail_after(SECONDS):
        while not receiver.got:  # noqa: ASYNC110 (what a receiver gets has no event)
            await anyio.sleep(0.02)
    return receiver.got[0]


@pytest.mark.slow
async def test_a_scheduled_drill_survives_a_kill_and_its_alarm_is_signed(stage: Stage):
    write_agent(stage)
    async with receiving() as receiver:
        async with stage.serve(*LOOPBACK) as first, first.client() as client:
            body = {"url": receiver.url, "event_types": ["mainspring.alarm_raised"]}
            hook: Any = await client.post("/v1/mainspring/webhooks", cast_to=object, body=body)
            agent = await client.beta.agents.create(name="clerk", model="claude-sonnet-4-5")
            environment = await client.beta.environments.create(name="clerk")
            deployment = await client.beta.deployments.create(
                name="drill",
                agent=agent.id,
                environment_id=environment.id,
                initial_events=[message("go")],
                extra_body={"action": ACTION},
            )
            run = await client.beta.deployments.run(deployment.id)
            await wait_for_cases(stage, 2)
            first.process.kill()
            await first.process.wait()
        async with stage.serve(*LOOPBACK) as second, second.client() as client:
            headers, told = await wait_for_alarm(receiver)
            page: Any = await client.get("/v1/mainspring/alarms", cast_to=object)
    assert holds(hook["secret"], headers, told)
    [alarm] = page["data"]
    assert alarm["id"] in told
    assert (alarm["run_id"], alarm["subject"]["type"]) == (run.session_id, "drill")
    async with open_sqlite(stage.folder / ".mainspring/mainspring.db", key=KEY) as store:
        payloads = [event.payload for event in await SessionLog(store).read(str(run.session_id))]
    ended = Counter(item.case_id for item in payloads if isinstance(item, EvalCaseEnded))
    assert ended == {f"c{number}": 1 for number in range(CASES)}
    assert sum(isinstance(item, EvalRunEnded) for item in payloads) == 1
