"""A commit that fails ends the run with its own error, whoever stood in line behind it."""

from pathlib import Path
from typing import Literal, cast

import anyio
import anyio.lowlevel
import pytest
from tests.harness.session_setup import echo, stage, texts

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.errors import StoreFull
from mainspring.core.tool import Traits
from mainspring.harness.stop_reasons import Ended
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Append, Store


class StoreFullAtResult:
    """A store that has no room left when the first result of a call is written."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, append: Append) -> None:
        if any(row.type == "agent.tool_result" for row in append.rows):
            for _ in range(20):  # the other calls end meanwhile, and wait for this write
                await anyio.lowlevel.checkpoint()
            raise StoreFull("no room")
        await self._store.append(append)


@pytest.mark.parametrize("on_interrupt", ["cancel", "block"])
async def test_a_full_store_is_reported_as_the_reason_with_several_pending_writes(
    tmp_path: Path, on_interrupt: Literal["cancel", "block"]
):
    traits = Traits(concurrent=True, in_doubt="retry", on_interrupt=on_interrupt)
    line = calls("echo", x=1) + calls("echo", x=2) + calls("echo", x=3)
    async with stage(tmp_path, Scripted(line, says("Done.")), echo(traits=traits)) as play:
        log = play.log
        play.log = SessionLog(cast("Store", StoreFullAtResult(log.store)))
        with anyio.fail_after(60), pytest.raises(StoreFull):
            await play.play("three at once")
        play.log = log
        assert await play.play() == Ended("completed")
        results = texts(await play.events(), "agent.tool_result")
        assert sorted(results) == ["echo 1", "echo 2", "echo 3"]
