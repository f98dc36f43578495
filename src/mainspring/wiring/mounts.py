"""What a session was given to work on, put into its workspace: files and repositories."""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.capabilities.workspace.tree import Tree
from mainspring.core.errors import HandsError, InvalidInput, NotFound
from mainspring.service.session_resources import (
    BranchCheckout,
    CommitCheckout,
    FileResource,
    RepositoryResource,
    Resource,
)
from mainspring.service.surroundings import FileContent

_CLONE_SECONDS = 600.0
_ROOTS = ("/workspace/", "/mnt/session/", "/")
"""Where clients believe that the workspace begins; it is somewhere else, and theirs alone."""
_SAFE = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "https:http",
}


class _Mounted(Struct, frozen=True):
    """Ids of what was put there once, and is the session's since: to change, or to delete."""

    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    file_content: Callable[[str, str], Awaitable[FileContent]]
    """Of a tenant and an id. Raises: NotFound."""

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
        noted = _noted(workspace)
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
                await Tree(workspace).write(str(place), found.content)
            case RepositoryResource():
                await _clone(workspace, place, resource, tokens.get(resource.id))
            case _:  # memory stores are kept; agents get to them in a later version
                pass


def carry_mounts(before: Path, copy: Path, workspace: Path, resources: Sequence[Resource]) -> None:
    """Note for a workspace what was put into the one that it will be a copy of, and is still there:
    the copy has it as it was left, and gets it no second time."""
    known = _read(_noted(before))
    carried = [
        each.id
        for each in resources
        if each.id in known and os.path.lexists(copy / placed(each.mount_path))
    ]
    _write(_noted(workspace), carried)


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


async def _clone(
    workspace: Path, place: PurePosixPath, resource: RepositoryResource, token: str | None
) -> None:
    """Beside the workspace first, so that programs of the session never see half of it.

    Raises: InvalidInput: what git said, without the token.
    """
    target = Path(Tree(workspace).locate(str(place)))
    beside = Path(tempfile.mkdtemp(prefix=f"{workspace.name}.clone-", dir=workspace.parent))
    try:
        fresh = beside / "repository"
        options: list[str] = []
        if isinstance(resource.checkout, BranchCheckout):
            options = ["--branch", resource.checkout.name]
        await _git("clone", "--quiet", *options, "--", resource.url, str(fresh), token=token)
        if isinstance(resource.checkout, CommitCheckout):
            sha = resource.checkout.sha
            await _git("-C", str(fresh), "checkout", "--quiet", "--detach", sha, token=token)
        await to_thread.run_sync(_move, fresh, target)
    finally:
        await to_thread.run_sync(lambda: shutil.rmtree(beside, ignore_errors=True))


async def _git(*arguments: str, token: str | None) -> None:
    program = shutil.which("git")
    if program is None:
        raise InvalidInput("git is not installed on the worker")
    environment = {"PATH": os.defpath, **_SAFE, **_authorized(token)}
    with anyio.move_on_after(_CLONE_SECONDS) as scope:
        ran = await anyio.run_process([program, *arguments], env=environment, check=False)
        if ran.returncode != 0:
            text = ran.stderr.decode(errors="replace").strip()[-500:]
            raise InvalidInput(f"git says: {_without(token, text)}")
    if scope.cancelled_caught:
        raise InvalidInput(f"git took more than {_CLONE_SECONDS:.0f} s")


def _authorized(token: str | None) -> dict[str, str]:
    """By the environment: arguments are for everybody on the machine to see."""
    if token is None:
        return {}
    login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Basic {login}",
    }


def _without(token: str | None, text: str) -> str:
    return text if token is None else re.sub(re.escape(token), "***", text)


def _move(fresh: Path, target: Path) -> None:
    if target.exists():
        raise InvalidInput(f"{target.name} is there already")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh.rename(target)


def _make(workspace: Path) -> None:
    # others may not list it; a sandbox that has a user of its own must get through
    workspace.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    workspace.mkdir(exist_ok=True)


def _noted(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}.mounted.json")


def _read(noted: Path) -> Collection[str]:
    try:
        return msgspec.json.decode(noted.read_bytes(), type=_Mounted).ids
    except FileNotFoundError:
        return ()


def _write(noted: Path, ids: Sequence[str]) -> None:
    fresh = noted.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(_Mounted(tuple(ids))))
    fresh.replace(noted)
