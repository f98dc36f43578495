"""What the log's tests tell: short sessions in a SQLite file, and how to meddle with that file."""

import sqlite3
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path

from tests.keys import KEY

from mainspring.core.content import TextBlock, plain_text
from mainspring.core.envelope import Event
from mainspring.core.events import AgentMessage, UserMessage
from mainspring.log.event_chain import Scrub, no_scrub
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite


def asks(text: str) -> UserMessage:
    return UserMessage(content=(TextBlock(text),))


def says(text: str) -> AgentMessage:
    return AgentMessage(content=(TextBlock(text),))


def texts(events: Iterable[Event]) -> list[str]:
    """What was said, in order; other events are passed over."""
    return [
        plain_text(event.payload.content)
        for event in events
        if isinstance(event.payload, UserMessage | AgentMessage)
    ]


@asynccontextmanager
async def opened(path: Path, *, scrub: Scrub = no_scrub) -> AsyncGenerator[SessionLog]:
    async with open_sqlite(path, key=KEY) as store:
        yield SessionLog(store, scrub=scrub)


async def tell(log: SessionLog, session_id: str, *said: str) -> list[Event]:
    """Append one message for each text, as a worker would, and let go again."""
    writer = await log.hold(session_id, owner="teller")
    events = [event for text in said for event in await writer.append(says(text))]
    await writer.release()
    return events


async def told(log: SessionLog, *said: str) -> str:
    """A new session in which this was said: events 2, 3, ..."""
    session = await log.create()
    await tell(log, session.id, *said)
    return session.id


def meddle(path: Path, *statements: str | tuple[str, tuple[object, ...]]) -> None:
    """Change the file behind the store's back; each statement must have changed something."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            sql, values = (statement, ()) if isinstance(statement, str) else statement
            assert connection.execute(sql, values).rowcount > 0, sql
        connection.commit()
