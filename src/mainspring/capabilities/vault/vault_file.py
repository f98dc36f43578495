"""The vault's file: secrets by name, each encrypted, all of them sealed together.

Names, hosts and times can be read without the key, but not changed: they are authenticated with
each value, and the seal covers the set of entries.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from mainspring.capabilities.vault.encoded_forms import SHORTEST_SECRET
from mainspring.capabilities.vault.vault_key import KEY_BYTES
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.files.atomic_file import write_atomic
from mainspring.files.openat import OpenDescriptor

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

VERSION = 1  # of the file's format
MAX_VALUE_BYTES = 64 << 10  # keys and certificates have a few kilobytes
_NONCE_BYTES = 12  # AES-GCM's own size
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_HOST = re.compile(
    r"(?:\*\.)?(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9][a-z0-9-]{0,61}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    name: str
    hosts: tuple[str, ...]
    """Hosts that it may be sent to; none if empty."""
    created: datetime
    updated: datetime
    value: str = field(repr=False)


class _Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hosts: tuple[str, ...]
    created: datetime
    updated: datetime
    nonce: bytes
    value: bytes


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    entries: dict[str, _Entry]
    nonce: bytes
    seal: bytes


class Vault:
    """Every call reads the file, so that it sees changes by other processes."""

    def __init__(self, path: Path, key: bytes, *, clock: Clock) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidInput(f"the vault's key has {len(key)} bytes, not {KEY_BYTES}")
        self.path = path
        self._cipher = AESGCM(key)
        self._clock = clock

    def secrets(self) -> list[Secret]:
        """All secrets, sorted by name.

        Raises:
            InvalidInput: the key differs, or the file was changed.
        """
        entries = self._read()
        return [self._decrypt(name, entries[name]) for name in sorted(entries)]

    def get(self, name: str) -> Secret:
        """
        Raises:
            InvalidInput: there is no such secret; or as `secrets`.
        """
        entries = self._read()
        if name not in entries:
            raise unknown_secret(name)
        return self._decrypt(name, entries[name])

    def put(self, name: str, value: str, hosts: Sequence[str]) -> Secret:
        """Store a secret, and replace one of the same name.

        Raises:
            InvalidInput: an invalid name, value or host; or as `secrets`.
        """
        allowed = tuple(sorted({_host(host) for host in hosts}))
        _check(name, value)
        with self._locked():
            entries = dict(self._read())
            now = self._clock()
            created = entries[name].created if name in entries else now
            secret = Secret(name=name, hosts=allowed, created=created, updated=now, value=value)
            entries[name] = self._encrypt(secret)
            self._write(entries)
        return secret

    def remove(self, name: str) -> None:
        """
        Raises:
            InvalidInput: there is no such secret; or as `secrets`.
        """
        with self._locked():
            entries = dict(self._read())
            if entries.pop(name, None) is None:
                raise unknown_secret(name)
            self._write(entries)

    def _encrypt(self, secret: Secret) -> _Entry:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        about = _associated_data(secret.name, secret.hosts, secret.created, secret.updated)
        return _Entry(
            hosts=secret.hosts,
            created=secret.created,
            updated=secret.updated,
            nonce=nonce,
            value=self._cipher.encrypt(nonce, secret.value.encode(), about),
        )

    def _decrypt(self, name: str, entry: _Entry) -> Secret:
        about = _associated_data(name, entry.hosts, entry.created, entry.updated)
        value = self._decrypt_bytes(entry.nonce, entry.value, about)
        return Secret(
            name=name,
            hosts=entry.hosts,
            created=entry.created,
            updated=entry.updated,
            value=value.decode(),
        )

    def _decrypt_bytes(self, nonce: bytes, content: bytes, about: bytes) -> bytes:
        try:
            return self._cipher.decrypt(nonce, content, about)
        except (InvalidTag, ValueError) as error:
            problem = InvalidInput(f"{self.path}: the key differs, or the file was changed")
            problem.add_note("MAINSPRING_VAULT_KEY, the keyring or the key file must be the one")
            problem.add_note("that the vault was created with; nothing was read")
            raise problem from error

    def _read(self) -> Mapping[str, _Entry]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            file = msgspec.json.decode(content, type=_File)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"{self.path}: this is not a vault: {error}") from error
        if file.version != VERSION:
            raise InvalidInput(f"{self.path}: a vault of version {file.version}, not {VERSION}")
        self._decrypt_bytes(file.nonce, file.seal, _sealed_content(file.entries))
        return file.entries

    def _write(self, entries: Mapping[str, _Entry]) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        seal = self._cipher.encrypt(nonce, b"", _sealed_content(entries))
        file = _File(version=VERSION, entries=dict(entries), nonce=nonce, seal=seal)
        write_atomic(self.path, msgspec.json.encode(file))

    @contextmanager
    def _locked(self) -> Generator[None, None, None]:
        """Lock the file for one writer at a time, across processes."""
        with locked(self.path.with_suffix(".lock")):
            yield


@contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    """A lock for one process at a time; entering it waits without limit."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with OpenDescriptor(os.open(path, os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        _lock(lock)
        yield


def unknown_secret(name: str) -> InvalidInput:
    error = InvalidInput(f"the vault has no {name!r}")
    error.add_note("`mainspring vault ls` lists its secrets")
    return error


def _associated_data(
    name: str, hosts: tuple[str, ...], created: datetime, updated: datetime
) -> bytes:
    return msgspec.json.encode(["mainspring vault", VERSION, name, hosts, created, updated])


def _sealed_content(entries: Mapping[str, _Entry]) -> bytes:
    ordered = [(name, entries[name]) for name in sorted(entries)]
    return msgspec.json.encode(["mainspring vault", VERSION, ordered])


def _check(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r}: a name has letters, digits and _, as those of variables do, at most 64"
        )
    if len(value.strip()) < SHORTEST_SECRET:
        raise InvalidInput(
            f"{name}: a value of less than {SHORTEST_SECRET} characters cannot be told from a word,"
            " and could not be kept out of the log"
        )
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise InvalidInput(f"{name}: the value is longer than {MAX_VALUE_BYTES} bytes")


def _host(host: str) -> str:
    name = host.strip().lower().rstrip(".")
    if not _HOST.fullmatch(name) or name.rpartition(".")[2].isdigit():
        error = InvalidInput(f"{host!r} is not a host name")
        error.add_note("api.example.com, or *.example.com for all below it; no address, no port")
        raise error
    return name


if sys.platform == "win32":

    def _lock(lock: int) -> None:
        msvcrt.locking(lock, msvcrt.LK_LOCK, 1)

else:

    def _lock(lock: int) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)
