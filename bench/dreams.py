"""Whether a dream helps: a stream of sessions with a mistake that recurs, then the same work before
and after the dream, scored by the evals port. Sessions, recall, dream and graders are real; the
model is simulated: it succeeds nine times in ten if it was shown what helps, else four times.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from report import Measure

from mainspring.capabilities.providers.scripted import ScriptAnswer, Scripted, says
from mainspring.config import read_settings
from mainspring.core import clock, events, ids
from mainspring.core.content import TextBlock
from mainspring.core.events import DreamCreated
from mainspring.core.model import Request
from mainspring.core.sender import Origin, Sender
from mainspring.improve.dreams.dream_log import create_dream
from mainspring.improve.dreams.dreamer import Dreamer
from mainspring.improve.dreams.folder_store import FolderStore, SuiteTest, folder_texts
from mainspring.improve.evals.runs.runner import SuiteRunner
from mainspring.improve.evals.statistics import mean_interval
from mainspring.improve.evals.suites.suite_files import read_suite
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.memory_folder import MemoryFolder
from mainspring.runtime.run_options import RunOptions
from mainspring.wiring.eval_assembly import open_suite_runner
from mainspring.wiring.stores import open_log

SESSIONS, CASES = 12, 60
HELPED, ALONE = 0.9, 0.4
ANNA = Sender(kind="person", id="cli:bench")
FAILS, WORKS = "pnpm test billing", "pnpm test billing -- --run"
HABIT = ("git add .", "git commit --no-verify -m wip", "git push --force")
MODEL = "scripted:bench"


async def measure() -> list[Measure]:
    with TemporaryDirectory() as place:
        return await _measure(Path(place))


async def _measure(place: Path) -> list[Measure]:
    (place / "agent.yaml").write_text(f"name: bench\nmodel: {MODEL}\n")
    suite = _write_suite(place)
    settings = read_settings(environ={"HOME": str(place / "home")}, folder=place)
    folder = MemoryFolder(place / "memory", clock=clock.now, new_id=ids.new_id)
    folder.root.mkdir()

    @asynccontextmanager
    async def open_runner(memory: Path) -> AsyncGenerator[SuiteRunner, None]:
        options = RunOptions(memory=memory, model="scripted:demo")
        async with open_suite_runner(settings, options) as runner:
            runner.runtime.models.put(runner.agent.model, Scripted(otherwise=_answer))
            yield runner

    store = FolderStore(folder)
    test = SuiteTest(
        store=store,
        suite_file=suite,
        place=place / "copies",
        budget_usd=None,
        open_runner=open_runner,
    )
    async with open_log(settings) as log:
        sessions = [await _session(log, number) for number in range(SESSIONS)]
        created = DreamCreated(
            dream_id="drm_bench", store_id="agent", session_ids=tuple(sessions), policy="apply"
        )
        await create_dream(log, created, store="bench", sender=ANNA)
        dreamer = Dreamer(log=log, store=store, clock=clock.now, score=test)
        dream = await dreamer.run("drm_bench")
    assert dream.proposed is not None
    assert dream.proposed.score is not None
    score, texts = dream.proposed.score, "".join(folder_texts(folder).values())
    before, after = round(score.before * CASES), round(score.after * CASES)
    wins = [1.0] * after + [0.0] * (CASES - after)
    losses = [1.0] * before + [0.0] * (CASES - before)
    low = mean_interval(wins).low - mean_interval(losses).high
    return [
        Measure(
            name="dream, completion after it",
            value=100 * score.after,
            unit="%",
            detail=f"before it {100 * score.before:.0f} %; {CASES} tasks each",
        ),
        Measure(
            name="dream, gain at least",
            value=100 * low,
            unit="points",
            target=">= 0",
            detail="lower end of one 95 % interval less upper end of the other",
        ),
        Measure(
            name="dream, bad habits in memory",
            value=float("--no-verify" in texts) + float("--force" in texts),
            unit="habits",
            target="<= 0",
            detail=f"planted in {SESSIONS} sessions with good outcomes",
        ),
    ]


def _write_suite(place: Path):
    cases = [
        {
            "id": f"c{number}",
            "input": f"Task {number}: run the billing tests with pnpm.",
            "graders": [{"type": "contains", "text": "all passed"}],
        }
        for number in range(CASES)
    ]
    file = place / "evals/billing.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({"cases": cases, "parallel": 4}))
    return read_suite(file)


def _answer(request: Request) -> ScriptAnswer:
    """Luck is a function of the task, so that both runs have the same."""
    shown = str(request.messages)
    task = shown[shown.rfind("Task ") :].split(":", maxsplit=1)[0]
    luck = int(hashlib.sha256(task.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
    chance = HELPED if WORKS in shown else ALONE
    return says("all passed" if luck < chance else "the tests hang")


async def _session(log: SessionLog, number: int) -> str:
    created = events.SessionCreated(origin=Origin(type="user"))
    row = await log.create(created, sender=ANNA)
    message = events.UserMessage(content=(TextBlock(f"Fix billing bug {number}."),))
    await log.submit(row.id, message, sender=ANNA)
    async with hold_session(log, row.id) as writer:
        await writer.fold_inbox()
        for command, fails in ((FAILS, True), (WORKS, False), *((each, False) for each in HABIT)):
            call = events.AgentToolUse(name="bash", input={"command": command})
            (event,) = await writer.append(call)
            result = events.AgentToolResult(
                tool_use_id=event.id, is_error=fails, error="failed" if fails else None
            )
            await writer.append(result)
        await writer.append(
            events.OutcomeEvaluationEnded(
                outcome_evaluation_start_id="sevt_0",
                outcome_id=f"outc_{number}",
                iteration=0,
                result="satisfied",
                explanation="",
                usage=events.Usage(),
            ),
            events.StatusIdle(stop_reason=events.StopReason(type="end_turn"), reason="completed"),
        )
    return row.id
