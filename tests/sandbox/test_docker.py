"""Containers: every flag that makes them tight is on the command line; no engine is needed here."""

import sys
from pathlib import Path

import anyio
import pytest

from mainspring.capabilities.sandbox.backend import MIB, SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.backends.docker import Docker, container_name, run_command
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import ExecRequest

BACKEND = Docker(image="tools:1")


def site_in(folder: Path) -> SandboxSpec:
    work = folder / "work"
    for name in (".mainspring", ".git/hooks"):
        (work / name).mkdir(parents=True)
    return SandboxSpec(
        session_id="one",
        workspace=work,
        state=folder / "state",
        hidden=(work / ".mainspring", work / "absent"),
        protected=(work / ".git/hooks",),
        sandbox_limits=SandboxLimits(memory_bytes=512 * MIB),
    )


def test_a_container_has_no_network_no_capabilities_and_only_its_workspace(tmp_path: Path):
    site = site_in(tmp_path)
    command = run_command(BACKEND, site, container_name(site))
    work = site.workspace
    for flag in (
        *("--rm", "--runtime=runsc", "--network=none", "--read-only", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", "--user=65534:65534", "--pids-limit=128"),
        *(f"--memory={512 * MIB}", f"--memory-swap={512 * MIB}", "--cpus=1", "--pull=never"),
        *("--ulimit=nofile=1024:1024", f"--ulimit=fsize={128 * MIB}:{128 * MIB}"),
        f"--tmpfs=/tmp:size={64 * MIB},mode=1777,nosuid,nodev",
        f"--mount=type=bind,src={work},dst={work}",
        f"--mount=type=bind,src={work}/.git/hooks,dst={work}/.git/hooks,readonly",
        f"--tmpfs={work}/.mainspring:size=4k,mode=0555,ro",
    ):
        assert flag in command, flag
    assert sum(word.startswith("--mount=") for word in command) == 2
    assert not any("absent" in word or "docker.sock" in word for word in command)
    assert "--privileged" not in command


def test_a_path_that_docker_would_misread_is_refused(tmp_path: Path):
    site = site_in(tmp_path / "a,readonly")
    with pytest.raises(SandboxFailed, match="has a comma or a colon"):
        run_command(BACKEND, site, "x")


def test_without_an_engine_docker_is_refused(tmp_path: Path):
    with pytest.raises(SandboxFailed, match="not installed"):
        Docker(image="tools:1", program="no-such-engine").launch(site_in(tmp_path))


# Says what it was asked for, and runs nothing of it but the container's own first process.
_ENGINE = """#!/bin/sh
echo "$@" >> "{log}"
case "$1" in
  run) exec python3 -I -S -c "print('up', flush=True); import sys; sys.stdin.read()" ;;
  exec) exit 7 ;;
esac
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the keeper passes descriptors")
async def test_programs_run_in_the_container_and_it_is_killed_at_the_end(tmp_path: Path):
    log, engine = tmp_path / "log", tmp_path / "engine"
    engine.write_text(_ENGINE.format(log=log))
    engine.chmod(0o755)
    site = site_in(tmp_path)
    name = container_name(site)
    with anyio.fail_after(60):
        async with KeeperSandbox(site, Docker(image="tools:1", program=str(engine))) as sandbox:
            wanted = ExecRequest(key="one", argv=("make", "all"), env={"DOCKER_HOST": "x"})
            assert (await sandbox.run(wanted)).status == 7
        while f"kill {name}" not in log.read_text():  # noqa: ASYNC110 -- by another process
            await anyio.sleep(0.02)
    asked = log.read_text().splitlines()
    assert asked[0].startswith("run --rm --interactive")
    assert asked[1].endswith(f"{name} make all")
    assert f"--workdir={site.workspace}" in asked[1]
    assert "--env=DOCKER_HOST=x" in asked[1]
    assert asked[2] == f"exec {name} sh -c kill -9 -1"


def test_two_sessions_have_two_containers(tmp_path: Path):
    one, two = site_in(tmp_path / "one"), site_in(tmp_path / "two")
    assert container_name(one) != container_name(two)
