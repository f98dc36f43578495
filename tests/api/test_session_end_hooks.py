"""The operator's `SessionEnd` hooks in sessions of the service."""
# pyright: basic
# as its users write: with dictionaries

import json
import sys
from pathlib import Path

import anthropic
from anyio import to_thread
from tests.api.conftest import platform
from tests.api.test_official_sdk import create_session, send_text
from tests.service_e2e.service_processes import eventually

SERVE_WITH = """
import sys
from pathlib import Path
from mainspring.runtime.settings import policy_loader
policy_loader.MANAGED_SETTINGS = Path(sys.argv.pop(1))  # only root may write to the usual place
from mainspring.edges.cli.main import main
main()
"""
TOOLSET = {"type": "agent_toolset_20260401"}


async def test_session_end_hooks_run_once_on_archive_and_only_if_the_session_ran(tmp_path: Path):
    ended, settings = tmp_path / "ended.txt", tmp_path / "managed.json"
    hook = {"type": "command", "command": f"(cat; echo) >> {ended}"}
    settings.write_text(json.dumps({"hooks": {"SessionEnd": [{"hooks": [hook]}]}}))
    program = (sys.executable, "-c", SERVE_WITH, str(settings))

    def archive(client: anthropic.Anthropic, name: str, text: str) -> str:
        session = create_session(client, name, TOOLSET)
        if text:
            send_text(client, session.id, text)
        client.beta.sessions.archive(session.id)
        client.beta.sessions.archive(session.id)
        return session.id

    with (
        platform(tmp_path, program=program) as running,
        anthropic.Anthropic(
            api_key=running.key, base_url=running.url, max_retries=0, timeout=60
        ) as client,
    ):
        await to_thread.run_sync(archive, client, "idle", "")
        ids: list[str] = []
        for name in ("one", "two"):
            ids.append(await to_thread.run_sync(archive, client, name, "say done"))
            await eventually(ended, ids[-1])
    lines = [json.loads(line) for line in ended.read_text().splitlines()]
    assert [(line["session_id"], line["hook_event_name"], line["reason"]) for line in lines] == [
        (id_, "SessionEnd", "other") for id_ in ids
    ]
