"""Runs a dream: reads sessions, proposes changes, tests them, and applies them if it may.

Each step is an event of the dream's own log, so that after a crash the next process continues with
the missing step: no change is made twice, and no answer of a model is paid for twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from mainspring.core.clock import Clock
from mainspring.core.content import TextBlock
from mainspring.core.errors import InvalidInput, ProviderFailed, SessionNotFound
from mainspring.core.events import (
    AgentMessage,
    DreamApplied,
    DreamProposed,
    DreamRolledBack,
    DreamScore,
    ModelRequestEnded,
    ModelRequestStarted,
    Usage,
)
from mainspring.core.model import Request
from mainspring.improve.dreams.dream_log import (
    Dream,
    dream_session,
    encode_edits,
    read_dream,
    read_edits,
)
from mainspring.improve.dreams.memory_upkeep import Upkeep, archive_outdated
from mainspring.improve.dreams.model_lessons import AskDream, model_lessons
from mainspring.improve.evals.scoring.judge_calls import RunBudget, new_request
from mainspring.improve.session_lessons import LessonSession, lessons
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.log.writer import Writer
from mainspring.runtime.memory.learning.consolidation import Consolidation
from mainspring.runtime.memory.learning.memory_edits import AppliedEdits, MemoryEdit
from mainspring.runtime.memory.recall import UtilityValues
from mainspring.runtime.model_question import complete, reply_text
from mainspring.runtime.session_context import Models

MAX_SESSIONS = 100  # the Managed Agents API's own limit
PURPOSE = "dream"
_MAX_TOKENS = 4_000  # of the proposals for one batch

Score: TypeAlias = Callable[[Sequence[MemoryEdit]], Awaitable[DreamScore | None]]
"""Runs a suite with the memories as they are and with the edits; `None` if there is no result."""


class DreamStore(Protocol):
    """The memories that a dream reads and may change."""

    async def texts(self) -> Mapping[str, str]:
        """The files by path."""
        ...

    async def apply(self, dream_id: str, edits: Sequence[MemoryEdit]) -> AppliedEdits:
        """Apply edits; repeating it for the same dream changes nothing."""
        ...

    async def revert(self, versions: Sequence[str], reason: str) -> list[str]:
        """Restore memories as they were before these versions, unless they have changed since;
        return the ids of the new versions."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dreamer:
    log: SessionLog
    store: DreamStore
    clock: Clock
    models: Models | None = None
    utility: UtilityValues = field(default_factory=UtilityValues)
    score: Score | None = None
    report: Callable[[str], None] = lambda _: None

    async def run(self, dream_id: str) -> Dream:
        """Run a dream that was created, or continue it.

        Raises: LeaseHeld: another process runs it. InvalidInput: there is no such dream.
        """
        await read_dream(self.log, dream_id)
        async with hold_session(self.log, dream_session(dream_id)) as writer:
            dream = await read_dream(self.log, dream_id)
            if dream.proposed is None:
                dream = await self._propose(dream, writer)
            if dream.status == "proposed" and _is_worse(dream):
                score = dream.proposed and dream.proposed.score
                await writer.append(DreamRolledBack(dream_id=dream_id, reason=_worse_text(score)))
            elif dream.status == "proposed" and dream.created.policy == "apply":
                await self._apply(dream, writer)
        return await read_dream(self.log, dream_id)

    async def apply(self, dream_id: str) -> Dream:
        """Apply the edits of a dream that waits for review.

        Raises: InvalidInput: it does not wait for review.
        """
        async with hold_session(self.log, dream_session(dream_id)) as writer:
            dream = await read_dream(self.log, dream_id)
            if dream.status != "proposed":
                raise InvalidInput(f"dream {dream_id} is {dream.status}: it has nothing to apply")
            await self._apply(dream, writer)
        return await read_dream(self.log, dream_id)

    async def roll_back(self, dream_id: str, reason: str) -> Dream:
        """Revert the changes of a dream, or reject its proposal.

        Raises: InvalidInput: it was rolled back, or has proposed nothing yet.
        """
        async with hold_session(self.log, dream_session(dream_id)) as writer:
            dream = await read_dream(self.log, dream_id)
            if dream.status not in ("proposed", "applied"):
                raise InvalidInput(
                    f"dream {dream_id} is {dream.status}: it has nothing to roll back"
                )
            versions = () if dream.applied is None else dream.applied.versions
            version_ids = tuple(await self.store.revert(versions, reason))
            await writer.append(
                DreamRolledBack(dream_id=dream_id, reason=reason, versions=version_ids)
            )
        return await read_dream(self.log, dream_id)

    async def _propose(self, dream: Dream, writer: Writer) -> Dream:
        records = await self._records(dream.created.session_ids)
        self.report(f"read {len(records)} sessions")
        candidates = lessons(records)
        if dream.created.model is not None and self.models is not None:
            candidates += await model_lessons(
                [record for record in records if record.is_learned_from],
                self._asker(dream, writer, self.models, dream.created.model),
                dream_id=dream.id,
                instructions=dream.created.instructions or "",
            )
        consolidation = Consolidation(await self.store.texts())
        for candidate in candidates:
            consolidation.add(candidate)
        scope = dream.created.store_id
        archive_outdated(consolidation, Upkeep(now=self.clock(), scope=scope, utility=self.utility))
        edits = consolidation.edits()
        self.report(f"proposing {len(edits)} changes")
        score = await self.score(edits) if self.score is not None and edits else None
        blob = await writer.put_blob(encode_edits(edits), media_type="application/json")
        proposed = DreamProposed(
            dream_id=dream.id, proposal=blob.hash, changes=len(edits), score=score
        )
        await writer.append(proposed)
        return await read_dream(self.log, dream.id)

    async def _apply(self, dream: Dream, writer: Writer) -> None:
        edits = await read_edits(self.log, dream)
        applied = await self.store.apply(dream.id, edits)
        await writer.append(
            DreamApplied(
                dream_id=dream.id,
                versions=tuple(version.id for version in applied.versions),
                refused=tuple(item.path for item in applied.refused),
            )
        )

    async def _records(self, session_ids: Sequence[str]) -> list[LessonSession]:
        records: list[LessonSession] = []
        for session_id in session_ids:
            with suppress(SessionNotFound):  # deleted since
                records.append(LessonSession(session_id, await self.log.read(session_id)))
        return records

    def _asker(self, dream: Dream, writer: Writer, models: Models, model: str) -> AskDream:
        name = models.resolve(model)
        limit = dream.created.budget_usd
        budget = RunBudget(None if limit is None else Decimal(limit), spent_usd=dream.cost_usd)

        async def ask(request_id: str, system: str, question: str) -> str | None:
            if request_id in dream.answers:
                return dream.answers[request_id]
            request, charge = new_request(
                models, name, system, question, max_tokens=_MAX_TOKENS, request_id=request_id
            )
            if (refusal := await budget.reserve(charge)) is not None:
                self.report(refusal)
                return None
            started = ModelRequestStarted(model=name, purpose=PURPOSE, request_id=request_id)
            (event,) = await writer.append(started)
            answer, ended = await _answer(models, request, event.id)
            await budget.settle(charge.reservation_id, Decimal(ended.cost_usd or 0))
            messages = [] if answer is None else [AgentMessage(content=(TextBlock(answer),))]
            await writer.append(*messages, ended)
            return answer

        return ask


async def _answer(
    models: Models, request: Request, start_id: str
) -> tuple[str | None, ModelRequestEnded]:
    ended = ModelRequestEnded(
        model_request_start_id=start_id,
        model_usage=Usage(),
        is_error=True,
        purpose=PURPOSE,
        model=request.model,
        cost_usd="0",
    )
    try:
        reply = await complete(models, request)
    except ProviderFailed as error:
        return None, replace(ended, stop_reason=error.kind)
    except InvalidInput:  # no key or no such model: the dream continues without a model
        return None, replace(ended, stop_reason="unavailable")
    cost = str(models.cost(reply.model, reply.usage))
    ended = replace(ended, model_usage=reply.usage, is_error=False, cost_usd=cost)
    return reply_text(reply), ended


def _is_worse(dream: Dream) -> bool:
    score = None if dream.proposed is None else dream.proposed.score
    return score is not None and score.after < score.before


def _worse_text(score: DreamScore | None) -> str:
    if score is None:
        return ""
    return f"suite {score.suite} fell from {score.before:.0%} to {score.after:.0%}; nothing changed"
