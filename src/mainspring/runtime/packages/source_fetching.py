"""Fetches a folder or a git repository into a copy of our own. Nothing in the copy is run or judged
here."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from mainspring.core.errors import InvalidInput, TooLarge

MAX_FILES = 20_000  # of a source
MAX_BYTES = 200_000_000  # of a source
_SECONDS = 180  # for one source
_SCHEMES = ("https", "ssh", "file")
_SCP_LIKE = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}@[A-Za-z0-9][\w.-]{0,252}:(?!:)[^\s]{1,1000}")
REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]{0,100}/[A-Za-z0-9_.][\w.-]{0,100}")
"""`owner/repo`."""
_REF = re.compile(r"[A-Za-z0-9_][\w./+-]{0,249}")
_LOGIN = re.compile(r"(\w{1,20}://)[^/@\s]{1,500}@")
_ADVICE = "\n\nPlease make sure"


@dataclass(frozen=True, slots=True)
class FetchedSource:
    path: Path
    commit: str
    """The commit that was fetched; empty for a path."""


def fetch_source(source: str, into: Path) -> FetchedSource:
    """Copy a folder, or the contents of a repository at `URL#ref`, into a folder that does not
    exist yet.

    Links are copied as links, even if they lead outside. Blocks, for minutes at most.

    Raises:
        InvalidInput: it does not exist, or git cannot fetch it.
        TooLarge.
    """
    if not is_remote(source):
        _copy(Path(source).expanduser(), into)
        return FetchedSource(into, "")
    url, _, ref = source.partition("#")
    if _REF.fullmatch(ref or "HEAD") is None or ".." in ref:
        raise InvalidInput(f"{ref!r} is not a branch, a tag or a commit")
    _git(["init", "--quiet", "--template=", os.fspath(into)], source)
    in_folder = ["-C", os.fspath(into)]
    fetch = ["fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules"]
    _git([*in_folder, *fetch, "--", url, ref or "HEAD"], source)
    _git([*in_folder, "checkout", "--quiet", "--detach", "FETCH_HEAD"], source)
    commit = _git([*in_folder, "rev-parse", "HEAD"], source).strip()
    shutil.rmtree(into / ".git")
    _check_size(into, source)
    return FetchedSource(into, commit)


def is_remote(source: str) -> bool:
    """Whether a source is the address of a repository rather than a path.

    Raises:
        InvalidInput: the address has a scheme that is not allowed.
    """
    if _SCP_LIKE.fullmatch(source) and not Path(source).exists():
        return True
    scheme, mark, _ = source.partition("://")
    if not mark and "::" not in scheme:
        return False
    if scheme not in _SCHEMES or any(item.isspace() for item in source):
        allowed = ", ".join(f"{item}://" for item in _SCHEMES)
        raise InvalidInput(f"{without_login(source)} is neither a path nor one of {allowed}")
    return True


def resolve_source(source: str, folder: Path) -> str:
    """The source in the form that can be fetched: relative paths start at `folder`, and
    `owner/repo` means GitHub unless the folder has a path of that name."""
    if is_remote(source):
        return source
    path = folder / Path(source).expanduser()
    repository, mark, ref = source.partition("#")
    if not path.exists() and REPOSITORY.fullmatch(repository):
        return f"https://github.com/{repository.removesuffix('.git')}.git{mark}{ref}"
    return str(path)


def without_login(source: str) -> str:
    """A source that is safe to show and store: without user and password."""
    parts = urlsplit(source) if "://" in source else None
    if parts is None or parts.scheme == "ssh":  # the user of an SSH address is not a secret
        return source
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _git(arguments: list[str], source: str) -> str:
    allowed = [f"protocol.{scheme}.allow=always" for scheme in _SCHEMES]
    settings = [
        "protocol.allow=never",
        *allowed,
        "core.hooksPath=/dev/null",
        "advice.detachedHead=0",
    ]
    command = ["git", *(word for setting in settings for word in ("-c", setting)), *arguments]
    try:
        result = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            start_new_session=True,  # so that git never prompts for a password
        )
    except FileNotFoundError as error:
        raise InvalidInput("git is not installed, and is needed to fetch a repository") from error
    except subprocess.TimeoutExpired as error:
        display_source = without_login(source)
        raise InvalidInput(
            f"{display_source}: git did not fetch it within {_SECONDS} seconds"
        ) from error
    if result.returncode:
        why = _git_error(result.stderr) or f"git ended with {result.returncode}"
        raise InvalidInput(f"{without_login(source)}: {why}")
    return result.stdout.decode(errors="replace")


def _git_error(stderr: bytes) -> str:
    """git's error without its advice. The last lines are the most specific."""
    text = stderr.decode(errors="replace").partition(_ADVICE)[0].strip()
    lines = [line.removeprefix("fatal: ").rstrip(".") for line in text.splitlines()]
    return _LOGIN.sub(r"\1", "; ".join(lines[-2:])[:300])


def _copy(source: Path, into: Path) -> None:
    if not source.is_dir():
        raise InvalidInput(f"{source}: there is no such folder")
    _check_size(source, str(source))
    try:
        shutil.copytree(
            source.resolve(), into, symlinks=True, ignore=shutil.ignore_patterns(".git")
        )
    except (OSError, shutil.Error) as error:
        raise InvalidInput(f"{source}: it cannot be copied: {error}") from error


def _check_size(folder: Path, source: str) -> None:
    left_files, left_bytes = MAX_FILES, MAX_BYTES
    for entry in _entries(folder):
        mode = entry.lstat()
        if not (stat.S_ISREG(mode.st_mode) or stat.S_ISLNK(mode.st_mode)):
            raise InvalidInput(f"{entry}: a pipe, a socket or a device")
        left_files, left_bytes = left_files - 1, left_bytes - mode.st_size
        if left_files < 0 or left_bytes < 0:
            limits = f"{MAX_FILES} files or {MAX_BYTES // 1_000_000} MB"
            raise TooLarge(f"{without_login(source)}: more than {limits}")


def _entries(folder: Path) -> Iterator[Path]:
    """All entries that are not folders. Links are not followed."""
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in files)
        yield from (Path(place, name) for name in folders if os.path.islink(Path(place, name)))
        folders[:] = [name for name in folders if name != ".git"]
