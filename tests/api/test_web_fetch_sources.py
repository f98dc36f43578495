"""What an agent says of its `web_fetch` holds: which URLs, and how much of a page."""

from pathlib import Path
from typing import Any

from tests.api.work_api import MODEL, site

from mainspring.core.content import plain_text
from mainspring.core.events import AgentToolResult
from mainspring.testing import Scripted, calls, says

FORBIDDEN = "this URL is in none of the agent's url_sources"
"""Any other refusal is the network's: nothing here is reached."""
CONFIG: dict[str, Any] = {
    "name": "web_fetch",
    "max_content_tokens": 5,
    "url_sources": {
        "user_input": "all",
        "client_tool_results": {
            "type": "only",
            "tools": [{"type": "tool_reference", "name": "links"}],
        },
        "server_tool_results": "none",
    },
}
TOOLSET: Any = {"type": "agent_toolset_20260401", "configs": [CONFIG]}
CUSTOM: list[Any] = [
    {
        "type": "custom",
        "name": name,
        "description": name,
        "input_schema": {"type": "object", "properties": {}},
    }
    for name in ("links", "other")
]


async def test_web_fetch_is_limited_to_the_allowed_url_sources(tmp_path: Path):
    asked = (
        "https://a.test/?x=1",
        "https://A.test:443/page",
        "https://links.test/b",
        "https://other.test/",
    )
    fetches = [calls("web_fetch", url=url) for url in (*asked, "https://other.test/")]
    model = Scripted(
        calls("links"),
        calls("other"),
        calls("bash", command="echo https://shell.test/"),
        calls("web_fetch", url="https://shell.test/"),
        *fetches,
        says("Done."),
    )
    async with site(tmp_path, model) as served, served.client() as client:
        agent = await client.beta.agents.create(name="a", model=MODEL, tools=[TOOLSET, *CUSTOM])
        place = await client.beta.environments.create(
            name="e", config={"type": "cloud", "networking": {"type": "unrestricted"}}
        )
        told = "Read https://a.test/page, and nothing else."
        session = await client.beta.sessions.create(
            agent=agent.id,
            environment_id=place.id,
            initial_events=[{"type": "user.message", "content": [{"type": "text", "text": told}]}],
        )
        for times, found in enumerate(("[b](https://links.test/b)", "https://other.test/"), 1):
            await served.until(session.id, "agent.custom_tool_use", times)
            await served.until(session.id, "session.status_idle", times)
            used = await served.log.read(session.id, types=["agent.custom_tool_use"])
            await client.beta.sessions.events.send(
                session.id,
                events=[
                    {
                        "type": "user.custom_tool_result",
                        "custom_tool_use_id": used[-1].id,
                        "content": [{"type": "text", "text": found}],
                    }
                ],
            )
        await served.until_done(session.id)
        read = await served.log.read(session.id, types=["agent.tool_result"])
        results = [item.payload for item in read if isinstance(item.payload, AgentToolResult)]
        texts = [plain_text(result.content) for result in results][1:]
    assert [FORBIDDEN in text for text in texts] == [True, True, False, False, True, True], texts
