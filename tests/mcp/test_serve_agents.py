"""Agents of this machine over MCP: what a client can do with them, and what it cannot."""

from pathlib import Path

import anyio
import pytest
from tests.mcp.serving import (
    ADMIN_KEY,
    ALLOW_BASH,
    Person,
    appearing,
    command,
    fields_of,
    keyed_client,
    served_http,
    served_stdio,
    text_of,
    write_agent,
)
from tests.written_files import write_file

from mainspring.capabilities.mcp.protocol.messages import Era
from mainspring.core.errors import McpFailed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return write_agent(place)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_runs_an_agent_and_a_person_approves_its_calls(folder: Path, era: Era):
    person, steps = Person(), list[str]()
    async with served_stdio(folder, era=era, person=person) as served:
        client = served.client
        tools = [tool.name for tool in (await client.list_tools()).tools]
        run = await client.call_tool("helper", {"message": "write it"}, progress=steps.append)
        session = str(fields_of(run)["session_id"])
        again = await client.call_tool("helper", {"message": "hi", "session_id": session})
        listed = fields_of(await client.call_tool("list_sessions", {}))
        read = text_of(await client.call_tool("read_session", {"session_id": session}))
        found = text_of(await client.call_tool("search_sessions", {"query": "written"}))
        resource = await client.read_resource(f"mainspring://sessions/{session}")
    assert tools == [
        "helper",
        "list_sessions",
        "read_session",
        "search_sessions",
        "list_approvals",
    ]
    assert text_of(run).startswith("It is written.")
    assert fields_of(run)["status"] == "completed"
    assert [question.splitlines()[0] for question in person.questions] == ["Allow bash?"]
    assert (folder / "out.txt").read_text() == "hello\n", "it ran once"
    assert any(session in step for step in steps)
    assert any("calls bash" in step for step in steps)
    assert fields_of(again)["session_id"] == session
    [line] = listed["sessions"]
    assert (line["session_id"], line["agent"]) == (session, "helper")
    assert "write it" in read
    assert session in found
    assert resource.contents[0].text is not None
    assert "It is written." in resource.contents[0].text


@pytest.mark.parametrize("decision", ["deny", "close", "perhaps"])
async def test_only_an_explicit_approval_allows_a_call(folder: Path, decision: str):
    async with served_stdio(folder, person=Person(decision)) as served:
        await served.client.call_tool("helper", {"message": "write it"})
    assert not (folder / "out.txt").exists()


async def test_a_client_without_elicitation_leaves_the_call_waiting(folder: Path):
    async with served_stdio(folder) as served:
        client = served.client
        run = await client.call_tool("helper", {"message": "write it"})
        waiting = fields_of(await client.call_tool("list_approvals", {}))["approvals"]
        session = str(fields_of(run)["session_id"])
        with pytest.raises(McpFailed, match="there is no tool 'answer_approval'"):
            await client.call_tool("answer_approval", {"approval_id": "x", "result": "allow"})
        assert fields_of(run)["status"] == "requires_action"
        assert "Waiting for a person" in text_of(run)
        assert not (folder / "out.txt").exists()
        [approval] = waiting
        call = str(approval["id"]).partition(":")[2]
        await command(folder, "sessions", "answer", session, call, "allow")
        done = await client.call_tool("helper", {"session_id": session})
    assert text_of(done).startswith("It is written.")
    assert (folder / "out.txt").read_text() == "hello\n"


async def test_a_client_answers_approvals_only_if_the_operator_allows_it(folder: Path):
    async with served_stdio(folder, "--allow-answers") as served:
        client = served.client
        run = await client.call_tool("helper", {"message": "write it"})
        [approval] = fields_of(run)["waiting_for"]
        answer = {"approval_id": approval["id"], "result": "allow"}
        await client.call_tool("answer_approval", answer)
        done = await client.call_tool("helper", {"session_id": fields_of(run)["session_id"]})
        late = await client.call_tool("answer_approval", answer)
    assert text_of(done).startswith("It is written.")
    assert late.is_error


