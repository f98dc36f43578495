"""A log with sessions of a person, and a folder of memories that dreams change."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mainspring.core import events
from mainspring.core.content import TextBlock
from mainspring.core.events import DreamCreated, KnownPayload
from mainspring.core.sender import Origin, OriginType, Sender
from mainspring.improve.dreams.dream_log import create_dream
from mainspring.improve.dreams.dreamer import Dreamer
from mainspring.log.session_lease import hold_session
from mainspring.log.session_log import SessionLog
from mainspring.runtime.memory.memory_folder import MemoryFolder

ANNA = Sender(kind="person", id="cli:anna")
NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
IDLE = events.StatusIdle(stop_reason=events.StopReason(type="end_turn"), reason="completed")


@dataclass
class World:
    log: SessionLog
    folder: MemoryFolder
    dreamer: Dreamer

    async def session(
        self, *said: str, commands: Sequence[str] = (), origin: OriginType = "user", ends: str = ""
    ) -> str:
        """What a person said, then commands; one that begins with `!` fails. `ends`: the result of
        its outcome."""
        created = events.SessionCreated(origin=Origin(type=origin))
        row = await self.log.create(created, sender=ANNA)
        for text in said:
            message = events.UserMessage(content=(TextBlock(text),))
            await self.log.submit(row.id, message, sender=ANNA)
        async with hold_session(self.log, row.id) as writer:
            await writer.fold_inbox()
            for command in commands:
                call = events.AgentToolUse(name="bash", input={"command": command.lstrip("!")})
                (event,) = await writer.append(call)
                failed = command.startswith("!")
                await writer.append(
                    events.AgentToolResult(
                        tool_use_id=event.id, is_error=failed, error="failed" if failed else None
                    )
                )
            await writer.append(*_outcome(row.id, ends), IDLE)
        return row.id

    async def dream(self, *sessions: str, policy: str = "review", **more: object) -> DreamCreated:
        created = DreamCreated(
            dream_id="drm_1", store_id="agent", session_ids=sessions, policy=policy, **more  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
        await create_dream(self.log, created, store="test", sender=ANNA)
        return created

    def texts(self) -> dict[str, str]:
        return {path: self.folder.text(path) for path in self.folder.paths()}


def _outcome(session_id: str, result: str) -> Sequence[KnownPayload]:
    if not result:
        return []
    return [
        events.OutcomeEvaluationEnded(
            outcome_evaluation_start_id="sevt_0",
            outcome_id=f"outc_{session_id}",
            iteration=0,
            result=result,  # pyright: ignore[reportArgumentType]
            explanation="",
            usage=events.Usage(),
        )
    ]
