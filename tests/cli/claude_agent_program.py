"""A program of a user of claude-agent-sdk, run by `test_claude_agent_sdk.py` with the real package.

It prints one JSON object with what it saw. Arguments: the scenario and the command to start.
"""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from claude_agent_sdk import (  # pyright: ignore[reportMissingImports] (of the peers)
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultError,
    ResultMessage,
    query,
)

# ruff: noqa: ANN401 (the package's types are not installed where this is checked)
# pyright: basic


async def results(prompt: str, **options: Any) -> list[Any]:
    chosen = ClaudeAgentOptions(cli_path=sys.argv[2], **options)
    found: list[Any] = []
    with suppress(ResultError):  # after the message, an exit status that is not 0 raises
        async for message in query(prompt=prompt, options=chosen):
            found += [message] if isinstance(message, ResultMessage) else []
    return found


async def converse(prompts: list[str], **options: Any) -> list[Any]:
    found: list[Any] = []
    chosen = ClaudeAgentOptions(cli_path=sys.argv[2], **options)
    async with ClaudeSDKClient(options=chosen) as client:
        for prompt in prompts:
            await client.query(prompt)
            found += [m async for m in client.receive_response() if isinstance(m, ResultMessage)]
    return found


async def scenario_query() -> dict[str, Any]:
    [result] = await results("Hello")
    return {"text": result.result, "is_error": result.is_error, "turns": result.num_turns}


async def scenario_agents() -> dict[str, Any]:
    reviewer = AgentDefinition(description="Reviews files.", prompt="You review files.")
    [result] = await converse(["Ask the reviewer"], agents={"reviewer": reviewer})
    return {"text": result.result}


async def scenario_hooks() -> dict[str, Any]:
    seen: list[Any] = []

    async def watch(given: Any, _tool_use_id: Any, _context: Any) -> Any:
        seen.append([given["hook_event_name"], given.get("tool_name")])
        return {}

    async def refuse(given: Any, _tool_use_id: Any, _context: Any) -> Any:
        seen.append(["refused", given["tool_input"]["content"]])
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": "not today",
            }
        }

    hooks = {
        "PreToolUse": [
            HookMatcher(matcher="Bash", hooks=[watch]),
            HookMatcher(matcher="Write|Edit", hooks=[refuse]),
        ],
        "UserPromptSubmit": [HookMatcher(hooks=[watch])],
    }
    await converse(["Write it"], hooks=hooks, permission_mode="acceptEdits")
    return {"seen": seen, "written": Path("a.txt").exists()}


async def scenario_can_use_tool() -> dict[str, Any]:
    asked: list[Any] = []

    async def decide(tool: str, given: Any, _context: Any) -> Any:
        asked.append([tool, given["content"]])
        if len(asked) == 1:
            return PermissionResultDeny(message="ask me again")
        return PermissionResultAllow(updated_input={**given, "content": "public"})

    await converse(["Write it", "Write it"], can_use_tool=decide)
    return {"asked": asked, "written": Path("a.txt").read_text()}


async def scenario_budget() -> dict[str, Any]:
    [result] = await results("Hello", model="ollama:priced", max_budget_usd=0.000001)
    return {"subtype": result.subtype, "is_error": result.is_error}


async def scenario_fork() -> dict[str, Any]:
    [first] = await results("Hello")
    [fork] = await results("Hello", resume=first.session_id, fork_session=True)
    [again] = await results("Hello", resume=first.session_id)
    return {
        "is_new": fork.session_id != first.session_id,
        "is_same": again.session_id == first.session_id,
        "text": fork.result,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(anyio.run(globals()[f"scenario_{sys.argv[1]}"])))
