"""Runs the whole list against one backend, in a process of its own, and tells what has won.

`PLANTED=SECRET python -m tests.sandbox.attacks.attack_run BACKEND SECRET [PART_OF_NAME]`, where
BACKEND is `default`, `landlock`, or `nothing` for the harmless ones with no sandbox at all.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from msgspec import Struct
from tests.sandbox.attacks.attack import Attack, silenced
from tests.sandbox.attacks.attack_targets import Scene, fresh_root
from tests.sandbox.attacks.kernel import KERNEL
from tests.sandbox.attacks.limits import LIMITS as OVER_LIMITS
from tests.sandbox.attacks.network import NETWORK
from tests.sandbox.attacks.processes import PROCESSES
from tests.sandbox.attacks.reading import READING
from tests.sandbox.attacks.writing import WRITING

from mainspring.capabilities.sandbox.backend import MIB, SandboxLimits, SandboxSpec
from mainspring.capabilities.sandbox.backend_selection import SandboxSettings, select_backend
from mainspring.capabilities.sandbox.sandbox_client import KeeperSandbox
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import CapturedOutput, ExecRequest, ExecResult, Sandbox

ATTACKS: tuple[Attack, ...] = (*READING, *WRITING, *NETWORK, *PROCESSES, *KERNEL, *OVER_LIMITS)
LIMITS = SandboxLimits(
    memory_bytes=256 * MIB,
    processes=64,
    file_bytes=64 * MIB,
    open_files=256,
    disk_bytes=64 * MIB,
    tmp_bytes=32 * MIB,
    output_bytes=16 * MIB,
)
_PROBE_SECONDS = 20.0


class Outcome(Struct, frozen=True, kw_only=True):
    """What the process that runs it prints."""

    box: str
    ran: list[str]
    won: list[str]
    slow: dict[str, float]
    """Those that took more than a second, for whoever wants the list to be faster."""


class NoSandbox:
    """Starts programs as anybody would who has not thought about it."""

    async def run(self, request: ExecRequest) -> ExecResult:
        return await anyio.to_thread.run_sync(self._run, request)

    def _run(self, request: ExecRequest) -> ExecResult:
        begun = time.monotonic()
        with tempfile.TemporaryFile() as said:  # a pipe would be held open by what stays behind
            process = subprocess.Popen(
                ["env", *(f"{name}={value}" for name, value in request.env.items()), *request.argv],
                cwd=request.env["WORK"],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                close_fds=False,
                start_new_session=True,
            )
            try:
                process.wait(request.wall_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            said.seek(0)
            head = said.read()
        return ExecResult(
            status=process.returncode,
            stdout=CapturedOutput(head=head, size=len(head)),
            stderr=CapturedOutput(),
            milliseconds=int((time.monotonic() - begun) * 1000),
        )


async def _attacked(sandbox: Sandbox | NoSandbox, scene: Scene, attack: Attack) -> bool:
    scene.begin()
    try:
        with anyio.fail_after(60):
            ran = await sandbox.run(attack.exec(scene))
        if attack.won is silenced and not isinstance(sandbox, NoSandbox):
            scene.answers = await _answers(sandbox, scene)
        return attack.won(scene, ran)
    finally:
        scene.sweep()


async def _answers(sandbox: Sandbox, scene: Scene) -> bool:
    request = ExecRequest(
        key=f"after-{scene.round}", argv=("echo", "here"), wall_seconds=_PROBE_SECONDS
    )
    try:
        with anyio.fail_after(_PROBE_SECONDS):
            return (await sandbox.run(request)).stdout.head == b"here\n"
    except (SandboxFailed, TimeoutError):
        return False


def _site(scene: Scene) -> SandboxSpec:
    workspace = scene.workspace
    return SandboxSpec(
        session_id="siege",
        workspace=workspace,
        state=scene.root / "state",
        hidden=(workspace / ".mainspring",),
        protected=(workspace / ".git/hooks", workspace / ".git/config"),
        sandbox_limits=LIMITS,
    )


@asynccontextmanager
async def _opened(backend: str, scene: Scene) -> AsyncGenerator[tuple[Sandbox | NoSandbox, str]]:
    if backend == "nothing":
        yield NoSandbox(), backend
        return
    forced = "landlock" if backend == "landlock" else None
    chosen = await select_backend(SandboxSettings(forced=forced), cache=scene.root / "cache")
    async with KeeperSandbox(_site(scene), chosen) as sandbox:
        yield sandbox, f"{sandbox.box.backend} ({sandbox.box.isolation_level})"


def _timed(slow: dict[str, float], name: str) -> Callable[[], None]:
    begun = time.monotonic()

    def end() -> None:
        if (taken := time.monotonic() - begun) > 1:
            slow[name] = round(taken, 1)

    return end


def _chosen(backend: str, only: str) -> Iterator[Attack]:
    for attack in ATTACKS:
        if only in attack.name and (attack.harmless or backend != "nothing"):
            yield attack


async def besiege(backend: str, planted: str, only: str = "") -> Outcome:
    won: list[str] = []
    ran: list[str] = []
    slow: dict[str, float] = {}
    with Scene(fresh_root(), planted) as scene:
        async with _opened(backend, scene) as (sandbox, box):
            for attack in _chosen(backend, only):
                end = _timed(slow, attack.name)
                if await _attacked(sandbox, scene, attack):
                    won.append(attack.name)
                ran.append(attack.name)
                end()
    return Outcome(box=box, ran=ran, won=won, slow=slow)


def main(backend: str, planted: str, only: str = "") -> None:
    outcome = anyio.run(besiege, backend, planted, only)
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main(*sys.argv[1:])