async def test_an_agent_with_an_input_schema_validates_its_input(folder: Path):
    schema = """
input_schema:
  type: object
  properties:
    file: {type: string, description: Which file to write.}
    times: {type: integer}
  required: [file]
"""
    with (folder / "agent.yaml").open("a") as file:
        file.write(schema)
    async with served_stdio(folder) as served:
        client = served.client
        [helper] = [tool for tool in (await client.list_tools()).tools if tool.name == "helper"]
        assert list(helper.input_schema["properties"]) == ["file", "times", "session_id"]  # type: ignore[call-overload]
        assert helper.input_schema["required"] == ["file"]
        for wrong in ({}, {"message": "hi"}, {"file": 1}, {"file": "x", "times": "two"}):
            refused = await client.call_tool("helper", wrong)
            assert refused.is_error, wrong
            assert "The input is not valid: " in text_of(refused) or wrong == {"message": "hi"}
        run = await client.call_tool("helper", {"file": "a.txt", "times": 2})
        session = str(fields_of(run)["session_id"])
        again = await client.call_tool("helper", {"session_id": session})
        read = text_of(await client.call_tool("read_session", {"session_id": session}))
    assert text_of(run).startswith("Hello from the agent.")
    assert fields_of(again)["session_id"] == session
    assert '"file": "a.txt"' in read
    assert '"times": 2' in read


async def test_skills_are_resources_and_prompts_and_their_commands_do_not_run(folder: Path):
    async with served_stdio(folder) as served:
        client = served.client
        uris = [item.uri for item in await client.list_resources()]
        manifest = await client.read_resource("skill://greet/SKILL.md")
        prompt = await client.get_prompt("greet", {"arguments": "Ann"})
        attempts = ("away", "../../../agent.yaml", "%2e%2e/%2e%2e/agent.yaml", "/etc/passwd")
        for path in attempts:
            with pytest.raises(McpFailed, match="there is no resource"):
                await client.read_resource(f"skill://greet/{path}")
    assert uris == ["skill://greet/SKILL.md", "skill://greet/scripts/greet.py"]
    assert manifest.contents[0].mime_type == "text/markdown"
    message = getattr(prompt.messages[0].content, "text", "")
    assert message.startswith("Greet Ann politely.")
    assert "not run" in message


async def test_cancelling_a_call_interrupts_its_session(folder: Path):
    (folder / ".claude" / "settings.json").write_text(ALLOW_BASH)
    await command(folder, "policy", "trust")
    async with served_stdio(folder) as served:
        async with anyio.create_task_group() as group:
            group.start_soon(served.client.call_tool, "helper", {"message": "wait"})
            await appearing(folder / "begun")
            group.cancel_scope.cancel()
        state = ""
        while "interrupted" not in state:
            state = await command(folder, "sessions", "ls", "--json")


@pytest.mark.slow
async def test_a_session_of_a_killed_server_is_continued_by_the_next(folder: Path):
    steps: list[str] = []
    failures: list[McpFailed] = []
    (folder / ".claude" / "settings.json").write_text(ALLOW_BASH)
    await command(folder, "policy", "trust")
    async with served_stdio(folder) as served:
        client = served.client

        async def run() -> None:
            try:
                await client.call_tool("helper", {"message": "nap"}, progress=steps.append)
            except McpFailed as error:
                failures.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await appearing(folder / "begun")
            served.process.kill()
    [failure] = failures
    assert failure.is_in_doubt
    assert "ended" in str(failure)
    session = next(word for step in steps for word in step.split() if word.startswith("sesn_"))
    async with served_stdio(folder) as served:
        [before] = fields_of(await served.client.call_tool("list_sessions", {}))["sessions"]
        done = await served.client.call_tool("helper", {"session_id": session})
        transcript = text_of(await served.client.call_tool("read_session", {"session_id": session}))
    assert before["status"] == "unfinished"
    assert text_of(done).startswith("It slept."), "it went on where it was"
    assert (folder / "ran.txt").read_text() == "once\n"
    assert transcript.count("## User") == 1, "the message was not sent again"


