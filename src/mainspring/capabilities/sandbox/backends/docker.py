"""The Docker backend, for fleets: one container per session, under gVisor by default, with nothing
that it does not need. `docker_outside.py` starts programs in it with `docker exec`."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.capabilities.sandbox.backend import (
    Launch,
    SandboxSpec,
    module_command,
    readable_sources,
)
from mainspring.capabilities.sandbox.wire import pack
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import IsolationLevel
from mainspring.files.openat import LinkWalk, open_absolute

# Reaps what programs leave behind, and ends when its standard input is closed. As the first
# process, it cannot be killed from inside.
_FIRST = (
    "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('up', flush=True);"
    " sys.stdin.read()"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    name = "docker"
    level: IsolationLevel = field(default="isolated", init=False)
    image: str
    """The container image; it must have python3 and sh."""
    runtime: str = "runsc"
    program: str = "docker"
    user: str = "65534:65534"
    """The uid and gid of programs, which must be able to write to workspaces."""

    def _refuse(self, spec: SandboxSpec) -> None:
        if spec.network:
            raise SandboxFailed(
                "containers have no network: turn it off for this environment, or use bubblewrap"
            )

    def fingerprint(self, spec: SandboxSpec) -> str:
        self._refuse(spec)
        return "\n".join(hardening(self, spec))

    def launch(self, spec: SandboxSpec) -> Launch:
        self._refuse(spec)
        path = shutil.which(self.program)
        if path is None:
            raise SandboxFailed(f"{self.program} is not installed: no container can be started")
        container = container_name(spec)
        run = [path, *run_command(self, spec, container)]
        command = pack(map(os.fsencode, run))
        orders = pack([container.encode(), path.encode(), command, self.user.encode()])
        return Launch(
            argv=(sys.executable, *module_command("backends.docker_outside")),
            files=(orders,),
            variables={"HOME": str(spec.workspace), "TMPDIR": "/tmp", "LANG": "C.UTF-8"},
            has_own_pids=False,
        )


def container_name(spec: SandboxSpec) -> str:
    return "mainspring-" + hashlib.sha256(os.fsencode(spec.state)).hexdigest()[:24]


def run_command(backend: Docker, spec: SandboxSpec, container: str) -> list[str]:
    """The arguments of `docker`."""
    return [
        *("run", "--rm", "--interactive", "--name", container, *hardening(backend, spec)),
        *_volumes(spec),
        *("--workdir", str(spec.workspace), "--entrypoint", "python3"),
        *(backend.image, "-I", "-S", "-c", _FIRST),
    ]


def hardening(backend: Docker, spec: SandboxSpec) -> list[str]:
    limits = spec.sandbox_limits
    memory = str(limits.memory_bytes)
    return [
        *(f"--runtime={backend.runtime}", "--network=none", "--read-only", "--cap-drop=ALL"),
        *("--security-opt=no-new-privileges", f"--user={backend.user}", "--ipc=private"),
        f"--pids-limit={limits.processes}",
        *(f"--memory={memory}", f"--memory-swap={memory}", "--cpus=1"),
        f"--ulimit=nofile={limits.open_files}:{limits.open_files}",
        f"--ulimit=fsize={limits.file_bytes}:{limits.file_bytes}",
        *("--ulimit=core=0:0", f"--ulimit=cpu={limits.cpu_seconds}:{limits.cpu_seconds}"),
        f"--tmpfs=/tmp:size={limits.tmp_bytes},mode=1777,nosuid,nodev",
        "--shm-size=32m",
        *("--log-driver=none", "--pull=never"),
    ]


def _volumes(spec: SandboxSpec) -> Iterator[str]:
    """The mounts. The engine opens them by path, so another container with the same workspace can
    race it; with bubblewrap it cannot."""
    root = spec.workspace
    yield _mount(root, root, "")
    for path, source in readable_sources(spec).items():
        yield _mount(source, path, ",readonly")
    for path in _existing(root, spec.protected):
        yield _mount(path, path, ",readonly")
    for path in _existing(root, spec.hidden):
        if path.is_dir():
            yield f"--tmpfs={path}:size=4k,mode=0555,ro"
        else:
            yield f"--mount=type=bind,src=/dev/null,dst={path},readonly"


def _mount(source: Path, path: Path, mode: str) -> str:
    """The option for one bind mount.

    Raises:
        SandboxFailed: Docker would read part of the path as options.
    """
    if any(sign in f"{source}{path}" for sign in ",:"):
        raise SandboxFailed(
            f"{path} cannot be mounted in a container: its path has a comma or a colon"
        )
    return f"--mount=type=bind,src={source},dst={path}{mode}"


def _existing(root: Path, paths: Iterable[Path]) -> list[Path]:
    """The real paths in the workspace; a link that leads elsewhere has no target inside the
    container."""
    present_paths: set[Path] = set()
    with suppress(FileNotFoundError):
        descriptor = open_absolute(str(root))
        walk = LinkWalk(descriptor, str(root))
        for path in paths:
            with suppress(OSError):
                os.close(walk.open(str((root / path).relative_to(root))))
                present_paths.add(root.joinpath(*walk.names))
        os.close(descriptor)
    return sorted(present_paths - {root})
