"""Lives of a worker with the real runtime: files, a sandbox, and a model that needs no memory.

`python -m tests.harness.killable_sandbox_worker` forks one for each order. What is counted is what
is left in the workspace: lines that commands have added, and files that were written and edited.
"""

import os
import re
import select
import signal
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import anyio
import msgspec
from msgspec import Struct
from tests.environ import boundary
from tests.harness.fake_sandbox import Told, told
from tests.harness.killable_worker import Fuse, Fused, Streaming, begin, ended, serve

from mainspring.capabilities.providers.scripted import Scripted, ScriptLine, calls, says
from mainspring.capabilities.sandbox.wire import SOCKET
from mainspring.capabilities.tools.session_files import READ_AGAIN
from mainspring.config import Settings, read_settings
from mainspring.core.model import Delta, Request, ToolOutput, ToolUse
from mainspring.log.store import Store
from mainspring.runtime.agent import Agent
from mainspring.runtime.run_options import RunOptions
from mainspring.runtime.session.session_paths import SessionPaths
from mainspring.wiring.runtime_assembly import open_runtime
from mainspring.wiring.sandbox_settings import session_paths

AGENT = Agent(name="worker", model="scripted:sweep", built_ins=("*",))
MILLISECONDS = "milliseconds"
"""An instant to die at that is no instant of the session's: so long after the life began."""
UNKNOWN = "look before you do it again"
_UNREAD = ("has not been read in this session", READ_AGAIN)
_LIFE_SECONDS = 60
_CREDENTIALS = 3 * 4

Victims = Literal["worker", "both", "keeper"]


class Order(Struct, frozen=True, kw_only=True):
    folder: str
    """What all sessions of a sweep have in common is in it."""
    workspace: str
    session_id: str
    where: str = ""
    number: int = 0
    victims: Victims = "worker"

    @property
    def settings(self) -> Settings:
        return settings_of(Path(self.folder))

    @property
    def places(self) -> SessionPaths:
        return session_paths(self.settings, Path(self.workspace), self.session_id)


def settings_of(folder: Path) -> Settings:
    home = folder / "home"
    return replace(
        read_settings(store=str(folder / "own" / "log.db"), environ=boundary(), folder=home),
        home=str(home),
        vault=str(home / "vault.json"),
    )


def appends(*lines: str, between: str = "") -> ScriptLine:
    """A command that adds lines to a file, and tells of the first."""
    steps = [f"echo {line} >> effects.txt" for line in lines]
    return calls("bash", command=f"{steps[0]}; echo began; {between}{'; '.join(steps[1:])}")


def _edits(name: str, line: str) -> ScriptLine:
    return calls("edit", file_path=name, old_string="end", new_string=f"{line}\nend")


def lines_of(given: Mapping[str, object]) -> list[str]:
    """What a call adds to the file that commands add to."""
    return re.findall(r"echo (\S+) >> effects\.txt", str(given.get("command", "")))


PLAN = [
    appends("1"),
    calls("write", file_path="notes.txt", content="begin\nend\n"),
    _edits("notes.txt", "one"),
    calls("Bash", command="echo 4 >> effects.txt") + calls("read", file_path="effects.txt"),
    calls("service_start", name="watch", command="echo on >> watch.txt; exec sleep 60"),
    appends("5", "6", between="sleep 0.3; "),
    calls("bash", command="cat notes.txt # before") + appends("7") + calls("bash", command="ls"),
    calls("write", file_path="folder/made.txt", content="made\n") + appends("8"),
    _edits("notes.txt", "two") + appends("9"),
]
USES = [part for line in PLAN for part in line.content if isinstance(part, ToolUse)]
LINES = [line for use in USES for line in lines_of(use.input)]
NOTES = "begin\none\ntwo\nend\n"


def state(each: Told) -> Literal["done", "unknown", "unread", "undone"]:
    if not each.result.is_error:
        return "done"
    if UNKNOWN in each.text:
        return "unknown"
    if any(words in each.text for words in _UNREAD):
        return "unread"
    assert "Not done: an earlier" in each.text, each.text
    return "undone"


def states(request: Request) -> dict[bytes, str]:
    """What the model knows of the calls that it has made."""
    return {key(item.use): state(item) for item in told(request)}


def key(use: ToolUse) -> bytes:
    return msgspec.json.encode((use.name, use.input), order="deterministic")


def answer(request: Request) -> ScriptLine:
    """The next of the plan that is not done; what is not known is left as it is, never repeated."""
    known = states(request)
    for line in PLAN:
        uses = [part for part in line.content if isinstance(part, ToolUse)]
        left = [use for use in uses if known.get(key(use)) not in ("done", "unknown")]
        if left and known.get(key(left[0])) == "unread":
            return _read_first(request, left[0])
        if left:
            return ScriptLine(tuple(left))
    return says("All of it is done.")


def _read_first(request: Request, use: ToolUse) -> ScriptLine:
    name = use.input["file_path"]
    last = told(request)[-1].use
    if (last.name, last.input) == ("read", {"file_path": name}):
        return ScriptLine((use,))
    return calls("read", file_path=name)


async def live(order: Order, fuse: Fuse) -> None:
    """Wake the session, and run it until it has completed."""

    def hear(delta: Delta) -> None:
        if isinstance(delta, ToolOutput):
            fuse.near("output")

    options = RunOptions(workspace=Path(order.workspace), mode="bypassPermissions")
    async with open_runtime(order.settings, options=options) as runtime:
        runtime.log.store = cast("Store", Fused(runtime.log.store, fuse))
        runtime.models.put(AGENT.model, Streaming(Scripted(otherwise=answer), fuse))
        session = await runtime.resume(AGENT, order.session_id)
        result = await session.run(hear)
        assert result is None or result.reason == "completed", result


async def _live(order: Order) -> None:
    where = "" if order.where == MILLISECONDS else order.where

    def blow() -> None:
        kill(order, os.getpid())

    with anyio.fail_after(_LIFE_SECONDS):
        await live(order, Fuse(where, order.number, blow))


def kill(order: Order, worker: int) -> None:
    keeper = None if order.victims == "worker" else keeper_of(order.places.state)
    if keeper is not None:
        os.kill(keeper, signal.SIGKILL)
    if order.victims != "keeper":
        os.kill(worker, signal.SIGKILL)


def keeper_of(state: Path) -> int | None:
    """The process that keeps a session's sandbox, if it lives."""
    try:
        folder = os.open(state, os.O_PATH | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    with socket.socket(socket.AF_UNIX) as visit:
        try:
            visit.connect(f"/proc/self/fd/{folder}/{SOCKET}")
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        finally:
            os.close(folder)
        packed = visit.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS)
        return int.from_bytes(packed[:4], "little")


def carry_out(order: Order) -> int:
    worker = begin(_live, order)
    if order.where == MILLISECONDS and not ends_within(worker, order.number):
        kill(order, worker)
    return ended(worker)


def ends_within(process: int, milliseconds: int) -> bool:
    try:
        life = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(life, select.POLLIN)
    has_ended = bool(poll.poll(milliseconds))
    os.close(life)
    return has_ended


if __name__ == "__main__":
    serve(Order, carry_out)
