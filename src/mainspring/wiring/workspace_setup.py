"""The workspace of a service session: mount its files and repositories, restore the files of a
fork, and read the outputs it hands over.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.git.git_clone import GitCloner
from mainspring.capabilities.network.addresses import Resolver, resolve_allowed, system_resolver
from mainspring.capabilities.network.rules import Network
from mainspring.capabilities.workspace.folder_workspace import FolderWorkspace
from mainspring.capabilities.workspace.path_traversal import resolve_path
from mainspring.capabilities.workspace.session_outputs import (
    Output,
    OutputFile,
    list_outputs,
    make_outputs,
    read_output,
)
from mainspring.capabilities.workspace.snapshots import WorkspaceSnapshots
from mainspring.config import FOLDER, Settings
from mainspring.core.errors import InvalidInput, NotFound, ToolEnvironmentError
from mainspring.log.session_log import SessionLog
from mainspring.runtime.session.rewind import RewindHistory, read_rewind_history
from mainspring.runtime.session.session_paths import SERVED_STATE_FOLDER, WORKSPACE_ALIASES
from mainspring.service.sessions.output_files import OutputFolder
from mainspring.service.sessions.resource_lookups import FileContent
from mainspring.service.sessions.resource_types import (
    BranchCheckout,
    CommitCheckout,
    FileResource,
    RepositoryResource,
    SessionResource,
)
from mainspring.service.sessions.session_record import SessionRecord
from mainspring.wiring.sandbox_environment import session_paths

_ROOTS = (*(f"{item}/" for item in WORKSPACE_ALIASES), "/")
"""Where clients believe that the workspace begins; it is somewhere else, and theirs alone."""


def open_git_cloner(
    networks: Sequence[Network] = (),
    *,
    max_bytes: int = 4 << 30,
    resolver: Resolver = system_resolver,
) -> GitCloner:
    """`networks`: private addresses that are allowed, too; then also over plain HTTP."""
    return GitCloner(
        resolve=partial(resolve_allowed, resolver=resolver, besides=networks),
        allow_http=bool(networks),
        max_bytes=max_bytes,
    )


class _MountedIds(Struct, frozen=True):
    """Ids of what was put there once, and is the session's since: to change, or to delete."""

    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    file_content: Callable[[str, str], Awaitable[FileContent]]
    """Of a tenant and an id. Raises: NotFound."""
    git_cloner: GitCloner

    async def mount(
        self, tenant: str, session: SessionRecord, workspace: Path, tokens: Mapping[str, str]
    ) -> tuple[str, ...]:
        """See `RunServices.mount`."""
        return await self.prepare(workspace, session.resources, tenant=tenant, tokens=tokens)

    async def prepare(
        self,
        workspace: Path,
        session_resources: Sequence[SessionResource],
        *,
        tenant: str,
        tokens: Mapping[str, str],
    ) -> tuple[str, ...]:
        """Put in what is not there yet; says what is where, and what could not be had.

        `tokens`: of repositories, by the ids of their resources.
        """
        await to_thread.run_sync(_make_workspace, workspace)
        noted = mounted_ids_file(workspace)
        known = await to_thread.run_sync(_read_mounted_ids, noted)
        said: list[str] = []
        ids: list[str] = list(known)
        for resource in session_resources:
            place = workspace_path(resource.mount_path)
            try:
                if resource.id not in known:
                    await self._mount(workspace, place, resource, tenant, tokens)
                    ids.append(resource.id)
            except (NotFound, InvalidInput, ToolEnvironmentError) as error:
                said.append(
                    f"{_describe_mount(resource)} could not be put into the workspace: {error}"
                )
            else:
                said += (
                    [f"{_describe_mount(resource)} is at {place}."]
                    if _is_mentioned(resource)
                    else []
                )
        if ids != list(known):
            await to_thread.run_sync(_write_mounted_ids, noted, ids)
        return tuple(said)

    async def _mount(
        self,
        workspace: Path,
        place: PurePosixPath,
        session_resource: SessionResource,
        tenant: str,
        tokens: Mapping[str, str],
    ) -> None:
        match session_resource:
            case FileResource(file_id=file_id):
                found = await self.file_content(tenant, file_id)
                await _workspace_tree(workspace).write(str(place), found.content)
            case RepositoryResource():
                await self._clone(
                    workspace, place, session_resource, tokens.get(session_resource.id)
                )
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
            checkout = resource.checkout
            await self.git_cloner.clone(
                resource.url,
                fresh,
                token=token,
                branch=checkout.name if isinstance(checkout, BranchCheckout) else None,
                commit=checkout.sha if isinstance(checkout, CommitCheckout) else None,
            )
            await to_thread.run_sync(_move_into, fresh, _workspace_tree(workspace), place)
        finally:
            await to_thread.run_sync(lambda: shutil.rmtree(beside, ignore_errors=True))


