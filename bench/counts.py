"""What a piece of work asks for: tasks, hops to threads, queries and commits.

Counting slows down what is counted: no time is measured meanwhile.
"""

# ruff: noqa: ANN401 (what stands in for a function of a library takes whatever that one takes)

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import anyio.to_thread
import psycopg

KINDS = ("tasks", "thread hops", "queries", "commits")


@contextmanager
def counted_store(counts: Counter[str]) -> Generator[None]:
    """Count what is asked of the database by all connections that are opened in the block."""
    connect, execute = sqlite3.connect, psycopg.AsyncCursor.execute

    def traced(*given: Any, **options: Any) -> sqlite3.Connection:  # as sqlite3's own
        connection = connect(*given, **options)
        connection.set_trace_callback(lambda statement: counts.update([_kind(statement)]))
        return connection

    async def executed(cursor: Any, query: Any, *given: Any, **options: Any) -> Any:  # psycopg's
        counts[_kind(str(query))] += 1
        if any(word in str(query) for word in ("insert into", "update mainspring", "delete from")):
            counts["commits"] += 1  # each statement is a transaction of its own
        return await execute(cursor, query, *given, **options)

    with patch("sqlite3.connect", traced), patch("psycopg.AsyncCursor.execute", executed):
        yield


@contextmanager
def counted_tasks(counts: Counter[str]) -> Generator[None]:
    """Count tasks and hops to threads, in a running event loop."""
    loop, run_sync = asyncio.get_running_loop(), anyio.to_thread.run_sync
    in_executor = loop.run_in_executor

    def task(
        loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
    ) -> asyncio.Task[Any]:  # whatever the task is of
        counts["tasks"] += 1
        return asyncio.Task(coroutine, loop=loop, **options)

    async def hop(function: Callable[..., Any], *given: Any, **options: Any) -> Any:  # anyio's
        counts["thread hops"] += 1
        return await run_sync(function, *given, **options)

    def hand_over(executor: Any, function: Any, *given: Any) -> Any:  # asyncio's, used by aiohttp
        counts["thread hops"] += 1
        return in_executor(executor, function, *given)

    before = loop.get_task_factory()
    loop.set_task_factory(task)
    try:
        with (
            patch("anyio.to_thread.run_sync", hop),
            patch.object(loop, "run_in_executor", hand_over),
        ):
            yield
    finally:
        loop.set_task_factory(before)


def _kind(statement: str) -> str:
    word = statement.lstrip().partition(" ")[0].lower()
    return {"commit": "commits", "begin": "begins", "pragma": "polls"}.get(word, "queries")
