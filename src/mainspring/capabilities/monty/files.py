"""Files of the workspace for programs in the interpreter: read, never written."""

from __future__ import annotations

from collections.abc import Mapping

import pydantic_monty as monty
from anyio import from_thread

from mainspring.core.errors import HandsError, OutsideWorkspace
from mainspring.core.hands import FileState, Workspace

_MAX_BYTES = 10_000_000


class ReadOnlyFiles:
    """Answers what a program asks of its operating system; all but reading is refused.

    It is called in the thread that runs the program.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def __call__(
        self,
        *,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        is_async: bool,
        **_: object,
    ) -> object:
        match name, args:
            case "open", (path, str(mode)) if not set(mode) & set("wax+"):
                self._read(str(path))  # a file that is not there is found out here
                return monty.MontyFileHandle(str(path), mode)
            case "Path.read_text", (path, *_):
                return self._read(_path(path)).content.decode("utf-8", "replace")
            case "Path.read_bytes", (path, *_):
                return self._read(_path(path)).content
            case _:
                # Not an OSError: walking a folder would take that for an empty one.
                raise NotImplementedError(f"{name} is not possible here: files can only be read")

    def _read(self, path: str) -> FileState:
        try:
            return from_thread.run(self._bounded_read, path)
        except OutsideWorkspace as error:
            raise PermissionError(str(error)) from None
        except HandsError as error:
            raise OSError(str(error)) from None

    async def _bounded_read(self, path: str) -> FileState:
        return await self._workspace.read(path, max_bytes=_MAX_BYTES)


def _path(given: object) -> str:
    return given.path if isinstance(given, monty.MontyFileHandle) else str(given)
