"""The artifact tool publishes files of the workspace for people."""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TypeAlias, cast

from mainspring.core.content import BlobSource, TextBlock
from mainspring.core.errors import ToolEnvironmentError
from mainspring.core.events import ArtifactPublished
from mainspring.core.ports import FileState, Workspace
from mainspring.core.tool import Tool, ToolResult
from mainspring.function_tools.define import tool
from mainspring.function_tools.wrap import filtered

StoreFile: TypeAlias = Callable[[bytes, str], Awaitable[BlobSource]]
"""Stores bytes of a media type for later download, and returns their location."""

_MAX_FILES = 50  # of one artifact
_MAX_NAME = 200  # bytes
# The machine's own tables of types differ between systems; published types must not depend on them.
_TYPES = mimetypes.MimeTypes(filenames=())
_MORE_TYPES = {".md": "text/markdown", ".yaml": "application/yaml", ".yml": "application/yaml"}


def artifact(workspace: Workspace, keep: StoreFile, *, max_bytes: int = 50_000_000) -> Tool:
    """Publish files as they are now; `max_bytes` limits all files of a call together."""

    @tool(in_doubt="retry")  # the same bytes have the same hash, so publishing is idempotent
    async def artifact(path: str = "", paths: list[str] = [], name: str = "") -> ToolResult:  # noqa: B006
        """Publish one or more files of the workspace, so that the user can see and download them
        as they are now. Publish only the requested results, not intermediate files.

        Args:
            path: A file to publish.
            paths: Several files to publish.
            name: The name of the published file, or of the folder for several files; by default
                the file's path in the workspace.
        """
        all_paths = [*([path] if path else []), *paths]
        try:
            files = await _read(workspace, all_paths, max_bytes)
        except (ToolEnvironmentError, OSError) as error:
            return ToolResult.text(f"Nothing was published: {error}", ok=False, error="failed")
        names = _names(workspace, all_paths, name)
        published: list[ArtifactPublished] = []
        for file_name, file in zip(names, files, strict=True):
            media_type = media_type_of(file_name, file.content)
            blob = await keep(file.content, media_type)
            published.append(
                ArtifactPublished(
                    name=file_name, hash=blob.hash, size=blob.size, media_type=media_type
                )
            )
        lines = [f"{item.name} ({item.media_type}, {item.size} bytes)" for item in published]
        return ToolResult((TextBlock("\n".join(["Published:", *lines])),), facts=tuple(published))

    normalize = partial(_with_absolute_paths, workspace)
    return filtered(replace(artifact, normalize_input=normalize), _refusal)


def _with_absolute_paths(workspace: Workspace, args: Mapping[str, object]) -> Mapping[str, object]:
    """The input with absolute paths; an invalid path is unchanged, and refused later."""
    absolute = dict(args)
    try:
        if path := args.get("path"):
            absolute["path"] = str(workspace.locate(str(path)))
        if paths := cast("list[str]", args.get("paths")):
            absolute["paths"] = [str(workspace.locate(path)) for path in paths]
    except (ToolEnvironmentError, OSError):
        return args
    return absolute


def _refusal(args: Mapping[str, object]) -> str | None:
    count = bool(args.get("path")) + len(cast("list[str]", args.get("paths", [])))
    if not 1 <= count <= _MAX_FILES:
        return f"The input is not valid:\n- path or paths: 1 to {_MAX_FILES} files are needed"
    if problem := _name_problem(str(args.get("name", ""))):
        return f"The input is not valid:\n- name: {problem}"
    return None


def _name_problem(name: str) -> str | None:
    """The problem with a name, which must be a relative path that is valid on every system."""
    if not name:
        return None
    if len(name.encode("utf-8", "replace")) > _MAX_NAME:
        return f"over {_MAX_NAME} bytes"
    if not name.isprintable() or any(sign in name for sign in '\\:*?"<>|'):
        return "has characters that are not safe in a file name"
    parts = name.split("/")
    if any(part in ("", ".", "..") or part.startswith("~") for part in parts):
        return "must be a relative path without . and .."
    if any(part != part.strip() or part.endswith(".") for part in parts):
        return "has a part that begins or ends with a space, or ends with a dot"
    return None


async def _read(workspace: Workspace, paths: list[str], max_bytes: int) -> list[FileState]:
    files: list[FileState] = []
    for path in paths:
        room = max_bytes - sum(len(file.content) for file in files)
        file = await workspace.read(path, max_bytes=room + 1)
        if len(file.content) > room:
            raise ToolEnvironmentError(f"{path}: over {max_bytes} bytes are too much for one call")
        files.append(file)
    return files


def _names(workspace: Workspace, paths: list[str], name: str) -> list[str]:
    own = [_safe_name(_path_in_workspace(workspace, path)) for path in paths]
    if name:
        own = [name] if len(paths) == 1 else [f"{name}/{entry}" for entry in own]
    unique: list[str] = []
    for item in own:
        count = 1
        while (candidate := item if count == 1 else _name_with_number(item, count)) in unique:
            count += 1
        unique.append(candidate)
    return unique


def _path_in_workspace(workspace: Workspace, path: str) -> PurePosixPath:
    place = workspace.locate(path)
    is_below = place.is_relative_to(workspace.root)
    return place.relative_to(workspace.root) if is_below else PurePosixPath(place.name)


def _safe_name(path: PurePosixPath) -> str:
    """The file's own path, or a safe form of its name."""
    name = str(path)
    if _name_problem(name) is None:
        return name
    safe = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in path.name)
    return safe.strip(".")[-_MAX_NAME // 4 :] or "file"


def _name_with_number(name: str, count: int) -> str:
    path = PurePosixPath(name)
    return str(path.with_name(f"{path.stem}-{count}{path.suffix}"))


def media_type_of(name: str, content: bytes) -> str:
    """By the name's ending; otherwise plain text if it is valid UTF-8."""
    suffix = PurePosixPath(name).suffix.lower()
    guessed = _MORE_TYPES.get(suffix) or _TYPES.guess_type(f"x{suffix}")[0]
    if guessed:
        return guessed
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "application/octet-stream" if b"\0" in content else "text/plain"
