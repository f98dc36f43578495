"""What a person's search over past conversations finds, through the path of `memory search`: the
log's word index, the messages around its hits, and one ranking. Each LoCoMo conversation is a store
of its own: one speaker is the person, the other the agent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from mainspring.core.content import TextBlock
from mainspring.core.events import AgentMessage, SessionCreated, UserMessage
from mainspring.core.sender import Sender
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite.store import open_sqlite
from mainspring.runtime.memory.search.memory_index import MemoryIndex
from mainspring.runtime.memory.search.past_sessions import search_sessions_of


@dataclass(slots=True)
class TurnClock:
    """The time of the conversation's turns."""

    time: datetime

    def __call__(self) -> datetime:
        return self.time


async def search_past_sessions(
    turns: Sequence[tuple[str, int, str, str, datetime]], questions: Sequence[str]
) -> list[tuple[list[str], float]]:
    """The ids of the turns that each question finds, and the seconds of CPU. A turn:
    id, session, speaker, text, time."""
    person = turns[0][2]
    sender = Sender(kind="person", id=f"cli:{person.lower()}")
    ids: dict[str, str] = {}
    with TemporaryDirectory() as place:
        async with open_sqlite(Path(place) / "log.db") as store:
            clock = TurnClock(turns[0][4])
            log = SessionLog(store, clock=clock)
            for number in dict.fromkeys(turn[1] for turn in turns):
                own = [turn for turn in turns if turn[1] == number]
                clock.time = own[0][4]
                row = await log.create(SessionCreated(agent_name="companion"), sender=sender)
                writer = await log.hold(row.id, owner="bench")
                for id_, _, speaker, text, _ in own:
                    said = (TextBlock(f"{speaker}: {text}"),)
                    if speaker == person:
                        await log.submit(row.id, UserMessage(content=said), sender=sender)
                        events = await writer.fold_inbox()
                    else:
                        events = await writer.append(AgentMessage(content=said))
                    ids[events[-1].id] = id_
            found: list[tuple[list[str], float]] = []
            for question in questions:
                began = time.process_time()
                past = await search_sessions_of(log, sender.id, question)
                with closing(MemoryIndex({})) as index:
                    hits = index.search(question, [], 60, past)
                found.append(([ids[hit.hash] for hit in hits], time.process_time() - began))
            return found
