"""A process that learns by a model and ends itself by SIGKILL.

`python -m tests.runtime.memory.killable_learning PLACE event|step NUMBER`: as soon as its log has
so many more events, or at so many steps of learning. With 0 it runs to the end and prints the
number of them. Each answer of the model adds a line to the file `paid`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import FrameType

import anyio
from tests.killed_command import Killer
from tests.runtime.memory.memory_setup import memory_folder
from tests.runtime.memory.test_model_learning import World, a_world, answer_of

from mainspring.core.content import TextBlock
from mainspring.core.errors import LeaseHeld
from mainspring.log.writer import Writer
from mainspring.runtime.memory.memory_folder import MemoryFolder

KNOWN = (
    "Der Staging-Server liegt unter rot.example.org.",
    "Die Besprechung im Lager beginnt um neun.",
)
MESSAGES = (
    "Der Staging-Server liegt jetzt unter blau.example.org.",
    "Tina leitet das Lager. Und vergiss die Besprechung um neun.",
)
OPERATIONS = (
    {
        "event": "$first",
        "op": "replace",
        "path": "$server",
        "text": "Der Staging-Server liegt unter blau.example.org.",
    },
    {"event": "$second", "op": "add", "text": "Tina leitet das Lager."},
    {"event": "$second", "op": "retract", "path": "$meeting"},
)


async def prepare(place: Path) -> None:
    """The memories, and a session of which nothing was learned yet."""
    async with a_world(place) as world:
        paths = [f"agent/{world.remember(text)}" for text in KNOWN]
        writer = await world.begin()
        ids = [(await world.say(writer, TextBlock(text))).id for text in MESSAGES]
        (place / "names").write_text("\n".join((writer.session_id, *paths, *ids)))


async def learn(place: Path, watch: list[Writer]) -> None:
    session_id, server, meeting, first, second = (place / "names").read_text().splitlines()
    names = {"$server": server, "$meeting": meeting, "$first": first, "$second": second}
    async with a_world(place) as world:

        def answer(_: Mapping[str, str]) -> str:
            with (place / "paid").open("a") as file:
                file.write("paid\n")
            return answer_of(OPERATIONS, names)

        world.answer = answer
        runs = len((place / "runs").read_text()) if (place / "runs").exists() else 0
        with (place / "runs").open("a") as file:
            file.write(".")
        world.time += timedelta(days=runs + 1)
        world.folder = later(world, runs)
        try:
            watch.append(await world.log.hold(session_id, owner="test"))
        except LeaseHeld as held:  # by a process that was killed
            dead = held.owner, held.epoch
            watch.append(await world.log.hold(session_id, owner="test", instead_of=dead))
        await world.learn(watch[0])


def later(world: World, runs: int) -> MemoryFolder:
    """The folder with ids of its own for each process."""
    return memory_folder(world.place / "memory", first=1_000 * (runs + 1))


class EventKiller:
    def __init__(self, number: int, watch: list[Writer]) -> None:
        self.number, self.watch, self.first = number, watch, -1

    @property
    def count(self) -> int:
        return self.watch[0].head.seq - self.first

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        del frame, event, argument
        if not self.watch:
            return
        if self.first < 0:
            self.first = self.watch[0].head.seq
        if self.number and self.count >= self.number:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    place, kind, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    watch: list[Writer] = []
    killer = EventKiller(number, watch) if kind == "event" else Killer("learn_from_run", number)
    if kind == "step":
        threading.setprofile(killer)
    sys.setprofile(killer)
    anyio.run(learn, place, watch)
    sys.setprofile(None)
    sys.stdout.write(f"{killer.count}\n")


if __name__ == "__main__":
    main()
