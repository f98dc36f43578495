"""A container that the operator declares to be the boundary: who may use it, and where it shows."""

import json
import os
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.cli.conftest import opened
from tests.cli.upstream import Upstream, call
from tests.fork_server import Run
from tests.sandbox.attacks.attack_targets import fresh_root
from tests.service_e2e.service_processes import staged

from mainspring.capabilities.sandbox.backends.session_uids import available_uids
from mainspring.config import CONTAINER_IS_BOUNDARY
from mainspring.core.events import SandboxOpened

DECLARED, UNDECLARED = {CONTAINER_IS_BOUNDARY: "1"}, {CONTAINER_IS_BOUNDARY: "0"}
NO_SANDBOX = {"sandbox": {"disabledBackends": ["bubblewrap", "landlock", "seatbelt", "docker"]}}
only_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can give a uid of its own"
)


@pytest.fixture
def project(environ: dict[str, str]) -> Generator[Path]:
    """A folder that sessions with uids of their own can enter, where no sandbox works."""
    settings = Path(environ["HOME"], ".mainspring/settings.json")
    settings.parent.mkdir(mode=0o700, exist_ok=True)
    settings.write_text(json.dumps(NO_SANDBOX))
    root = fresh_root()
    root.chmod(0o755)
    (root / "project").mkdir()
    yield root / "project"
    shutil.rmtree(root)


@only_root
async def test_commands_run_in_a_declared_container_and_the_log_says_so(
    mainspring: Run, project: Path, upstream: Upstream
):
    read_store = "cat .mainspring/mainspring.db /proc/$PPID/environ || ls .mainspring"
    upstream.says(call("bash", command="echo made > made; id -u"), call("bash", command=read_store))
    upstream.says("Done.")
    run = ("run", "go", "--mode", "bypassPermissions")
    refused = mainspring(*run, cwd=project, **upstream.variables, **UNDECLARED)
    assert "no commands can be run here" in refused.stderr
    assert f"set {CONTAINER_IS_BOUNDARY}=1" in refused.stderr
    upstream.answers.clear()
    upstream.says(call("bash", command="echo made > made; id -u"), call("bash", command=read_store))
    upstream.says("Done.")
    ran = mainspring(*run, cwd=project, **upstream.variables, **DECLARED)
    assert ran.returncode == 0, ran.stderr
    made, attempt = [
        item["content"] for item in upstream.requests[-1]["messages"] if item["role"] == "tool"
    ]
    assert int(made.split()[0]) in available_uids()
    assert "SQLite" not in attempt
    assert "denied" in attempt
    assert (project / "made").read_text() == "made\n"
    async with opened(project / ".mainspring/mainspring.db") as log:
        session = (await log.sessions())[0].id
        [fact] = [
            event.payload
            for event in await log.read(session)
            if isinstance(event.payload, SandboxOpened)
        ]
    assert (fact.backend, fact.level) == ("container", "container")
    shown = mainspring("sessions", "show", session, cwd=project)
    assert "a container that is declared to be the boundary" in shown.stdout
    report = json.loads(mainspring("doctor", "--json", cwd=project, **DECLARED).stdout)
    assert "sandbox" in [finding["name"] for finding in report["findings"]]


def test_a_second_tenant_is_refused_by_every_command(mainspring: Run, place: Path):
    refused = mainspring("tenants", "create", "acme", **DECLARED)
    assert refused.returncode == 1
    assert "there can be only one tenant, and not 'acme'" in refused.stderr
    assert mainspring("tenants", "create", "acme", **UNDECLARED).returncode == 0
    for words in (("serve", "--port", "0", "--model", "ollama:test"), ("worker",)):
        refused = mainspring(*words, **DECLARED)
        assert refused.returncode == 1, words
        assert "there can be only one tenant, and not 'acme'" in refused.stderr
        assert "a container of its own" in refused.stderr


async def test_the_service_says_that_its_container_is_the_boundary(tmp_path: Path):
    async with staged(tmp_path, **DECLARED) as stage, stage.serve() as served:
        with urllib.request.urlopen(f"{served.url}/readyz", timeout=60) as answer:
            ready = json.loads(answer.read())
        assert ready["boundary"] == "container"
        assert ready["checks"]["one tenant"] == {"ok": True}
        request = urllib.request.Request(
            f"{served.url}/v1/mainspring/tenants",
            json.dumps({"id": "acme"}).encode(),
            {"x-api-key": served.key, "content-type": "application/json"},
        )
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=60)
        assert "only this container isolates" in stage.errors()
