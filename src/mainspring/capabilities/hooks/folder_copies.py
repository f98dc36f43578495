"""Private copies of plugins and skills for their hooks: every file of a copy was trusted.

A hook finds its plugin by `CLAUDE_PLUGIN_ROOT` and may run any file from there. So this is not the
plugin's own folder, which may change while a session runs, but a copy of the trusted bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread
from msgspec.structs import replace

from mainspring.capabilities.hooks.scripts import Scripts, UntrustedScript, copied_scripts, digest

# Read of one file that a hook brings along; a longer one cannot have its hash.
_MAX_FILE_BYTES = 64_000_000
_MARK = "\N{INVISIBLE SEPARATOR}"
"""Marks a path of the copy while the other paths of a command are replaced."""


class FolderCopies:
    """A copy is made when the first hook of a folder runs; `close` removes all of them."""

    def __init__(self) -> None:
        self._copies: dict[str, Path] = {}
        self._lock = anyio.Lock()
        self._folders = ExitStack()

    async def of(self, root: str, scripts: Scripts) -> Path:
        """The copy of a folder.

        Raises:
            UntrustedScript: one of its files has changed since the session began.
        """
        async with self._lock:
            if root not in self._copies:
                self._copies[root] = await anyio.to_thread.run_sync(self._make_copy, root, scripts)
            return self._copies[root]

    def close(self) -> None:
        self._copies.clear()
        self._folders.close()

    def _make_copy(self, root: str, scripts: Scripts) -> Path:
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="mainspring-folder-"))
            copy = Path(folder, os.path.basename(root))
            copy.mkdir(mode=0o700)
            for path, trusted_hash in scripts.files.items():
                if path.startswith(f"{root}/"):
                    _copy_file(path, trusted_hash, copy / path.removeprefix(f"{root}/"))
            self._folders.push(stack.pop_all())
        return copy


@contextmanager
def rewrite_to_copy(
    words: Sequence[str], root: str, copy: Path, scripts: Scripts
) -> Generator[tuple[str, ...], None, None]:
    """The words of a command with paths of the copy, and with copies of files of other folders that
    the command names.

    Raises: UntrustedScript.
    """
    paths: list[str] = []

    def hide(match: re.Match[str]) -> str:
        # the project may have a different file with the same relative path
        paths.append(f"{copy}{match[1]}")
        return f"{_MARK}copy{len(paths) - 1}{_MARK}"

    inside = re.compile(rf"{re.escape(root)}(?![\w.-])((?:[\"']?/[^\s\"';&|<>()]*)?)")
    text = "\n".join(words)
    names = [path.removeprefix(root) for path in scripts.files if path.startswith(f"{root}/")]
    relative = sorted(_after_cd(text, root, names).items(), key=lambda item: -len(item[0]))
    hidden = [inside.sub(hide, word) for word in words]
    for name, path in relative:
        paths.append(f"{copy}{path}")
        mark = f"{_MARK}copy{len(paths) - 1}{_MARK}"
        spelling = re.compile(rf"(?<![\w/.-])(?:\./)*{re.escape(name)}(?![\w.-])")
        hidden = [spelling.sub(mark, word) for word in hidden]
    for name in _folder_only_paths(text, names, scripts):
        paths.append(name)
        mark = f"{_MARK}copy{len(paths) - 1}{_MARK}"
        spelling = re.compile(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])")
        hidden = [spelling.sub(mark, word) for word in hidden]
    other_scripts = replace(
        scripts,
        roots=tuple(item for item in scripts.roots if item != root),
        files={p: item for p, item in scripts.files.items() if not p.startswith(f"{root}/")},
    )
    with copied_scripts(hidden, other_scripts) as copies:
        marks = re.compile(f"{_MARK}copy([0-9]+){_MARK}")
        yield tuple(marks.sub(lambda match: paths[int(match[1])], word) for word in copies)


def _after_cd(text: str, root: str, names: Sequence[str]) -> dict[str, str]:
    """Names of files relative to a folder that the command enters with `cd` -> their paths in the
    copy."""
    cd_pattern = rf"\bcd\s+[\"']?{re.escape(root)}((?:/[^\s\"';&|]*)?)"
    return {
        name.removeprefix(f"{base}/"): name
        for base in {folder.rstrip("/") for folder in re.findall(cd_pattern, text)}
        for name in names
        if name.startswith(f"{base}/") and _may_refer_to(name.removeprefix(f"{base}/"), text)
    }


def _folder_only_paths(text: str, names: Sequence[str], scripts: Scripts) -> list[str]:
    """Relative paths of the folder's files that are arguments of its own script and do not exist in
    the project: they stay unchanged. A path that exists in the project means the project's file,
    which must be trusted."""
    project = scripts.roots[0] if scripts.roots else ""
    relative = (name.lstrip("/") for name in names)
    outside = [
        name
        for name in relative
        if "/" in name and name in text and not os.path.lexists(os.path.join(project, name))
    ]
    return sorted(outside, key=len, reverse=True)


def _may_refer_to(name: str, text: str) -> bool:
    return name in text and ("." in name or "/" in name)


def _copy_file(path: str, trusted_hash: str, target: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(_MAX_FILE_BYTES)
            is_program = os.fstat(file.fileno()).st_mode & 0o100
    except OSError as error:
        raise UntrustedScript(f"needs {path}, which cannot be read: {error.strerror}") from error
    if digest(content) != trusted_hash:
        raise UntrustedScript(
            f"needs {path}, which has changed since this session began; look at it, and if it is"
            " as it should be, trust it again (`mainspring skill scan FOLDER --trust`) and start a"
            " new session"
        )
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(0o700 if is_program else 0o600)
