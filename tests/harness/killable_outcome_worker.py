"""Lives of a worker that works for an outcome until it has a final verdict, or is killed; see
`killable_worker`."""

from pathlib import Path
from typing import cast

import anyio
from tests.crash.stores import open_store, preload
from tests.harness.killable_worker import Fuse, Fused, Order, Streaming, begin, ended, serve
from tests.harness.session_setup import Stage, always

from mainspring.capabilities.providers.scripted import Scripted, ScriptLine, says
from mainspring.core.model import Request, ToolSpec, User
from mainspring.core.tool import SAFE_READ, Call, Tool, ToolResult
from mainspring.log.session_log import SessionLog
from mainspring.log.store import Store

RUBRIC = "- run: make check\n- The work is the second version.\n"
_LIFE_SECONDS = 60
_MET = '{"criteria": [{"criterion": "second version", "reason": "seen", "met": %s}]}'


def answer(request: Request) -> ScriptLine:
    """The first version is sent back, and the second is good."""
    said = [str(item.content) for item in request.messages if isinstance(item, User)]
    if request.system[0].startswith("You grade"):
        return says(_MET % ("true" if "Version 2" in said[0] else "false"))
    return says("Version 2" if "not reached yet" in said[-1] else "Version 1")


def shell(ledger: Path, fuse: Fuse) -> Tool:
    """Writes down what it ran, and may die before and after."""

    async def run(call: Call) -> ToolResult:
        fuse.near("before effect")
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{call.id}\n")
        fuse.near("after effect")
        return ToolResult.text("ok")

    spec = ToolSpec(name="bash", description="Runs it.", input_schema={"type": "object"})
    return Tool(spec=spec, run=run, traits=always(SAFE_READ))


async def live(order: Order, fuse: Fuse) -> None:
    async with open_store(order.url) as store:
        stage = Stage(
            log=SessionLog(cast("Store", Fused(store, fuse))),
            session_id=order.session_id,
            model=Streaming(Scripted(otherwise=answer), fuse),
            tools={"bash": shell(Path(order.ledger), fuse)},
        )
        await stage.play()


async def _live(order: Order) -> None:
    with anyio.fail_after(_LIFE_SECONDS):
        await live(order, Fuse(order.where, order.number))


def main() -> None:
    preload("", "tests.crash.stores:open_store")
    serve(Order, lambda order: ended(begin(_live, order)))


if __name__ == "__main__":
    main()
