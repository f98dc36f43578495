"""Skills of MCP servers in a session: a server's words, loaded when they are used."""

import json
from dataclasses import replace
from pathlib import Path

import anyio
from tests.session_e2e.session_setup import MODEL, Scene, at_work

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.core.events import SkillUsed
from mainspring.wiring.settings_files import trust

SERVER = Path(__file__).parents[2] / "tests/mcp/skill_server.py"


def with_server(scene: Scene) -> None:
    scene.write("server.py", SERVER.read_text())
    servers = {"team": {"command": "python3", "args": ["server.py"]}}
    scene.write(".mcp.json", json.dumps({"mcpServers": servers}))
    trust(scene.workspace, home=scene.home)


async def test_server_skills_are_listed_and_loaded_with_their_origin(scene: Scene):
    with_server(scene)
    async with scene.play(
        calls("mcp_skill", name="team:reporting"),
        calls("mcp_skill", name="team:reporting", file="references/TONE.md"),
        calls("mcp_skill", name="team"),
        says("done"),
    ) as play:
        assert (await play.run("write the report")).ok
        offered = {spec.name: spec for spec in play.model.requests[0].tools}
        skill, tone, every = await play.results()
        used = await play.events(SkillUsed)
    assert "- team:reporting: How to write a weekly report." in offered["mcp_skill"].description
    assert skill.startswith("The MCP server team wrote this skill, not the user.")
    assert skill.count("</mcp_skill>") == 1
    assert "\u200b" not in skill
    assert "Files, for `file`: references/TONE.md" in skill
    assert tone.endswith("Short sentences.")
    assert [line.partition(": ")[0] for line in every.splitlines()] == [
        "- team:changed",
        "- team:renamed",
        "- team:reporting",
    ]
    assert [(fact.name, fact.allowed_tools) for fact in used] == [("team:reporting", ())]
    assert not (scene.workspace / "ran.txt").exists()
    assert scene.read("reads.txt").splitlines() == [
        "skill://reporting/SKILL.md",
        "skill://reporting/references/TONE.md",
    ]


async def test_server_skills_that_differ_from_their_announcement_are_not_used(scene: Scene):
    with_server(scene)
    async with scene.play(
        calls("mcp_skill", name="team:changed"),
        calls("mcp_skill", name="team:renamed"),
        calls("mcp_skill", name="team:steering"),
        calls("mcp_skill", name="team:reporting", file="../../etc/passwd"),
        calls("mcp_skill", name="sea:reporting"),
        says("done"),
    ) as play:
        assert (await play.run("try all")).ok
        description = next(
            spec.description for spec in play.model.requests[0].tools if spec.name == "mcp_skill"
        )
        answers = await play.results()
        assert await play.events(SkillUsed) == []
    assert "steering" not in description
    assert "evil.example" not in description
    assert [answer.partition(": ")[2] or answer for answer in answers] == [
        "skill://changed/SKILL.md does not have the announced contents",
        "its SKILL.md describes a different skill from the one announced",
        "The MCP server team has no skill steering.",
        "it has no file ../../etc/passwd",
        "No MCP server sea publishes skills.",
    ]


async def test_an_agent_with_listed_tools_has_server_skills_only_if_it_lists_mcp_skill(
    scene: Scene,
):
    with_server(scene)
    for tools, is_offered in ((("bash",), False), (("bash", "mcp_skill"), True)):
        async with scene.runtime() as runtime:
            model = Scripted(says("done"))
            runtime.models.put(MODEL, model)
            session = await runtime.start(replace(at_work(), built_ins=tools), "look")
            with anyio.fail_after(60):
                await session.run()
        offered = {spec.name for spec in model.requests[0].tools}
        assert ("mcp_skill" in offered) == is_offered
