"""Moves a session from a server to this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from anyio import to_thread
from msgspec import Struct

from mainspring.config import FOLDER, Settings, is_postgres
from mainspring.core import clock, ids
from mainspring.core.clock import to_micros
from mainspring.core.errors import InvalidInput, NetworkRefused, NotFound, TooLarge
from mainspring.log.records import Put, RecordRow, Records, Remove, Replace
from mainspring.log.session_log import SessionLog
from mainspring.runtime.move_sessions.session_handover import receive

API_KEY_VARIABLE = "MAINSPRING_API_KEY"
_TRANSFER_KIND = "session_transfer"
TRANSFER_PREFIX = "tran"
_MAX_BYTES = 8 << 30  # of a bundle; the workspace's own limit is half of it
_CHUNK = 1 << 20  # bytes
_SECONDS = 3600.0  # for a whole transfer
_MAX_ERROR_CHARACTERS = 2000  # bytes of the server's answer that an error quotes


class Transfer(Struct, frozen=True, kw_only=True):
    """A session that is being moved here; stored until it continues here."""

    transfer_id: str
    url: str
    workspace: str
    is_placing: bool = False
    """Whether an existing workspace was written by this transfer."""


class PullResult(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    left_out: tuple[str, ...] = ()
    """Paths that were not moved."""


async def pull_session(
    settings: Settings, log: SessionLog, *, url: str, session_id: str, into: Path
) -> PullResult:
    """Move a session here. If it is interrupted, call it again to continue.

    Raises:
        InvalidInput: the address or folder is not usable, or the data is damaged.
        NetworkRefused: the server cannot be reached, or refuses the request.
    """
    base, key = server_address(url), server_key(settings)
    transfer = await _begin_transfer(log.store.records, session_id, base, into)
    folder = transfers_folder(settings)
    bundle = folder / f"{transfer.transfer_id}.tar"
    try:
        await to_thread.run_sync(lambda: folder.mkdir(mode=0o700, parents=True, exist_ok=True))
        await _download(
            f"{base}/v1/sessions/{quote(session_id, safe='')}/move", key, transfer, bundle
        )
        transfer = await _begin_placing(log.store.records, session_id, transfer)
        workspace = Path(transfer.workspace)
        left_out = await receive(
            log,
            bundle,
            session_id=session_id,
            transfer_id=transfer.transfer_id,
            workspace=workspace,
            hidden=(FOLDER,),
        )
        await _end_transfer(log.store.records, session_id)
    finally:
        await to_thread.run_sync(bundle.unlink, True)
    return PullResult(id=session_id, workspace=str(workspace), left_out=left_out)


def transfers_folder(settings: Settings) -> Path:
    """A private folder for bundles in transfer."""
    if is_postgres(settings.store):
        return Path(settings.folder) / FOLDER / "transfers"
    return Path(settings.store).parent / "transfers"


def server_key(settings: Settings) -> str:
    """Raises: InvalidInput: it is not set."""
    if key := settings.environment.get(API_KEY_VARIABLE):
        return key
    error = InvalidInput(f"{API_KEY_VARIABLE} is not set: the server needs an API key")
    error.add_note("`mainspring keys create` on the server creates a key")
    raise error


def server_address(url: str) -> str:
    """Raises: InvalidInput: the key would be sent unencrypted."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query:
        raise InvalidInput(f"{url} is not the address of a server, such as https://host")
    if parts.scheme == "http" and not _is_loopback(host):
        raise InvalidInput(f"{url}: use https://, so that nobody on the network can read the key")
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _begin_transfer(records: Records, session_id: str, url: str, into: Path) -> Transfer:
    """The transfer that was begun before, or a new one, which is stored before the request."""
    try:
        record = await records.get(_TRANSFER_KIND, session_id)
    except NotFound:
        now, earlier = to_micros(clock.now()), None
        record = RecordRow(
            tenant="", kind=_TRANSFER_KIND, id=session_id, created=now, updated=now, body=b""
        )
    else:
        earlier = msgspec.json.decode(record.body, type=Transfer)
    if earlier is not None and earlier.url != url:
        raise InvalidInput(f"session {session_id} is being moved here from {earlier.url} already")
    if earlier is not None and earlier.is_placing:
        return earlier
    if await to_thread.run_sync(os.path.lexists, into):
        raise InvalidInput(f"{into} exists already: name a new folder with --workspace")
    transfer_id = ids.new_id(TRANSFER_PREFIX) if earlier is None else earlier.transfer_id
    transfer = Transfer(transfer_id=transfer_id, url=url, workspace=str(into))
    record = replace(record, body=msgspec.json.encode(transfer))
    await records.write(Put(row=record) if earlier is None else Replace(row=record))
    return transfer


async def _begin_placing(records: Records, session_id: str, transfer: Transfer) -> Transfer:
    """Raises: InvalidInput: somebody has created the folder in the meantime."""
    if transfer.is_placing:
        return transfer
    if await to_thread.run_sync(os.path.lexists, transfer.workspace):
        raise InvalidInput(f"{transfer.workspace} exists already: move it away, then try again")
    placing = msgspec.structs.replace(transfer, is_placing=True)
    record = await records.get(_TRANSFER_KIND, session_id)
    await records.write(Replace(row=replace(record, body=msgspec.json.encode(placing))))
    return placing


async def _end_transfer(records: Records, session_id: str) -> None:
    await records.write(Remove(row=await records.get(_TRANSFER_KIND, session_id)))


async def _download(url: str, key: str, transfer: Transfer, file: Path) -> None:
    """Raises: NetworkRefused, TooLarge."""
    timeout = aiohttp.ClientTimeout(total=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(
                url,
                json={"transfer": transfer.transfer_id},
                headers={"x-api-key": key},
                allow_redirects=False,
            ) as response,
        ):
            if response.status != 200:
                raise NetworkRefused(
                    f"the server answered {response.status}: {await error_message(response)}"
                )
            await _save(response, file)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise NetworkRefused(f"{url}: no answer ({type(error).__name__}: {error})") from error


async def error_message(response: aiohttp.ClientResponse) -> str:
    content = await response.content.read(_MAX_ERROR_CHARACTERS)
    try:
        return str(msgspec.json.decode(content)["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        return content.decode(errors="replace")[:200]


async def _save(response: aiohttp.ClientResponse, file: Path) -> None:
    await to_thread.run_sync(file.unlink, True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    size = 0
    with os.fdopen(os.open(file, flags, 0o600), "wb") as out:
        async for piece in response.content.iter_chunked(_CHUNK):
            size += len(piece)
            if size > _MAX_BYTES:
                raise TooLarge("the session is too large to be moved")
            await to_thread.run_sync(out.write, piece)
