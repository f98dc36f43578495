"""Which packages a server's `npx` or `uvx` command downloads, and which of their programs it runs.

A command with anything but plain packages of a registry (a folder, a git URL, an unknown option) is
not handled here: it runs unchanged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput

Installer: TypeAlias = Literal["npm", "uv", "apt"]

_NPM_NAME = r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*"
_NPM_SPEC = re.compile(rf"({_NPM_NAME})(?:@([A-Za-z0-9^~<>=*.+_-]+))?")
_PYTHON_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_PYTHON_SPEC = re.compile(
    rf"({_PYTHON_NAME})(\[[A-Za-z0-9._, -]*\])?((?:[=!~<>]=?=?[A-Za-z0-9.*+!_-]+,?)*)"
)
_APT_SPEC = re.compile(r"([a-z0-9][a-z0-9+.-]*[a-z0-9+])(?:=[0-9][A-Za-z0-9.+:~-]*)?")
_PYTHON_AT = re.compile(rf"({_PYTHON_NAME})@([A-Za-z0-9.+!_-]+)")
_PYTHON_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+){0,2}")
_PROGRAM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SPECS: Mapping[Installer, re.Pattern[str]] = {
    "npm": _NPM_SPEC,
    "uv": _PYTHON_SPEC,
    "apt": _APT_SPEC,
}
_COMMANDS: Mapping[tuple[str, ...], Installer] = {
    ("npx",): "npm",
    ("npm", "exec"): "npm",
    ("npm", "x"): "npm",
    ("uvx",): "uv",
    ("uv", "tool", "run"): "uv",
}
_FLAGS: Mapping[Installer, frozenset[str]] = {
    "npm": frozenset(("-y", "--yes", "-q", "--quiet", "--prefer-online", "--prefer-offline")),
    "uv": frozenset(("-q", "--quiet", "--isolated", "--refresh", "--upgrade", "-U", "--no-cache")),
}
_VALUES: Mapping[Installer, Mapping[str, str]] = {
    "npm": {"-p": "package", "--package": "package"},
    "uv": {"--from": "package", "--with": "more", "-p": "python", "--python": "python"},
}


class PackageRequest(Struct, frozen=True, kw_only=True):
    installer: Installer
    packages: tuple[str, ...]
    """As requested: a name, with or without a version."""
    program: str | None
    """`None`: the program with the package's name."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    python: str | None = None

    @property
    def key(self) -> str:
        """The same for the same packages, whichever of their programs is run."""
        content = (self.installer, sorted(self.packages), self.python)
        return hashlib.sha256(msgspec.json.encode(content)).hexdigest()[:20]

    @property
    def main_package(self) -> str:
        """The name of the first one."""
        match = _SPECS[self.installer].match(self.packages[0])
        assert match is not None
        return match[1]


def package_requests(
    python: Sequence[str], npm: Sequence[str], apt: Sequence[str] = ()
) -> list[PackageRequest]:
    """Raises: InvalidInput: one of them is not a plain package of a registry."""
    names_by_installer: dict[Installer, Sequence[str]] = {"uv": python, "npm": npm, "apt": apt}
    return [
        _plain_packages(name, packages) for name, packages in names_by_installer.items() if packages
    ]


def _plain_packages(installer: Installer, packages: Sequence[str]) -> PackageRequest:
    for package in packages:
        if not _SPECS[installer].fullmatch(package):
            raise InvalidInput(
                f"{package!r} is not a package of a registry, with or without a version"
            )
    return PackageRequest(installer=installer, packages=tuple(packages), program=None)


class _NotUnderstood(Exception): ...


def package_request(command: str, args: Sequence[str]) -> PackageRequest | None:
    """`None` if the command installs no packages, or is not understood."""
    words = (PurePath(command).name, *args)
    for prefix, installer in _COMMANDS.items():
        if words[: len(prefix)] == prefix:
            try:
                return _read(installer, words[len(prefix) :])
            except _NotUnderstood:
                return None
    return None


def _read(installer: Installer, words: Sequence[str]) -> PackageRequest:
    options: dict[str, list[str]] = {"package": [], "more": [], "python": []}
    remaining = iter(words)
    first = next((word for word in _after_options(installer, remaining, options)), None)
    if first is None:
        raise _NotUnderstood
    packages, args = options["package"], tuple(remaining)
    spec = _npm_spec if installer == "npm" else _python_spec
    program = _matched(_PROGRAM, first)[0] if packages else None
    if not packages:
        packages = [first]
        if installer == "uv":
            program = (_PYTHON_AT.fullmatch(first) or _matched(_PYTHON_SPEC, first))[1]
    versions = options["python"]
    if len(versions) > 1 or not all(map(_PYTHON_VERSION.fullmatch, versions)):
        raise _NotUnderstood
    return PackageRequest(
        installer=installer,
        packages=tuple(spec(item) for item in (*packages, *options["more"])),
        program=program,
        args=args,
        python=versions[0] if versions else None,
    )


def _after_options(
    installer: Installer, words: Iterator[str], options: dict[str, list[str]]
) -> Iterator[str]:
    """The words after the options."""
    for word in words:
        name, has_value, value = word.partition("=")
        if word == "--":
            continue
        if word in _FLAGS[installer]:
            continue
        if name in _VALUES[installer]:
            kind = _VALUES[installer][name]
            options[kind].append(value if has_value else next(words, ""))
        elif word.startswith("-"):
            raise _NotUnderstood
        else:
            yield word


def _npm_spec(text: str) -> str:
    return _matched(_NPM_SPEC, text)[0]


def _python_spec(text: str) -> str:
    if match := _PYTHON_AT.fullmatch(text):
        return match[1] if match[2] == "latest" else f"{match[1]}=={match[2]}"
    return _matched(_PYTHON_SPEC, text)[0]


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    if (match := pattern.fullmatch(text)) is None:
        raise _NotUnderstood
    return match
