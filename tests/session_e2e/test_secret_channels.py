"""Secrets of this year through every channel into a session: none is in what the session leaves."""

import json
from pathlib import Path

import anyio
import pytest
from tests import fork_server
from tests.abilities import require_sandbox
from tests.environ import clean_environ
from tests.session_e2e.session_setup import Scene, read_by_model
from tests.session_e2e.test_secrets import find_secrets, read_files
from tests.vault.modern import modern

from mainspring.capabilities.providers.scripted import ScriptStep, calls
from mainspring.capabilities.tools.html_text import html_to_text
from mainspring.core.model import Delta
from mainspring.function_tools.define import tool
from mainspring.wiring.settings_files import trust

READING_SERVER = Path(__file__).parents[2] / "tests/mcp/reading_server.py"
CHANNELS = (
    *("file", "output", "result", "page", "message", "argument", "memory", "knowledge", "hook"),
    "error",
)
PARTS = 12
"""A result is cut if it is too long, so that a part of the kinds is in each."""
EXPORTS = (
    *(("log", "export"), ("log", "show"), ("sessions", "export"), ("context", "show")),
    *(("cost", "--json"), ("insights", "--json")),
)


def parts_of(channel: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Each channel has other secrets."""
    kinds = [*modern(CHANNELS.index(channel) + 100).items()]
    return {f"{channel}{part}": dict(kinds[part::PARTS]) for part in range(PARTS)}


def text_of(kinds: dict[str, tuple[str, str]]) -> str:
    return "\n\n".join(text for text, _ in kinds.values()) + "\n"


@pytest.mark.slow
async def test_no_secret_of_ten_channels_is_in_what_a_session_leaves(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    require_sandbox()
    parts = {name: kinds for channel in CHANNELS for name, kinds in parts_of(channel).items()}
    for name, kinds in parts.items():
        folder = "knowledge" if name.startswith("knowledge") else "parts"
        scene.write(f"{folder}/{name}.md", f"# About {name}\n\n{text_of(kinds)}")
        if name.startswith("memory"):
            scene.write(f"memory/{name}.md", text_of(kinds))
    scene.write("server.py", READING_SERVER.read_text())
    servers = {"reading": {"command": "python3", "args": ["server.py"]}}
    scene.write(".mcp.json", json.dumps({"mcpServers": servers}))
    hook = {"type": "command", "command": "cat parts/hook*.md"}
    scene.user(hooks={"SessionStart": [{"hooks": [hook]}]})
    trust(scene.workspace, home=scene.home)

    @tool
    async def page(name: str) -> str:
        """Show a page."""
        return html_to_text(f"<p>{text_of(parts[name])}</p>", "https://a.test/")

    def step_of(name: str) -> ScriptStep:
        file = f"parts/{name}.md"
        steps: dict[str, ScriptStep] = {
            "file": calls("read", file_path=file),
            "output": calls("bash", command=f"cat {file}"),
            "result": calls("mcp__reading__show", path=file),
            "page": calls("page", name=name),
            "argument": calls("bash", command=f"true <<'END'\n{text_of(parts[name])}END\n"),
            "memory": calls("memory_read", path=f"{name}.md"),
            "knowledge": calls("knowledge_search", query=f"About {name}?"),
            "error": calls("bash", command=f"cat {file} >&2; exit 3"),
        }
        return steps.get(name.rstrip("0123456789"), calls("think", thought="on"))

    heard: list[Delta] = []
    async with scene.play(*map(step_of, parts), mode="bypassPermissions", tools=(page,)) as play:
        with anyio.fail_after(600):
            for name, kinds in parts.items():
                if name.startswith("message"):
                    await play.session.send(text_of(kinds))
            assert (await play.session.run(heard.append)) is not None
        requests, session_id = read_by_model(play.model.requests), play.session.id
    secrets = {
        f"{name} {kind}": secret
        for name, kinds in parts.items()
        for kind, (_, secret) in kinds.items()
    }
    left: dict[str, bytes] = {"requests": requests.encode(), "heard": repr(heard).encode()}
    left |= read_files(scene.workspace / ".mainspring")
    environ = {**clean_environ(), "HOME": str(scene.home)}
    for words in EXPORTS:
        with_id = words if words[0] in ("cost", "insights") else (*words, session_id)
        ran = fork_server.run(*with_id, cwd=scene.workspace, env=environ)
        left[" ".join(words)] = (ran.stdout + ran.stderr).encode()
        assert len(ran.stdout) > 100 or words[0] in ("cost", "insights"), (words, ran.stderr)
    left["printed"] = "".join(capfd.readouterr()).encode()
    assert requests.count("[redacted:") > 1_000
    found = {
        f"{name}: {kind}"
        for name, content in left.items()
        for kind, secret in secrets.items()
        if find_secrets(content, [secret, json.dumps(secret)[1:-1]])
    }
    assert not found, "\n".join(sorted(found))