async def test_over_http_the_role_of_a_key_limits_its_tools(folder: Path):
    async with served_http(folder) as url:
        keys = {
            role: (await command(folder, "keys", "create", role, "--role", role)).split()[-1]
            for role in ("viewer", "user")
        }
        await command(folder, "tenants", "create", "other")
        foreign = (
            await command(folder, "keys", "create", "x", "--role", "admin", "--tenant", "other")
        ).split()[-1]
        with pytest.raises(McpFailed, match="401"):
            async with keyed_client(url, "msk_wrong"):
                pass
        with pytest.raises(McpFailed, match="403"):
            async with keyed_client(url, foreign):
                pass
        async with keyed_client(url, keys["user"], person=Person()) as client:
            run = await client.call_tool("helper", {"message": "write it"})
        async with keyed_client(url, keys["viewer"], person=Person()) as client:
            seen = [tool.name for tool in (await client.list_tools()).tools]
            with pytest.raises(McpFailed, match="there is no tool"):
                await client.call_tool("helper", {"message": "hi"})
            read = await client.call_tool(
                "read_session", {"session_id": fields_of(run)["session_id"]}
            )
            unknown = await client.call_tool("read_session", {"session_id": "sesn_unknown"})
    assert text_of(run).startswith("It is written.")
    assert "helper" not in seen
    assert not read.is_error
    assert unknown.is_error
    assert ADMIN_KEY not in text_of(read)


async def test_only_the_named_agents_and_their_sessions_are_served(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    write_agent(other, name="second")
    await command(folder, "run", "hi")
    async with served_stdio(folder, "--agent", str(other)) as served:
        tools = [tool.name for tool in (await served.client.list_tools()).tools]
        listed = fields_of(await served.client.call_tool("list_sessions", {}))
        everything = await command(folder, "sessions", "ls", "--json")
        session = everything.split('"id":"')[1].split('"')[0]
        for name, arguments in (
            ("read_session", {"session_id": session}),
            ("list_approvals", {"session_id": session}),
            ("second", {"session_id": session, "message": "more"}),
        ):
            assert (await served.client.call_tool(name, arguments)).is_error, name
        found = fields_of(await served.client.call_tool("search_sessions", {"query": "Hello"}))
    assert tools[0] == "second"
    assert listed == {"sessions": []}
    assert found == {"hits": []}


NOTE = {"name": "Release day", "description": "when", "text": "On Thursdays.", "type": "procedure"}


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_client_searches_memories_and_a_person_approves_its_writes(folder: Path, era: Era):
    write_file(folder / "memory/lunch.md", "Lunch is at noon.")
    write = {"note": NOTE, "reason": "they said so"}
    person = Person()
    async with served_stdio(folder, era=era, person=person) as served:
        client = served.client
        found = await client.call_tool("memory_search", {"query": "When is lunch?"})
        read = await client.call_tool("memory_read", {"path": "../secret.md"})
        wrong = await client.call_tool("memory_write", {"note": {"name": ""}, "reason": "?"})
        written = await client.call_tool("memory_write", write)
        person.decision = "deny"
        denied = await client.call_tool("memory_write", {**write, "note": {**NOTE, "name": "B"}})
    unverified = "[agent memory lunch.md:1, written by others, not verified]"
    assert f"{unverified}\n> Lunch is at noon." in text_of(found)
    assert (read.is_error, wrong.is_error, denied.is_error) == (True, True, True)
    assert text_of(written) == "Remembered as procedure_release_day.md."
    assert "+On Thursdays." in person.questions[0]
    assert "trust: foreign" in (folder / "memory/procedure_release_day.md").read_text()
    assert not (folder / "memory/procedure_b.md").exists()


async def test_memory_tools_follow_the_rules_and_the_clients_abilities(folder: Path):
    write_file(folder / "memory/MEMORY.md", "")
    async with served_stdio(folder) as served:
        refused = await served.client.call_tool("memory_write", {"note": NOTE, "reason": "said"})
    assert "this client cannot ask one" in text_of(refused)
    settings = folder.parent / "home/.claude/settings.json"
    write_file(settings, '{"permissions": {"deny": ["memory_write"]}}')
    async with served_stdio(folder, person=Person()) as served:
        names = {tool.name for tool in (await served.client.list_tools()).tools}
    assert ("memory_search" in names, "memory_write" in names) == (True, False)
    with (folder / "agent.yaml").open("a") as file:
        file.write("\nmemory: off\n")
    async with served_stdio(folder, person=Person()) as served:
        names = {tool.name for tool in (await served.client.list_tools()).tools}
    assert not any(name.startswith("memory") for name in names)
