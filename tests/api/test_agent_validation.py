from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic
from tests.api.agents_api import CUSTOM, MODEL, SEARCH, made, served_agents
from tests.api.api_server import Served, collect


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    async with served_agents(tmp_path) as running:
        yield running


REFUSED: list[tuple[Mapping[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "n" * 257}, "name"),
    ({"system": "s" * 100_001}, "system"),
    ({"model": ""}, "model"),
    ({"model": "no-such-model"}, "no model"),
    ({"model": {"id": MODEL, "effort": "huge"}}, "model"),
    ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
    ({"tools": [{"type": "unheard_of"}]}, "tools"),
    ({"tools": [CUSTOM, CUSTOM]}, "two custom tools"),
    ({"tools": [{**CUSTOM, "name": "not a name"}]}, "name"),
    ({"tools": [{**CUSTOM, "input_schema": {"type": "string"}}]}, "input_schema.type"),
    ({"tools": [{**CUSTOM, "input_schema": {"type": "object", "required": "x"}}]}, "required"),
    (
        {"tools": [{**CUSTOM, "name": "bash"}, {"type": "agent_toolset_20260401"}]},
        "enabled built-in",
    ),
    ({"tools": [{"type": "agent_toolset_20260401"}] * 2}, "at most one"),
    ({"tools": [{**CUSTOM, "name": f"t{n}"} for n in range(257)]}, "length"),
    (
        {
            "tools": [
                {"type": "agent_toolset_20260401"},
                *({**CUSTOM, "name": f"t{n}"} for n in range(249)),
            ]
        },
        "at most 256",
    ),
    ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}]}, "no server"),
    ({"mcp_servers": [SEARCH]}, "no mcp_toolset in tools uses"),
    (
        {
            "mcp_servers": [SEARCH, SEARCH],
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}],
        },
        "two are called",
    ),
    (
        {
            "mcp_servers": [{**SEARCH, "url": "https://me:secret@mcp.example.com"}],
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}],
        },
        "vault",
    ),
    (
        {
            "mcp_servers": [{**SEARCH, "url": "file:///etc/passwd"}],
            "tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}],
        },
        "https",
    ),
    ({"multiagent": {"type": "swarm"}}, "multiagent.type"),
]


async def test_invalid_agents_are_refused_with_a_reason(acme: AsyncAnthropic):
    for fields, reason in REFUSED:
        with pytest.raises(anthropic.BadRequestError, match=reason):
            await made(acme, **fields)
    assert await collect(acme.beta.agents.list()) == []


WRONG_CONFIGS: list[tuple[list[dict[str, Any]], str]] = [
    ([{"name": "bash"}, {"name": "bash"}], "unique"),
    ([{"name": "bash", "type": "read"}], "must equal its name, bash"),
    ([{"name": "bash", "allowed_domains": ["a.org"]}], "bash has no such field"),
    ([{"name": "web_search", "max_content_tokens": 5}], "web_search has no such field"),
    ([{"name": "web_fetch", "allowed_domains": []}], "length"),
    ([{"name": "web_fetch", "allowed_domains": ["https://a.org"]}], "plain host name"),
    ([{"name": "web_fetch", "allowed_domains": ["a.org/x"]}], "plain host name"),
    (
        [{"name": "web_fetch", "allowed_domains": ["a.org"], "blocked_domains": ["b.org"]}],
        "not both",
    ),
    (
        [
            {
                "name": "web_fetch",
                "url_sources": {
                    "user_input": "none",
                    "client_tool_results": "none",
                    "server_tool_results": {"type": "none"},
                },
            }
        ],
        "nothing can be fetched",
    ),
    (
        [
            {
                "name": "web_fetch",
                "url_sources": {
                    "client_tool_results": {
                        "type": "except",
                        "tools": [{"type": "tool_reference", "name": "unknown"}],
                    }
                },
            }
        ],
        "unknown is not a custom tool",
    ),
]


async def test_an_invalid_tool_config_is_refused_with_a_reason(acme: AsyncAnthropic):
    for configs, reason in WRONG_CONFIGS:
        toolset = {"type": "agent_toolset_20260401", "configs": configs}
        with pytest.raises(anthropic.BadRequestError, match=reason):
            await made(acme, tools=[toolset])


async def test_mcp_servers_and_toolsets_must_match_after_an_update(acme: AsyncAnthropic):
    agent = await made(
        acme, mcp_servers=[SEARCH], tools=[{"type": "mcp_toolset", "mcp_server_name": "docs"}]
    )
    with pytest.raises(anthropic.BadRequestError, match="no server"):
        await acme.beta.agents.update(agent.id, mcp_servers=[])
    with pytest.raises(anthropic.BadRequestError, match="no mcp_toolset in tools uses"):
        await acme.beta.agents.update(agent.id, tools=[])


@pytest.mark.parametrize(
    ("method", "query", "body", "told"),
    [
        ("POST", {}, '{"name": ', "JSON is malformed: it ends too early"),
        ("GET", {"created_at[gte]": "yesterday"}, "", "created_at[gte]: invalid RFC3339"),
        ("PUT", {}, "", "/v1/agents supports GET, POST"),
    ],
)
async def test_malformed_requests_are_explained(
    api: Served, method: str, query: Mapping[str, str], body: str, told: str
):
    async with httpx2.AsyncClient(base_url=api.url, headers={"x-api-key": "acme:admin"}) as http:
        answer = await http.request(method, "/v1/agents", params=dict(query), content=body)
    assert told in answer.json()["error"]["message"]