def carry_mounts(
    before: Path, copy: Path, workspace: Path, session_resources: Sequence[SessionResource]
) -> None:
    """Note for a workspace what was put into the one that it will be a copy of, and is still there:
    the copy has it as it was left, and gets it no second time."""
    known = _read_mounted_ids(mounted_ids_file(before))
    carried = [
        session_resource.id
        for session_resource in session_resources
        if session_resource.id in known
        and os.path.lexists(copy / workspace_path(session_resource.mount_path))
    ]
    _write_mounted_ids(mounted_ids_file(workspace), carried)


def workspace_path(mount_path: str) -> PurePosixPath:
    """Where that is in the workspace."""
    for root in _ROOTS:
        if mount_path.startswith(root):
            return PurePosixPath(mount_path.removeprefix(root))
    return PurePosixPath(mount_path)


def _is_mentioned(session_resource: SessionResource) -> bool:
    return isinstance(session_resource, FileResource | RepositoryResource)


def _describe_mount(session_resource: SessionResource) -> str:
    match session_resource:
        case FileResource(file_id=file_id):
            return f"The file {file_id}"
        case RepositoryResource(url=url):
            return f"The repository {url}"
        case _:
            return f"The memory store {session_resource.name}"


def _workspace_tree(workspace: Path) -> FolderWorkspace:
    """What is ours in it is no place for what clients name."""
    return FolderWorkspace(workspace, hidden=(FOLDER,))


def _move_into(fresh: Path, folder_workspace: FolderWorkspace, place: PurePosixPath) -> None:
    """By descriptors: a service of the session may run by now, and make links of folders."""
    with resolve_path(folder_workspace.bounds, str(place), make_folders=True) as spot:
        if spot.state is not None:
            raise InvalidInput(f"{place} is there already")
        os.rename(fresh, spot.name, dst_dir_fd=spot.folder)


def _make_workspace(workspace: Path) -> None:
    # others may not list it; a sandbox that has a user of its own must get through
    workspace.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    make_private(workspace.parent / SERVED_STATE_FOLDER)
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


def mounted_ids_file(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}.mounted.json")


def _read_mounted_ids(noted: Path) -> Collection[str]:
    try:
        return msgspec.json.decode(noted.read_bytes(), type=_MountedIds).ids
    except FileNotFoundError:
        return ()


def _write_mounted_ids(noted: Path, ids: Sequence[str]) -> None:
    fresh = noted.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.encode(_MountedIds(tuple(ids))))
    fresh.replace(noted)


def output_source(workspace: Path) -> OutputFolder:
    async def listed() -> list[OutputFile]:
        if not await to_thread.run_sync(workspace.is_dir):
            return []
        return await to_thread.run_sync(list_outputs, workspace)

    async def read(path: str, max_bytes: int) -> Output | str:
        reading = partial(read_output, workspace, path, max_bytes=max_bytes)
        output = await to_thread.run_sync(reading)
        return output if isinstance(output, Output) else output.reason

    return OutputFolder(list=listed, read=read)


async def create_fork_workspace(
    settings: Settings,
    log: SessionLog,
    session_id: str,
    workspace: Path,
    session_resources: Sequence[SessionResource],
) -> None:
    """Make the workspace, if the session is a fork that has not run yet; else there is nothing to
    bring. Where nothing was kept nothing was changed: then it begins empty, and gets its mounts.

    Raises:
        InvalidInput: its parent's workspace is not on this machine.
        HandsError: the snapshot is damaged, or the disk is full; it can be tried again.
    """
    session = await log.session(session_id)
    if session.parent_id is None or await to_thread.run_sync(workspace.exists):
        return
    past = await read_rewind_history(log, session)
    if past.workspace is None or Path(past.workspace) == workspace:
        return  # no hands yet, or its own: that is not ours to make up for
    staged = workspace.with_name(f"{workspace.name}.forking")
    await to_thread.run_sync(_reset_folder, staged)
    await _restore_snapshot(settings, past, session.parent_seq, staged)
    await to_thread.run_sync(
        carry_mounts, Path(past.workspace), staged, workspace, session_resources
    )
    await to_thread.run_sync(staged.rename, workspace)
    await _take_snapshot(settings, session_id, workspace)


async def _restore_snapshot(
    settings: Settings, rewind_history: RewindHistory, seq: int, staged: Path
) -> None:
    kept = rewind_history.checkpoint_at(seq)
    if kept is None:
        return
    before = Path(rewind_history.workspace or "")
    if not await to_thread.run_sync(before.is_dir):
        raise InvalidInput(
            f"session {rewind_history.session_id} goes on from work in {before}, "
            "which is not on this"
            " machine; give all workers the same MAINSPRING_WORKSPACES on a disk that they share"
        )
    places = session_paths(settings, before, rewind_history.session_id)
    tree = FolderWorkspace(staged, hidden=places.hidden)
    await WorkspaceSnapshots(tree, places.snapshots).restore(kept.snapshot)


async def _take_snapshot(settings: Settings, session_id: str, workspace: Path) -> None:
    """Snapshots are named by what is in them: kept here too, the one that was inherited is known
    to the fork, for it to go back to."""
    places = session_paths(settings, workspace, session_id)
    tree = FolderWorkspace(places.workspace, hidden=places.hidden)
    await WorkspaceSnapshots(tree, places.snapshots).take()


def _reset_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    make_private(folder)
