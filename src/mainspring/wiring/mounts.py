"""What a session was given to work on, put into its workspace: files and repositories."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.workspace.descent import reached
from mainspring.capabilities.workspace.outputs import make_outputs
from mainspring.capabilities.workspace.tree import Tree
from mainspring.config import FOLDER
from mainspring.core.errors import HandsError, InvalidInput, NotFound
from mainspring.service.sessions.mounted import FileResource, RepositoryResource, Resource
from mainspring.service.sessions.surroundings import FileContent
from mainspring.wiring.cloning import Cloning
from mainspring.wiring.environment import SERVED, WORKSPACE_ALIASES

_ROOTS = (*(f"{each}/" for each in WORKSPACE_ALIASES), "/")
"""Where clients believe that the workspace begins; it is somewhere else, and theirs alone."""


class _Mounted(Struct, frozen=True):
    """Ids of what was put there once, and is the session's since: to change, or to delete."""

    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    file_content: Callable[[str, str], Awaitable[FileContent]]
    """Of a tenant and an id. Raises: NotFound."""
    cloning: Cloning = field(default_factory=Cloning)

    async def prepare(
        self,
        workspace: Path,
        resources: Sequence[Resource],
        *,
        tenant: str,
        tokens: Mapping[str, str],
    ) -> tuple[str, ...]:
        """Put in what is not there yet; says what is where, and what could not be had.

        `tokens`: of repositories, by the ids of their resources.
        """
        await to_thread.run_sync(_make, workspace)
        noted = mounted_file(workspace)
        known = await to_thread.run_sync(_read, noted)
        said: list[str] = []
        ids: list[str] = list(known)
        for resource in resources:
            place = placed(resource.mount_path)
            try:
                if resource.id not in known:
                    await self._mount(workspace, place, resource, tenant, tokens)
                    ids.append(resource.id)
            except (NotFound, InvalidInput, HandsError) as error:
                said.append(f"{_named(resource)} could not be put into the workspace: {error}")
            else:
                said += [f"{_named(resource)} is at {place}."] if _is_shown(resource) else []
        if ids != list(known):
            await to_thread.run_sync(_write, noted, ids)
        return tuple(said)

    async def _mount(
        self,
        workspace: Path,
        place: PurePosixPath,
        resource: Resource,
        tenant: str,
        tokens: Mapping[str, str],
    ) -> None:
        match resource:
            case FileResource(file_id=file_id):
                found = await self.file_content(tenant, file_id)
                await _tree(workspace).write(str(place), found.content)
            case RepositoryResource():
                await self._clone(workspace, place, resource, tokens.get(resource.id))
            case _:  # memory stores are kept; agents get to them in a later version
                pass

    async def _clone(
        self,
        workspace: Path,
        place: PurePosixPath,
        resource: RepositoryResource,
        token: str | None,
    ) -> None:
        """Beside the workspace first, so that programs of the session never see half of it.

        Raises: InvalidInput: what git said, without the token.
        """
        beside = Path(tempfile.mkdtemp(prefix=f"{workspace.name}.clone-", dir=workspace.parent))
        try:
            fresh = beside / "repository"
            await self.cloning.clone(resource, fresh, token)
            await to_thread.run_sync(_move, fresh, _tree(workspace), place)
        finally:
            await to_thread.run_sync(lambda: shutil.rmtree(beside, ignore_errors=True))


def carry_mounts(before: Path, copy: Path, workspace: Path, resources: Sequence[Resource]) -> None:
    """Note for a workspace what was put into the one that it will be a copy of, and is still there:
    the copy has it as it was left, and gets it no second time."""
    known = _read(mounted_file(before))
    carried = [
        each.id
        for each in resources
        if each.id in known and os.path.lexists(copy / placed(each.mount_path))
    ]
    _write(mounted_file(workspace), carried)


def placed(mount_path: str) -> PurePosixPath:
    """Where that is in the workspace."""
    for root in _ROOTS:
        if mount_path.startswith(root):
            return PurePosixPath(mount_path.removeprefix(root))
    return PurePosixPath(mount_path)


def _is_shown(resource: Resource) -> bool:
    return isinstance(resource, FileResource | RepositoryResource)


def _named(resource: Resource) -> str:
    match resource:
        case FileResource(file_id=file_id):
            return f"The file {file_id}"
        case RepositoryResource(url=url):
            return f"The repository {url}"
        case _:
            return f"The memory store {resource.name}"


def _tree(workspace: Path) -> Tree:
    """What is ours in it is no place for what clients name."""
    return Tree(workspace, hidden=(FOLDER,))


def _move(fresh: Path, tree: Tree, place: PurePosixPath) -> None:
    """By descriptors: a service of the session may run by now, and make links of folders."""
    with reached(tree.bounds, str(place), make_folders=True) as spot:
        if spot.state is not None:
            raise InvalidInput(f"{place} is there already")
        os.rename(fresh, spot.name, dst_dir_fd=spot.folder)


def _make(workspace: Path) -> None:
    # others may not list it; a sandbox that has a user of its own must get through
    workspace.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    make_private(workspace.parent / SERVED)
    make_private(workspace)
    make_outputs(workspace)


def make_private(folder: Path) -> None:
    """A folder that no other session's user gets into, whatever is mounted by mistake; one that an
    older version has made is closed to them."""
    folder.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        mode = os.fstat(opened).st_mode
        if mode & stat.S_IRWXO:  # the group is the session's own
            os.fchmod(opened, stat.S_IMODE(mode) & ~stat.S_IRWXO)
    finally:
        os.close(opened)


def mounted_file(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}.mounted.json")


def _read(noted: Path) -> Collection[str]:
    try:
        return msgspec.json.decode(noted.read_bytes(), type=_Mounted).ids
    except FileNotFoundError:
        return ()


def _write(noted: Path, ids: Sequence[str]) -> None:
    fresh = noted.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.encode(_Mounted(tuple(ids))))
    fresh.replace(noted)
