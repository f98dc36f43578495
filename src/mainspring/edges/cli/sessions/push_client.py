"""Client of `mainspring sessions push`: move a session from this machine to a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from anyio import open_file, to_thread
from msgspec import Struct

from mainspring.config import FOLDER, Settings
from mainspring.core import clock, ids
from mainspring.core.clock import to_micros
from mainspring.core.errors import (
    InvalidInput,
    MainspringError,
    NetworkRefused,
    NotFound,
    SessionGone,
    TooLarge,
)
from mainspring.core.events import SessionMoved
from mainspring.edges.cli.sessions.pull_client import (
    TRANSFER_PREFIX,
    error_message,
    server_address,
    server_key,
    transfers_folder,
)
from mainspring.log.records import Put, RecordRow, Records, Replace
from mainspring.log.session_log import SessionLog
from mainspring.log.transfer import export_lines
from mainspring.runtime.move_sessions.session_bundle import BundleSource, UploadLimits, write_bundle
from mainspring.runtime.move_sessions.session_handover import check_can_move, seal
from mainspring.runtime.move_sessions.workspace_archive import check_size
from mainspring.runtime.session.session_summary import workspace_of

_KIND = "session_push"
_SECONDS = 3600.0  # for a whole transfer
_CHUNK = 1 << 20  # bytes
_MAX_ANSWER = 4 << 20  # bytes of the server's answer
_MAX_LISTED = 20  # files named before a count
_PREFIXES = ("agent_", "env_")


class Push(Struct, frozen=True, kw_only=True):
    """A session that is being moved to a server, or has arrived there."""

    transfer_id: str
    url: str
    received_as: str | None = None
    """Its id on the server, once it continues there."""


class _NamedObject(Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""


class _Page(Struct, frozen=True, kw_only=True):
    data: tuple[_NamedObject, ...]


class _Check(Struct, frozen=True, kw_only=True):
    session_id: str
    is_received: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOptions:
    url: str
    session_id: str
    agent: str | None = None
    """Its id or name on the server; optional if the server has only one."""
    environment: str | None = None
    workspace: Path | None = None
    """The folder to send; by default that of the session, if it is below the current one."""


async def push_session(settings: Settings, log: SessionLog, options: PushOptions) -> str:
    """Move a session to a server, and return its id there. If it is interrupted, call it again to
    continue.

    Raises:
        InvalidInput, TooLarge: it cannot be moved; nothing was changed.
        NetworkRefused: the server cannot be reached, or refuses the request.
    """
    base, key = server_address(options.url), server_key(settings)
    push = await _stored_push(log, options.session_id, base)
    if push.received_as is not None:
        return push.received_as
    async with _connected(base, key) as server:
        workspace = await _workspace(settings, log, options)
        query = {
            "transfer": push.transfer_id,
            "session_id": options.session_id,
            "agent_id": await server.choose("agents", "agent", options.agent),
            "environment_id": await server.choose(
                "environments", "environment", options.environment
            ),
            "size": str(await _upload_size(log, options.session_id, workspace)),
        }
        check = await server.get("/v1/mainspring/transfers", query, _Check)
        if not check.is_received:
            await _send(settings, log, server, query, workspace, push)
    await _store_push(
        log.store.records,
        options.session_id,
        msgspec.structs.replace(push, received_as=check.session_id),
    )
    return check.session_id


async def _stored_push(log: SessionLog, session_id: str, url: str) -> Push:
    """The transfer that was begun before, or a new one.

    Raises: InvalidInput, SessionGone, StaleVersion.
    """
    [last] = await log.tail(session_id, 1)
    moved_by = last.payload.transfer_id if isinstance(last.payload, SessionMoved) else None
    try:
        record = await log.store.records.get(_KIND, session_id)
        push = msgspec.json.decode(record.body, type=Push)
    except NotFound:
        push = None
    if moved_by is not None and (push is None or push.transfer_id != moved_by):
        raise SessionGone(session_id)
    if moved_by is None:  # nothing was sent yet, or it was moved back since
        await check_can_move(log, session_id)
        is_begun = push is not None and push.received_as is None and push.url == url
        return push if push and is_begun else Push(transfer_id=ids.new_id(TRANSFER_PREFIX), url=url)
    assert push is not None
    if push.url != url:
        elsewhere = InvalidInput(f"session {session_id} is being moved to {push.url} already")
        elsewhere.add_note(f"if that server is gone: mainspring sessions fork {session_id}")
        raise elsewhere
    return push


async def _store_push(records: Records, session_id: str, push: Push) -> None:
    body, now = msgspec.json.encode(push), to_micros(clock.now())
    try:
        record = await records.get(_KIND, session_id)
    except NotFound:
        record = RecordRow(
            tenant="", kind=_KIND, id=session_id, created=now, updated=now, body=body
        )
        await records.write(Put(row=record))
    else:
        await records.write(Replace(row=replace(record, updated=now, body=body)))


async def _workspace(settings: Settings, log: SessionLog, options: PushOptions) -> Path | None:
    """The folder to send. A log may come from elsewhere and name any folder, so a folder that is
    not below the current one must be named by the user.

    Raises: InvalidInput.
    """
    place = options.workspace
    if place is None:
        log_folder = await workspace_of(log, options.session_id)
        if log_folder is None:
            return None
        place = Path(log_folder)
        here = await to_thread.run_sync(Path(settings.folder).resolve)
        folder = await to_thread.run_sync(place.resolve)
        if not folder.is_relative_to(here):
            raise InvalidInput(
                f"the session works in {place}, which is not below {here}: go there, or name the"
                " folder to send with --workspace"
            )
    if not await to_thread.run_sync(place.is_dir):
        raise InvalidInput(f"{place} is not a folder: name the session's files with --workspace")
    return await to_thread.run_sync(place.resolve)


async def _upload_size(log: SessionLog, session_id: str, workspace: Path | None) -> int:
    """The approximate size of the upload, computed before the session is ended.

    Raises: TooLarge.
    """
    limits, size = UploadLimits(), 0
    async with aclosing(export_lines(log, session_id)) as lines:
        async for line in lines:
            size += len(line) + 1
    head = (await log.session(session_id)).head.seq
    if size > limits.max_log_bytes - 4096 or head >= limits.max_events:
        raise TooLarge(
            f"the log of session {session_id} has {head:,} events and {size:,} bytes; a session"
            f" that is pushed has {limits.max_events:,} events and {limits.max_log_bytes:,} bytes"
            " at most"
        )
    if workspace is not None:
        size += await to_thread.run_sync(partial(check_size, workspace, hidden=(FOLDER,)))
    return size


async def _send(
    settings: Settings,
    log: SessionLog,
    server: _Server,
    query: dict[str, str],
    workspace: Path | None,
    push: Push,
) -> None:
    session_id = query["session_id"]
    await _store_push(log.store.records, session_id, push)
    await seal(log, session_id, push.transfer_id)
    source = BundleSource(
        session_id=session_id,
        transfer_id=push.transfer_id,
        workspace=workspace,
        hidden=(FOLDER,),
    )
    bundle = None
    try:
        bundle = await write_bundle(log, source, transfers_folder(settings))
        await server.upload("/v1/mainspring/transfers", query, bundle)
    except (MainspringError, OSError) as error:
        error.add_note(
            f"session {session_id} does not run anywhere yet: run the same command again"
        )
        error.add_note(f"to continue here instead: mainspring sessions fork {session_id}")
        raise
    finally:
        if bundle is not None:
            await to_thread.run_sync(partial(bundle.unlink, missing_ok=True))


@dataclass(frozen=True, slots=True)
class _Server:
    http: aiohttp.ClientSession
    base: str

    async def choose(self, kind: str, option: str, id_or_name: str | None) -> str:
        """The id of an agent or an environment: by its id or name, or the only one on the server.

        Raises: InvalidInput: there is no such object; the message names those that exist.
        """
        if id_or_name is not None and id_or_name.startswith(_PREFIXES):
            return id_or_name  # a key of limited scope may not list them
        page = await self.get(f"/v1/{kind}", {"limit": "100"}, _Page)
        matches = [item for item in page.data if id_or_name in (None, item.id, item.name)]
        if len(matches) == 1:
            return matches[0].id
        raise _ambiguous_option(option, id_or_name, page.data)

    async def get(self, path: str, query: dict[str, str], type_: type[Any]) -> Any:  # noqa: ANN401 (of that type)
        """Raises: NetworkRefused."""
        try:
            async with self.http.get(
                self.base + path, params=query, allow_redirects=False
            ) as response:
                return await _decode_response(response, type_)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(self.base, error) from error

    async def upload(self, path: str, query: dict[str, str], file: Path) -> None:
        """Raises: NetworkRefused."""
        size = (await to_thread.run_sync(file.stat)).st_size
        headers = {
            "content-type": "application/x-tar",
            "content-length": str(size),
            "expect": "100-continue",
        }
        try:
            async with self.http.post(
                self.base + path,
                params=query,
                data=_read_chunks(file),
                headers=headers,
                allow_redirects=False,
            ) as response:
                await _decode_response(response, _NamedObject)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(self.base, error) from error


@asynccontextmanager
async def _connected(base: str, key: str) -> AsyncGenerator[_Server, None]:
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(
        timeout=timeout, trust_env=True, headers={"x-api-key": key}
    ) as http:
        yield _Server(http, base)


async def _decode_response(response: aiohttp.ClientResponse, type_: type[Any]) -> Any:  # noqa: ANN401 (of that type)
    if response.status != 200:
        raise NetworkRefused(
            f"the server answered {response.status}: {await error_message(response)}"
        )
    content = await response.content.read(_MAX_ANSWER)
    while piece := await response.content.read(_MAX_ANSWER):
        content += piece
        if len(content) > _MAX_ANSWER:
            raise NetworkRefused("the server's answer is too long")
    try:
        return msgspec.json.decode(content, type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NetworkRefused(f"the server's answer cannot be read: {error}") from error


async def _read_chunks(file: Path) -> AsyncGenerator[bytes, None]:
    async with await open_file(file, "rb") as stream:
        while piece := await stream.read(_CHUNK):
            yield piece


def _unreachable(base: str, error: Exception) -> NetworkRefused:
    return NetworkRefused(f"{base}: no answer ({type(error).__name__}: {error})")


def _ambiguous_option(
    option: str, id_or_name: str | None, objects: Sequence[_NamedObject]
) -> InvalidInput:
    if not objects:
        return InvalidInput(f"the server has no {option}: create one there first")
    problem = (
        f"--{option} is missing"
        if id_or_name is None
        else f"--{option} {id_or_name} does not exist"
    )
    error = InvalidInput(f"{problem}: choose one of the server's")
    for item in objects[:_MAX_LISTED]:
        error.add_note(f"--{option} {item.id}  {item.name}")
    return error
