"""`history_search`: what is out of sight is found, whatever the model asks with."""

from tests.log.sample_sessions import told

from mainspring.core.tool import Call, Tool, ToolResult
from mainspring.harness.context.history_tools import history_search
from mainspring.log.search import search
from mainspring.log.session_log import SessionLog
from mainspring.log.store import LogSearchHit


def tool_for(log: SessionLog, session_id: str) -> Tool:
    async def look(query: str, limit: int) -> list[LogSearchHit]:
        return await search(log, query, session_id=session_id, limit=limit)

    return history_search(look)


async def ask(tool: Tool, **given: object) -> ToolResult:
    return await tool.run(
        Call(
            id="sevt_1",
            name="history_search",
            input=given,
            idempotency_key="k",
            session_id="sesn_1",
            thread_id="sthr_1",
        )
    )


async def test_history_search_finds_messages_with_their_event_number(log: SessionLog):
    tool = tool_for(log, await told(log, "the port is 8123", "it rains"))
    found = await ask(tool, query="port")
    assert found.ok
    assert "event 2: " in str(found.content)
    assert "8123" in str(found.content)


async def test_history_search_without_a_match_succeeds_and_without_words_fails(log: SessionLog):
    tool = tool_for(log, await told(log, "it rains"))
    assert (await ask(tool, query="snow")).ok
    assert not (await ask(tool, query="***")).ok


async def test_history_search_is_a_safe_read_and_validates_its_input(log: SessionLog):
    tool = tool_for(log, await told(log))
    traits = tool.traits({"query": "x"})
    assert (traits.read_only, traits.concurrent, traits.in_doubt) == (True, True, "retry")
    assert tool.invalid({"query": "x", "limit": 5}) is None
    for wrong in ({}, {"query": 1}, {"query": "x", "limit": 0}, {"query": "x", "limit": True}):
        assert tool.invalid(wrong)
