"""The official `SessionToolRunner`: custom tools of a session whose hands are ours."""

from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from anthropic import beta_async_tool
from tests.api.api_server import collect
from tests.api.sessions_api import session
from tests.api.work_api import site

from mainspring.testing import Scripted, calls, says


@beta_async_tool
async def ask_owner(question: str) -> str:
    """Ask the owner."""
    return f"yes to {question}"


async def test_the_runner_runs_the_custom_tools_of_a_cloud_session(tmp_path: Path):
    model = Scripted(
        calls("ask_owner", question="tea"), calls("ask_owner", question="cake"), says("Done.")
    )
    async with site(tmp_path, model) as here, here.client() as client:
        made = await session(client)
        hello: Any = {"type": "user.message", "content": [{"type": "text", "text": "go"}]}
        await client.beta.sessions.events.send(made.id, events=[hello])
        done: list[Any] = []
        with anyio.fail_after(60):
            runner = client.beta.sessions.events.tool_runner(
                made.id, tools=[ask_owner], max_idle=0.2
            )
            async for call in runner:
                done.append((call.name, call.posted, call.is_error))
        assert done == [("ask_owner", True, False)] * 2
        shown = await collect(client.beta.sessions.events.list(made.id))
        answers = [item for item in shown if item.type == "user.custom_tool_result"]
        assert ["tea" in str(answers[0].content), "cake" in str(answers[1].content)] == [True, True]
        assert (await client.beta.sessions.retrieve(made.id)).status == "idle"
        with pytest.raises(anthropic.ConflictError, match="answered already"):
            await client.beta.sessions.events.send(
                made.id,
                events=[
                    {
                        "type": "user.custom_tool_result",
                        "custom_tool_use_id": answers[0].custom_tool_use_id,
                    }
                ],
            )


async def test_of_two_runners_with_the_same_call_one_result_counts(tmp_path: Path):
    both = anyio.Event()
    begun: list[str] = []

    @beta_async_tool(name="ask_owner")
    async def ask_both(question: str) -> str:
        """Ask the owner."""
        begun.append(question)
        if len(begun) == 2:
            both.set()
        await both.wait()
        return f"yes to {question}"

    model = Scripted(calls("ask_owner", question="tea"), says("Done."))
    async with site(tmp_path, model) as here, here.client() as client:
        made = await session(client)
        hello: Any = {"type": "user.message", "content": [{"type": "text", "text": "go"}]}
        await client.beta.sessions.events.send(made.id, events=[hello])

        async def serve() -> None:
            runner = client.beta.sessions.events.tool_runner(
                made.id, tools=[ask_both], max_idle=0.2
            )
            await runner.until_done()

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(serve)
                group.start_soon(serve)
        assert begun == ["tea", "tea"]
        assert str(model.requests[-1].messages).count("yes to tea") == 1
        assert (await client.beta.sessions.retrieve(made.id)).status == "idle"
