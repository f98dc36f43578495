"""`mainspring init`."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.cli.terminal import at_terminal
from tests.environ import NO_LOCAL_MODELS
from tests.fork_server import Run

from mainspring.config import Settings, read_settings
from mainspring.core.errors import InvalidInput
from mainspring.edges.cli.agent_files.init import init
from mainspring.edges.cli.run.model_discovery import find_models
from mainspring.runtime.agent_folder.manifest import Permissions, read_manifest
from mainspring.wiring.settings_files import load_policy


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return read_settings(environ=NO_LOCAL_MODELS, folder=tmp_path)


async def test_a_new_agent_is_written_trusted_and_recorded_as_version_1(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status = await init(
        settings,
        folder="fixer",
        purpose="Fixes tests.",
        tools="Read, grep",
        mode="acceptEdits",
        yes=True,
        json=True,
    )
    assert status == 0
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(tmp_path / "fixer"),
        "files": ["agent.yaml", "AGENTS.md"],
        "name": "fixer",
        "model": None,
        "tools": ["read", "grep"],
        "mode": "acceptEdits",
        "version": 1,
    }
    found = read_manifest(tmp_path / "fixer/agent.yaml")
    assert (found.name, found.description) == ("fixer", "Fixes tests.")
    assert found.permissions == Permissions(mode="acceptEdits")
    loaded = load_policy(tmp_path / "fixer", home=Path(settings.home))
    assert (loaded.policy.mode, loaded.is_trusted, loaded.warnings) == ("acceptEdits", True, ())


async def test_init_does_not_trust_existing_settings_of_the_folder(
    settings: Settings, tmp_path: Path
):
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/settings.json").write_text('{"permissions": {"allow": ["Bash"]}}')
    await init(settings, mode="acceptEdits", yes=True, json=True)
    loaded = load_policy(tmp_path, home=Path(settings.home))
    assert (loaded.policy.mode, loaded.policy.rules, loaded.is_trusted) == (None, (), False)


@pytest.mark.parametrize(
    ("tools", "model", "yes", "why"),
    [
        ("raed", None, True, "there is no tool raed"),
        (None, "opuss", True, "did you mean opus?"),
        (None, None, False, "there is no terminal for questions"),
    ],
)
async def test_invalid_options_are_refused_and_nothing_is_written(
    settings: Settings, tmp_path: Path, tools: str | None, model: str | None, yes: bool, why: str
):
    with pytest.raises(InvalidInput, match=why):
        await init(settings, folder="new", tools=tools, model=model, yes=yes)
    assert not (tmp_path / "new").exists()


async def test_models_are_discovered_from_keys_and_local_servers(tmp_path: Path):
    async def models(_request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "qwen3:8b"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        local = {**NO_LOCAL_MODELS, "OLLAMA_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        keyed = {**local, "OPENAI_API_KEY": "k", "MAINSPRING_MODEL": "opus"}
        assert await find_models(read_settings(environ=keyed, folder=tmp_path)) == [
            "opus",
            "gpt",
            "ollama:qwen3:8b",
        ]
        settings = read_settings(environ=local, folder=tmp_path)
        await init(settings, folder="agent", yes=True, json=True)
    finally:
        await runner.cleanup()
    assert read_manifest(tmp_path / "agent/agent.yaml").model == "ollama:qwen3:8b"


def test_init_asks_at_a_terminal_and_the_new_agent_runs(
    mainspring: Run, place: Path, environ: dict[str, str]
):
    with at_terminal("init", cwd=place, env={**environ, **NO_LOCAL_MODELS}) as terminal:
        terminal.expect("Name [project]")
        terminal.type("helper\n")
        terminal.expect("What is it for?")
        terminal.type("Counts lines.\n")
        terminal.expect("Which? [1]")
        terminal.type("7\n")
        terminal.expect("7 is not a choice")
        terminal.expect("Which? [1]")
        terminal.type("\n")
        terminal.expect("Which? [1]")
        terminal.type("raed\n")
        terminal.expect("there is no tool raed")
        terminal.expect("Which? [1]")
        terminal.type("2\n")
        terminal.expect("Which? [1]")
        terminal.type("plan\n")
        terminal.expect("mainspring run")
        assert terminal.wait() == 0
    found = read_manifest(place / "agent.yaml")
    assert (found.name, found.description) == ("helper", "Counts lines.")
    assert (found.model, found.tools) == ("", ("read", "glob", "grep"))
    assert found.permissions == Permissions(mode="plan")
    ran = mainspring("run", "hello")
    assert ran.returncode == 0, ran.stderr
    assert "not trusted" not in ran.stderr
    again = mainspring("init", "--yes")
    assert again.returncode == 1
    assert "exists already: nothing was written" in again.stderr


def test_leaving_init_during_the_questions_writes_nothing(place: Path, environ: dict[str, str]):
    with at_terminal("init", cwd=place, env={**environ, **NO_LOCAL_MODELS}) as terminal:
        terminal.expect("Name [project]")
        terminal.type("\x04")
        terminal.expect("nothing was written")
        assert terminal.wait() == 1
    assert not (place / "agent.yaml").exists()
