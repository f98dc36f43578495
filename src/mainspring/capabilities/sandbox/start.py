"""Starts a keeper, detached: it is not to die with whoever starts it. Blocks: for threads."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from mainspring.capabilities.sandbox.cage import Launch, Site
from mainspring.capabilities.sandbox.shelf import Shelf
from mainspring.capabilities.sandbox.wire import HELD, READY, pack
from mainspring.core.errors import SandboxFailed

_SECONDS = 20.0

# The package's own __init__ is left out: what it imports takes longer than the keeper needs.
BEGIN = (
    "import sys; package = type(sys)('mainspring'); package.__path__ = [sys.argv[1]];"
    " sys.modules['mainspring'] = package;"
    " from mainspring.capabilities.sandbox.keeper import main; main()"
)
ROOT = Path(__file__).parents[2]


def start_keeper(site: Site, launch: Launch, *, linger_seconds: float, stamp: str = "") -> None:
    """Returns when programs can be run, by this keeper or by one that was there before.

    Raises:
        SandboxFailed: the sandbox could not be made.
    """
    Shelf(str(site.state)).make()
    said = _spawned(site.state, _orders(site, launch, linger_seconds, stamp))
    if said not in (READY, HELD):
        why = said.decode("utf-8", "replace") or _last_words(site.state)
        raise SandboxFailed(
            f"the sandbox did not start, so nothing was run: {why}."
            " `mainspring doctor` says what this machine lacks."
        )


def _spawned(state: Path, orders: bytes) -> bytes:
    told, tell = os.pipe()
    hear, say = os.pipe()
    log = os.open(state / "keeper.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    command = [sys.executable, "-I", "-S", "-c", BEGIN, str(ROOT)]
    try:
        process = os.posix_spawn(
            sys.executable,
            command,
            {},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, told, 0),
                (os.POSIX_SPAWN_DUP2, say, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setsid=True,
        )
    finally:
        for descriptor in (told, say, log):
            os.close(descriptor)
    try:
        _write_all(tell, orders)
        os.waitpid(process, 0)
        return _answer(hear)
    finally:
        os.close(hear)


def _write_all(descriptor: int, content: bytes) -> None:
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
    except BrokenPipeError:
        return  # it has died; its log says of what


def _answer(hear: int) -> bytes:
    poll = select.poll()
    poll.register(hear, select.POLLIN)
    pieces: list[bytes] = []
    while poll.poll(_SECONDS * 1000):
        piece = os.read(hear, 4096)
        if not piece:
            break
        pieces.append(piece)
    return b"".join(pieces)


def _last_words(state: Path) -> str:
    lines = (state / "keeper.log").read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "the keeper said nothing"


def _orders(site: Site, launch: Launch, linger_seconds: float, stamp: str) -> bytes:
    limits = site.limits
    told = {
        "state": os.fsencode(site.state),
        "workspace": os.fsencode(site.workspace),
        "hidden": pack(map(os.fsencode, site.hidden)),
        "uid": b"" if launch.uid is None else b"%d" % launch.uid,
        "argv": pack(map(os.fsencode, launch.argv)),
        "env": pack(pairs(launch.env)),
        "files": pack(launch.files),
        "sources": pack(map(os.fsencode, launch.sources)),
        "forbidden": pack(b"%d %d" % each for each in launch.forbidden),
        "distrusted": pack(map(os.fsencode, (site.workspace, *site.distrusted))),
        "rlimits": " ".join(f"{name}={most}" for name, most in launch.rlimits.items()).encode(),
        "has_own_pids": b"%d" % launch.has_own_pids,
        "output_bytes": b"%d" % limits.output_bytes,
        "memory_bytes": b"%d" % limits.memory_bytes,
        "processes": b"%d" % limits.processes,
        "disk_bytes": b"%d" % limits.disk_bytes,
        "linger_ms": b"%d" % int(linger_seconds * 1000),
        "stamp": stamp.encode(),
    }
    return pack(part for name, value in told.items() for part in (name.encode(), value))


def pairs(variables: Mapping[str, str]) -> Iterable[bytes]:
    return [os.fsencode(f"{name}={value}") for name, value in variables.items()]
