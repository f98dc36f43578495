"""The macOS backend: `sandbox-exec` with a profile that denies by default. There are no namespaces:
the agent kills every process that it can signal, which the profile limits to its own sandbox."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mainspring.capabilities.sandbox.backend import (
    Launch,
    SandboxSpec,
    bare_agent,
    readable_sources,
    rlimits_of,
)
from mainspring.core.errors import SandboxFailed
from mainspring.core.ports import IsolationLevel

PROGRAM = "/usr/bin/sandbox-exec"
_PACKAGE = Path(__file__).parents[3]
_READABLE = (
    *("/usr", "/bin", "/sbin", "/System", "/Library/Apple", "/Library/Developer/CommandLineTools"),
    *("/opt/homebrew", "/private/etc/ssl", "/private/var/db/timezone", "/private/var/db/dyld"),
)
_READABLE_FILES = (
    *("/", "/dev/random", "/dev/urandom", "/dev/zero", "/private/etc/localtime"),
    "/private/var/select/sh",
)
_SERVICES = (
    *("com.apple.system.logger", "com.apple.system.notification_center"),
    *("com.apple.system.opendirectoryd.libinfo", "com.apple.bsd.dirhelper"),
    *("com.apple.trustd.agent", "com.apple.SystemConfiguration.configd"),
)
"""Without appleevents and lsopen, which can start programs outside."""


@dataclass(frozen=True, slots=True)
class Seatbelt:
    name = "seatbelt"
    level: IsolationLevel = field(default="isolated", init=False)

    def _refuse(self, spec: SandboxSpec) -> None:
        if spec.network:
            raise SandboxFailed(
                "an allow-list of hosts is not yet possible on macOS: turn the network off for this"
                " environment"
            )

    def fingerprint(self, spec: SandboxSpec) -> str:
        self._refuse(spec)
        return "\n".join((*_rules(), *map(str, spec.read_only), repr(spec.sandbox_limits)))

    def launch(self, spec: SandboxSpec) -> Launch:
        self._refuse(spec)
        if not os.access(PROGRAM, os.X_OK):
            raise SandboxFailed(f"{PROGRAM} is missing: this is not macOS as Apple ships it")
        tmp = spec.state / "tmp"
        tmp.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = profile(spec, tmp)
        rlimits = rlimits_of(spec.sandbox_limits)
        del rlimits["NPROC"]  # it would count all processes of this user
        return Launch(
            argv=(PROGRAM, "-p", text, *bare_agent("reachable")),
            variables={
                "PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
                "HOME": str(spec.workspace),
                "TMPDIR": str(tmp),
                "LANG": "en_US.UTF-8",
            },
            rlimits=rlimits,
            has_own_pids=False,
        )


def profile(spec: SandboxSpec, tmp: Path, python: Path = Path(sys.base_prefix)) -> str:
    """The rules for a sandbox's programs, in the language of sandbox-exec. Later rules win."""
    writable = [spec.workspace, tmp]
    hidden = [spec.workspace / path for path in spec.hidden]
    protected = [spec.workspace / path for path in spec.protected]
    readable = [*map(Path, _READABLE), python, _PACKAGE, *writable]
    readable += readable_sources(spec).values()
    lines = [
        *_rules(),
        _rule(
            "allow", "file-read*", [*_subpaths(readable), *_literals(map(Path, _READABLE_FILES))]
        ),
        _rule("allow", "file-write*", _subpaths(writable)),
        *_deny_rules("file-write*", _subpaths(protected)),
        *_deny_rules("file-read* file-write*", _subpaths(hidden)),
        # A program that can rename a folder above a protected path could replace the path.
        *_deny_rules(
            "file-write-unlink", _literals(_ancestors(spec.workspace, [*hidden, *protected]))
        ),
    ]
    return "\n".join(lines) + "\n"


def _rules() -> Iterator[str]:
    yield from ("(version 1)", "(deny default)", "(allow process-exec process-fork)")
    yield "(allow signal process-info* (target same-sandbox))"
    yield "(allow sysctl-read)"
    yield "(allow file-read-metadata)"
    yield '(allow file-read* file-write-data (literal "/dev/null"))'
    yield "(allow mach-lookup " + " ".join(f'(global-name "{name}")' for name in _SERVICES) + ")"


def _rule(verdict: str, operations: str, places: Iterable[str]) -> str:
    return f"({verdict} {operations}\n  " + "\n  ".join(places) + ")"


def _deny_rules(operations: str, places: list[str]) -> list[str]:
    return [_rule("deny", operations, places)] if places else []


def _subpaths(paths: Iterable[Path]) -> list[str]:
    return [f"(subpath {_quote(path)})" for path in paths]


def _literals(paths: Iterable[Path]) -> list[str]:
    return [f"(literal {_quote(path)})" for path in paths]


def _ancestors(root: Path, paths: Iterable[Path]) -> list[Path]:
    above = {folder for path in paths for folder in path.parents if folder.is_relative_to(root)}
    return sorted(above)


def _quote(path: Path) -> str:
    """The path as a string of the profile language.

    Raises:
        SandboxFailed: it has a character that is not safe in a profile.
    """
    text = str(path)
    if not text.isprintable():
        raise SandboxFailed(f"{text!r} cannot be named in a sandbox profile")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
