"""`mainspring mcp serve tools.py`: functions of a file over MCP."""

from pathlib import Path

import aiohttp
import pytest
from tests import fork_server
from tests.mcp.serving import (
    ADMIN_KEY,
    environment,
    keyed_client,
    served_http,
    served_stdio,
    text_of,
)

from mainspring.core.errors import InvalidInput, McpFailed
from mainspring.edges.mcp.function_features import load_functions
from mainspring.function_tools.served_functions import prompt, resource

TOOLS = '''
from mainspring.tools import Call, prompt, resource, tool

print("printing does not break the protocol")


@tool(read_only=True)
def add(a: int, b: int, call: Call) -> int:
    """Add two numbers."""
    call.say("adding")
    return a + b


@tool
async def fail(why: str) -> str:
    """Never works."""
    raise ValueError(why)


@resource("notes://{name}")
def note(name: str) -> str:
    """A note."""
    return f"The note {name}."


@resource("notes:///index", mime_type="application/json")
def index() -> list[str]:
    """All notes."""
    return ["one"]


@prompt
def review(code: str, tone: str = "kind") -> str:
    """Review code."""
    return f"Review this in a {tone} tone:\\n{code}"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "tools.py").write_text(TOOLS)
    return place


async def test_functions_are_served_as_tools_resources_and_prompts(folder: Path):
    steps: list[str] = []
    async with served_stdio(folder, "tools.py") as served:
        client = served.client
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        added = await client.call_tool("add", {"a": 2, "b": 3}, progress=steps.append)
        wrong = await client.call_tool("add", {"a": "x"})
        failed = await client.call_tool("fail", {"why": "no luck"})
        note = await client.read_resource("notes://my%20list")
        index = await client.read_resource("notes:///index")
        review = await client.get_prompt("review", {"code": "x = 1"})
        with pytest.raises(McpFailed, match="code"):
            await client.get_prompt("review", {})
        with pytest.raises(McpFailed, match="there is no resource"):
            await client.read_resource("notes://a/b")
    assert list(tools) == ["add", "fail"]
    assert tools["add"].annotations is not None
    assert tools["add"].annotations.read_only_hint is True
    assert text_of(added) == "5"
    assert any("adding" in step for step in steps)
    assert wrong.is_error
    assert "b" in text_of(wrong)
    assert (failed.is_error, text_of(failed)) == (True, "ValueError: no luck")
    assert note.contents[0].text == "The note my list."
    assert (index.contents[0].mime_type, index.contents[0].text) == ("application/json", '["one"]')
    assert getattr(review.messages[0].content, "text", "") == ("Review this in a kind tone:\nx = 1")


async def test_functions_over_http_need_a_key_unless_disabled(folder: Path):
    async with served_http(folder, "tools.py") as url:
        async with aiohttp.ClientSession() as http, http.post(url, data=b"{}") as response:
            assert response.status == 401
        async with keyed_client(url, ADMIN_KEY) as client:
            assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
    async with (
        served_http(folder, "tools.py", "--no-auth") as url,
        keyed_client(url, "none") as client,
    ):
        assert text_of(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


REFUSED = [
    (("tools.py", "--http", "0.0.0.0:0", "--no-auth"), "can be reached from other machines"),
    (("--http", "0", "--no-auth"), "for functions over HTTP only"),
    (("tools.py", "--no-auth"), "for functions over HTTP only"),
    (("tools.py", "--agent", "."), "a file is served without agents"),
    (("tools.py", "--http", "nowhere"), "give it as 8800"),
    (("no.py",), "there is no such file"),
    (("empty.py",), "no function is decorated with @tool"),
    (("broken.py",), "ZeroDivisionError"),
]


def test_unservable_files_are_reported_at_startup(folder: Path):
    (folder / "empty.py").write_text("x = 1\n")
    (folder / "broken.py").write_text("1 / 0\n")
    for words, why in REFUSED:
        done = fork_server.run("mcp", "serve", *words, cwd=folder, env=environment(folder))
        assert done.returncode != 0, words
        assert why in " ".join(done.stderr.split()), words


def test_a_resource_uri_contains_each_parameter_once():
    def note(name: str) -> str:
        return name

    def count(number: int) -> int:
        return number

    with pytest.raises(InvalidInput, match="each parameter"):
        resource("notes://all")(note)
    with pytest.raises(InvalidInput, match="is not a URI"):
        resource("{name}")(note)
    with pytest.raises(InvalidInput, match="must be str"):
        resource("numbers://{number}")(count)
    with pytest.raises(InvalidInput, match="must be str"):
        prompt(count)
    assert resource("notes://{name}/x")(note).arguments("notes://a%2Fb/x") == {"name": "a/b"}
    assert resource("notes://{name}")(note).arguments("notes://a/b") is None


def test_two_tools_with_one_name_are_refused(tmp_path: Path):
    file = tmp_path / "twice.py"
    file.write_text(
        "from mainspring import tool\n"
        "@tool(name='x')\ndef a() -> str:\n    'A.'\n    return ''\n"
        "@tool(name='x')\ndef b() -> str:\n    'B.'\n    return ''\n"
    )
    with pytest.raises(InvalidInput, match="same name"):
        load_functions(file)
