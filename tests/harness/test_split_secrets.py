"""A secret that a tool returns in two blocks of text."""

from pathlib import Path

from tests.harness.session_setup import Stage
from tests.vault.modern import split_over_blocks

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.core.content import TextBlock
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite


async def test_a_key_over_two_texts_of_a_result_is_redacted(tmp_path: Path) -> None:
    first, second = split_over_blocks()

    async def show(_: Call) -> ToolResult:
        return ToolResult((TextBlock(f"the key is {first}"), TextBlock(f"{second} and more")))

    tool = Tool(
        spec=ToolSpec(name="show", description="Shows.", input_schema={"type": "object"}),
        run=show,
        traits=lambda _: Traits(max_chars=30_000),
    )
    model = Scripted(calls("show"), says("done"))
    async with open_sqlite(tmp_path / "log.db") as store:
        log = SessionLog(store, scrub=Scrubber({}))
        session = await log.create()
        stage = Stage(log=log, session_id=session.id, model=model, tools={"show": tool})
        await stage.play("show it")
        request = str(model.requests[-1])
    assert second not in request
    assert "[redacted:github_token] and more" in request
