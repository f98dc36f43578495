"""A crash run: rounds of crashes, each on one database, checked after every crash or two."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import anyio
from msgspec.structs import replace
from tests.crash import points as ways
from tests.crash.check import Check
from tests.crash.children import Zygote, zygote
from tests.crash.history import History
from tests.crash.points import Scene
from tests.crash.report import Report, Tally, Violation
from tests.crash.stores import OPENER, is_sqlite, named

from mainspring.core.ids import new_id
from mainspring.log.session_log import SessionLog

ROUND = 40
"""Crashes that one database sees; a reproduction begins at a multiple of it."""

_SQLITE = {
    "at_statement": 45,
    "at_an_instant": 30,
    "one_of_two": 12,
    "while_following": 10,
    "while_stopped": 3,
}
_SERVER = {"at_an_instant": 73, "one_of_two": 12, "while_following": 12, "while_stopped": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What most runs leave as it is."""

    opener: str = OPENER
    """`package.module:function` from URL to store; the parent checks through this one."""
    child_opener: str | None = None
    """What the children work with, when that is another: a broken store, for example."""
    start: int = 0
    """First point, a multiple of `ROUND`: to repeat a part of a longer run."""
    progress: Callable[[Tally], None] | None = None


async def run(
    store: str,
    *,
    points: int = 300,
    seed: int = 1,
    lanes: int = 1,
    options: Options = Options(),  # noqa: B008 (frozen)
) -> Report:
    """Crash processes that work on a store, so many times, and check all that was promised.

    `store` is a URL or the path of a SQLite file to be; its directory must be there and stays
    empty unless something is found. A round ends with its first violation.
    """
    tally = Tally(seed)
    begun = time.monotonic()
    upto = options.start + points
    beginnings = iter(range(options.start, upto, ROUND))

    async def lane() -> None:
        with zygote(store, [options.opener, options.child_opener or options.opener]) as children:
            for beginning in beginnings:
                count = min(ROUND, upto - beginning)
                await _Round(store, options, tally, children).play(beginning, count)

    async with anyio.create_task_group() as group:
        for _ in range(lanes):
            group.start_soon(lane)
    return tally.report(time.monotonic() - begun)


class _Round:
    def __init__(self, store: str, options: Options, tally: Tally, children: Zygote) -> None:
        self._options = options
        self._tally = tally
        self._children = children
        self._store = store

    async def play(self, beginning: int, count: int) -> None:
        seed = self._tally.seed
        tag = f"{new_id('r')[-5:]}r{beginning}"  # a server may know an earlier run's sessions
        scene = Scene(
            zygote=self._children,
            history=History(self._tally),
            random=Random(f"{seed}/{beginning}"),
            url=f"{self._store}.crash{beginning}" if is_sqlite(self._store) else self._store,
            opener=self._options.child_opener or self._options.opener,
            tag=tag,
        )
        _remove(scene.url)
        for point in range(beginning, beginning + count):
            is_last = point == beginning + count - 1
            violations = await self._point(scene, point, is_last=is_last)
            if violations:
                self._tally.violations += [replace(v, point=point, seed=seed) for v in violations]
                return
            self._tally.points += 1
            if self._options.progress is not None:
                self._options.progress(self._tally)
        _remove(scene.url)

    async def _point(self, scene: Scene, point: int, *, is_last: bool) -> list[Violation]:
        try:
            found = await anyio.to_thread.run_sync(_crash, scene, point)
            if scene.random.random() < 0.25 and not is_last:
                return found  # the next crash meets what this one left
            found += await self._check(scene, is_last=is_last)
            if is_last and not found:
                found += await anyio.to_thread.run_sync(ways.catch_up, scene)
        except TimeoutError as error:
            return [Violation(kind="child", session_id="", what=str(error))]
        return found

    async def _check(self, scene: Scene, *, is_last: bool) -> list[Violation]:
        async with named(self._options.opener)(scene.url) as store:
            check = Check(SessionLog(store), scene.history)
            await (check.everything(scene.tag) if is_last else check.touched())
        return check.violations


def _crash(scene: Scene, point: int) -> list[Violation]:
    weights = _SQLITE if is_sqlite(scene.url) else _SERVER
    [way] = scene.random.choices(list(weights), list(weights.values()))
    match way:
        case "at_statement":
            return ways.at_statement(scene, 1 + point % ways.STATEMENTS)
        case "at_an_instant":
            return ways.at_an_instant(scene)
        case "one_of_two":
            return ways.one_of_two(scene)
        case "while_following":
            return ways.while_following(scene)
        case _:
            return ways.while_stopped(scene)


def _remove(url: str) -> None:
    if is_sqlite(url):
        for suffix in ("", "-wal", "-shm"):
            Path(url.removeprefix("sqlite:///") + suffix).unlink(missing_ok=True)
