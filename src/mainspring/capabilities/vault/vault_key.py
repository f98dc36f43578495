"""The source of the vault's key: a variable, the system's keyring, or a separate file."""

from __future__ import annotations

import os
import secrets
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from mainspring.core.errors import InvalidInput

KEY_BYTES = 32  # AES-256
_SERVICE = "mainspring"
_ENTRY = "vault"


class Keyring(Protocol):
    """The part of the package `keyring` that we use."""

    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...


def new_key() -> str:
    return urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def decoded(text: str, *, source: str) -> bytes:
    """Raises: InvalidInput: it is not a key; the error does not contain it."""
    try:
        key = urlsafe_b64decode(text.strip().replace("+", "-").replace("/", "_"))
    except ValueError as error:
        raise _no_key(source) from error
    if len(key) != KEY_BYTES:
        raise _no_key(source)
    return key


def _no_key(source: str) -> InvalidInput:
    wrong = InvalidInput(f"{source}: a vault's key is {KEY_BYTES} bytes, written in base64")
    wrong.add_note("head -c 32 /dev/urandom | base64")
    return wrong


def from_file(path: Path, *, create: bool) -> bytes:
    """The key in a file that no other user can read.

    Raises:
        InvalidInput: it is missing and must not be created, others can read it, or it has no key.
    """
    if create and not os.path.lexists(path):  # a read-only disk may have one
        _make(path)
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise InvalidInput(f"{path}: the vault's key: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        _check_private(path, os.fstat(file.fileno()))
        content = file.read(1024)
    return decoded(content.decode(errors="replace"), source=str(path))


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    ready = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(ready, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new_key().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(ready, path)  # atomic, and keeps the file of a concurrent first use
    except FileExistsError:
        return
    finally:
        ready.unlink()


def _check_private(path: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise InvalidInput(f"{path}: the vault's key is not a regular file")
    if not hasattr(os, "getuid"):  # Windows controls access in other ways
        return
    if state.st_mode & 0o077 or state.st_uid not in (os.getuid(), 0):
        exposed = InvalidInput(f"{path}: others can read the vault's key")
        exposed.add_note(f"chmod 600 {path}")
        raise exposed


def from_keyring(*, create: bool, keyring: Keyring | None = None) -> bytes:
    """The key in the system's keyring.

    Raises:
        InvalidInput: there is no keyring, it does not open, or it has no key.
    """
    store = keyring or _system_keyring()
    try:
        text = store.get_password(_SERVICE, _ENTRY)
        if text is None and create:
            store.set_password(_SERVICE, _ENTRY, new_key())
            text = store.get_password(_SERVICE, _ENTRY)
    except Exception as error:  # each keyring backend has its own errors
        raise InvalidInput(f"the keyring does not open: {type(error).__name__}") from error
    if text is None:
        raise InvalidInput("the keyring has no key of a vault")
    return decoded(text, source="the keyring")


def _system_keyring() -> Keyring:
    try:  # imported by name: an optional dependency
        return cast("Keyring", import_module("keyring"))
    except ModuleNotFoundError as error:
        problem = InvalidInput("the keyring package is not installed")
        problem.add_note("pip install 'mainspring[keyring]'")
        raise problem from error
