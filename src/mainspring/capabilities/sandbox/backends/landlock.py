"""The fallback where namespaces are not allowed, as in most containers: Landlock and seccomp, under
a uid of the session's own if the harness is root; otherwise with a lower isolation level."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from mainspring.capabilities.sandbox.backend import (
    AgentInterpreter,
    Launch,
    SandboxSpec,
    find_agent_interpreter,
    module_command,
    readable_sources,
    rlimits_of,
)
from mainspring.capabilities.sandbox.backends.seccomp import seccomp_program
from mainspring.capabilities.sandbox.backends.session_uids import session_uid
from mainspring.capabilities.sandbox.wire import pack, pack_map
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import IsolationLevel
from mainspring.files.session_owner import entering_group, gives_uids

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "nsswitch.conf"),
    *("ssl/certs", "ssl/openssl.cnf", "pki/tls/certs", "pki/ca-trust/extracted"),
    *("ca-certificates", "mime.types", "protocols", "services"),
)
_TMP = Path("/tmp")
_OTHERS = 0o007  # the mode bits of other users


class Landlock(Struct, frozen=True, kw_only=True):
    owns_uid: bool
    """Programs run under a uid of their own, which needs root; otherwise under the harness's
    uid."""

    is_in_boundary: bool = False
    """The operator has declared the container to be the boundary. With a uid of their own, programs
    are then confined without Landlock: by owners, modes and the system call filter. Without one,
    they may change protected files in their workspace."""

    @property
    def name(self) -> str:
        return "container" if self.is_in_boundary else "landlock"

    @property
    def level(self) -> IsolationLevel:
        """Landlock does not restrict chmod, chown, utime and xattrs: only a different uid does."""
        if self.is_in_boundary:
            return "container"
        return "isolated" if self.owns_uid else "degraded"

    def owner(self, spec: SandboxSpec) -> int | None:
        """The uid that owns the workspace while the sandbox is open. Files that the harness writes
        there must be given to it."""
        return session_uid(spec.session_id) if self.owns_uid else None

    def _refuse(self, spec: SandboxSpec) -> None:
        if spec.network:
            raise SandboxFailed(
                "Landlock cannot let programs reach a proxy and nothing else: turn the network off"
                " for this environment, or make bubblewrap work here (`mainspring doctor`)"
            )
        if not self.owns_uid:
            _refuse_root()
            _refuse_secrets(spec, (*spec.hidden, *self._protected(spec)))
        elif self.is_in_boundary:
            _refuse_readable(spec)

    def _protected(self, spec: SandboxSpec) -> tuple[Path, ...]:
        return () if self.is_in_boundary and not self.owns_uid else spec.protected

    def fingerprint(self, spec: SandboxSpec) -> str:
        self._refuse(spec)
        return "\n".join(
            (
                *_system(),
                *_interpreter(find_agent_interpreter()),
                *_readable(spec),
                repr((self.owns_uid, self.is_in_boundary)),
                repr(spec.sandbox_limits),
                os.uname().machine,
                _code_hash(),
            )
        )

    def launch(self, spec: SandboxSpec) -> Launch:
        self._refuse(spec)
        python = find_agent_interpreter()
        tmp = _TMP / f"mainspring-{hashlib.sha256(os.fsencode(spec.state)).hexdigest()[:16]}"
        rlimits = rlimits_of(spec.sandbox_limits)
        if not self.owns_uid:
            del rlimits["NPROC"]  # it would count all processes of this user
        return Launch(
            argv=(str(python.path), *module_command("backends.landlock_inside")),
            files=(self._orders(spec, tmp, python),),
            variables=_variables(spec.workspace, tmp),
            rlimits=rlimits,
        )

    def _orders(self, spec: SandboxSpec, tmp: Path, python: AgentInterpreter) -> bytes:
        owner = self.owner(spec)
        return pack_map(
            {
                "uid": b"" if owner is None else b"%d" % owner,
                "has_rules": b"" if self.owns_uid and self.is_in_boundary else b"yes",
                "entering_group": b"%d" % entering_group(),
                "workspace": os.fsencode(spec.workspace),
                "tmp": os.fsencode(tmp),
                "tmp_bytes": b"%d" % spec.sandbox_limits.tmp_bytes,
                "system": pack(map(os.fsencode, _system())),
                "interpreter": pack(map(os.fsencode, _interpreter(python))),
                "readable": pack(map(os.fsencode, _readable(spec))),
                "hidden": pack(map(os.fsencode, _paths_in_workspace(spec, spec.hidden))),
                "protected": pack(
                    map(os.fsencode, _paths_in_workspace(spec, self._protected(spec)))
                ),
                "filter": seccomp_program(os.uname().machine, (), has_namespaces=False),
            }
        )


def _system() -> list[str]:
    return [*_SYSTEM, *(f"/etc/{name}" for name in _ETC)]


def _interpreter(python: AgentInterpreter) -> list[str]:
    return [str(python.home)] if python.home else []


def _readable(spec: SandboxSpec) -> list[str]:
    return [str(real) for real in readable_sources(spec).values()]


def _refuse_root() -> None:
    if gives_uids():
        raise SandboxFailed("programs must not run as root behind Landlock alone")


def _refuse_readable(spec: SandboxSpec) -> None:
    """Only modes keep programs from the operator's files."""
    for path in spec.private:
        with suppress(OSError):
            if os.stat(path).st_mode & _OTHERS:
                raise SandboxFailed(
                    f"not run: other users can use {path}, and so could programs: chmod 600 {path}"
                )


def _refuse_secrets(spec: SandboxSpec, paths: Iterable[Path]) -> None:
    """Refuse early, with a detailed message; the guard checks again."""
    for path in _paths_in_workspace(spec, paths):
        if os.path.lexists(spec.workspace / path):
            raise SandboxFailed(
                f"Landlock without a uid of its own cannot keep programs from"
                f" {spec.workspace / path} in their workspace: make bubblewrap work here"
                " (`mainspring doctor`), run Mainspring as root in this container, or keep such"
                " files out of the workspace (MAINSPRING_STORE names another place for the store)"
            )


def _paths_in_workspace(spec: SandboxSpec, paths: Iterable[Path]) -> list[Path]:
    """Paths relative to the workspace. Whether they exist is checked later, free of races."""
    root = spec.workspace
    paths_named = {root / path for path in paths}
    return sorted(path.relative_to(root) for path in paths_named if path.is_relative_to(root))


def _variables(workspace: Path, tmp: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": str(workspace),
        "TMPDIR": str(tmp),
        "USER": "sandbox",
        "LANG": "C.UTF-8",
        # What cannot be opened is an error for git, unlike what does not exist.
        "GIT_CONFIG_NOSYSTEM": "1",
        # The harness owns folders with protected files in them, which git would refuse.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }


@cache
def _code_hash() -> str:
    """Of what confines programs."""
    names = (
        *("agent", "landlock_inside", "landlock_lend", "landlock_entry", "landlock_rules"),
        *("seccomp", "linux_capabilities"),
    )
    contents = [(Path(__file__).parent / f"{name}.py").read_bytes() for name in names]
    return hashlib.sha256(b"".join(contents)).hexdigest()
