"""The client of the official SDK against a server of ours. The tests run it with the interpreter
of the peers: `sdk_client.py <mode> <url or command>...`; it prints what it got as JSON.
"""
# pyright: basic, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportAttributeAccessIssue=false

import json
import sys

import anyio
from mcp.types import ElicitResult

from mcp import Client, StdioServerParameters


async def main(mode: str, target: list[str]) -> None:
    steps: list[float] = []
    logged: list[object] = []
    got: dict[str, object] = {}

    async def on_progress(done: float, _total: float | None, _message: str | None) -> None:
        steps.append(done)

    async def on_log(params: object) -> None:
        logged.append(params.data)

    async def on_question(_context: object, params: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"username": "ann", "email": "a@b.c"})

    url = target[0]
    server = (
        url
        if url.startswith("http")
        else StdioServerParameters(command=url, args=target[1:], env=None)
    )
    async with Client(
        server,
        mode=mode,
        elicitation_callback=on_question,
        logging_callback=on_log,
        log_level="info" if mode != "legacy" else None,
    ) as client:
        got["version"] = client.protocol_version
        got["tools"] = len((await client.list_tools()).tools)
        simple = await client.call_tool("test_simple_text")
        got["text"] = simple.content[0].text
        failed = await client.call_tool("test_error_handling")
        got["is_error"] = failed.is_error
        await client.call_tool("test_tool_with_progress", progress_callback=on_progress)
        got["progress"] = steps
        await client.call_tool("test_tool_with_logging")
        got["logged"] = len(logged)
        asked = await client.call_tool("test_elicitation", {"message": "who?"})
        got["elicited"] = asked.content[0].text
        got["resources"] = len((await client.list_resources()).resources)
        got["templates"] = len((await client.list_resource_templates()).resource_templates)
        read = await client.read_resource("test://static-text")
        got["resource"] = read.contents[0].text
        got["prompts"] = len((await client.list_prompts()).prompts)
        prompt = await client.get_prompt(
            "test_prompt_with_arguments", {"arg1": "one", "arg2": "two"}
        )
        got["prompt"] = prompt.messages[0].content.text
        with anyio.move_on_after(0.5):
            await client.call_tool("test_wait", progress_callback=on_progress)
        cancelled = await client.call_tool("test_was_cancelled")
        got["cancelled"] = cancelled.content[0].text
    sys.stdout.write(json.dumps(got))


anyio.run(main, sys.argv[1], sys.argv[2:])
