"""All methods of the official SDK that concern managed agents, against `mainspring serve`, with
answers that are validated strictly. A method that a new version of the SDK brings fails here until
it is called in `sdk_methods.py` or has a line in the table of differences."""

import re
from pathlib import Path
from typing import Any

import anthropic
import anyio
import pytest
from tests.api.sdk_methods import Calls, exercise, methods

DOCS = (Path(__file__).parents[2] / "docs/api.md").read_text()
NOT_BUILT = re.search(r"^## Methods of the SDK\n(.*?)(?=^## |\Z)", DOCS, re.MULTILINE | re.DOTALL)

TRIED_IN = {
    "environments.work.poller": "test_work_tokens.py",
    "environments.work.worker": "test_work_tokens.py",
    "sessions.events.tool_runner": "test_session_tool_runner.py",
    "webhooks.unwrap": "test_webhooks.py",
    "webhooks.parse_unverified": "test_webhooks.py",
}
"""What needs a set-up of its own, and has a test of its own."""


def source(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def not_built(names: set[str]) -> set[str]:
    """Those that the docs say are not there, as `dreams.*`, each line with its reason."""
    assert NOT_BUILT is not None
    rows = re.findall(r"^\| `([\w.*]+)` \| (\S.*) \|$", NOT_BUILT[1], re.MULTILINE)
    found: set[str] = set()
    for pattern, _ in rows:
        meant = {name for name in names if re.fullmatch(pattern.replace("*", ".*"), name)}
        assert meant, f"the docs say that {pattern} is not there: the SDK has no such method"
        found |= meant
    return found


def extra_fields() -> set[str]:
    """Fields that the docs say we add to what the SDK knows."""
    assert NOT_BUILT is not None
    return set(re.findall(r"`(Beta\w+\.\w+)`", NOT_BUILT[1]))


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_every_method_of_the_sdk_gets_the_response_it_expects(
    client: anthropic.Anthropic, is_async: bool
):
    given = {"api_key": client.api_key, "base_url": str(client.base_url), "timeout": 60}
    call = anyio.run(_call_all, given, is_async)
    current = methods(call.client)
    elsewhere = {name for name, file in TRIED_IN.items() if name.rpartition(".")[2] in source(file)}
    assert current - call.called - elsewhere == not_built(current)
    assert call.unknown <= extra_fields(), call.unknown - extra_fields()


async def _call_all(given: dict[str, Any], is_async: bool) -> Calls:
    if is_async:
        async with anthropic.AsyncAnthropic(
            **given, max_retries=0, _strict_response_validation=True
        ) as client:
            return await _exercise(client, "async")
    with anthropic.Anthropic(**given, max_retries=0, _strict_response_validation=True) as client:
        return await _exercise(client, "sync")


async def _exercise(client: anthropic.Anthropic | anthropic.AsyncAnthropic, name: str) -> Calls:
    call = Calls(client)
    await exercise(call, name)
    return call
