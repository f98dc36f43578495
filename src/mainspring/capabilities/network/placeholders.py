"""The placeholders that a sandbox sees instead of secrets. They are replaced in the headers of a
request over TLS to a host that the secret is for; in responses, secrets are replaced by
placeholders."""

from __future__ import annotations

import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from mainspring.capabilities.network.rules import is_host
from mainspring.core.ports import Credential

Header: TypeAlias = tuple[bytes, bytes]

PREFIX = "msk_placeholder_"
_BASIC = re.compile(rb"(?i)basic +([A-Za-z0-9+/]+=*)")
_FIT_FOR_HEADERS = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class SecretMatches(Protocol):
    @property
    def spans(self) -> Sequence[tuple[int, int, int]]:
        """Begin and end of each value, and its number; sorted, without overlaps."""
        ...

    @property
    def open(self) -> int:
        """Where a value may begin that continues after the content."""
        ...


Search: TypeAlias = Callable[[bytes], SecretMatches]
"""Finds values in content, in any encoding."""


@dataclass(frozen=True, slots=True)
class FilledHeaders:
    headers: tuple[Header, ...] = field(repr=False)
    names: tuple[str, ...]
    """Names of the secrets that were inserted."""


class Placeholders:
    """The placeholders of one session."""

    def __init__(
        self,
        credentials: Iterable[Credential],
        search_for: Callable[[Sequence[str]], Search],
        new_token: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self._credentials = {f"{PREFIX}{new_token()}": item for item in credentials if item.value}
        self._placeholder_bytes = [placeholder.encode() for placeholder in self._credentials]
        self._search = search_for([item.value for item in self._credentials.values()])

    def __bool__(self) -> bool:
        return bool(self._credentials)

    def environment(self, names: Iterable[str]) -> dict[str, str]:
        """Environment variables with the placeholders of these secrets."""
        by_name = {item.name: placeholder for placeholder, item in self._credentials.items()}
        return {name: by_name[name] for name in names if name in by_name}

    def fill(self, host: str, headers: Sequence[Header]) -> FilledHeaders:
        """The headers for a host, with placeholders replaced by the secrets for it."""
        secrets_for_host = {
            placeholder.encode(): item
            for placeholder, item in self._credentials.items()
            if any(is_host(host, pattern) for pattern in item.hosts)
        }
        used_names: set[str] = set()

        def put_in(value: bytes) -> bytes:
            for placeholder, item in secrets_for_host.items():
                secret = item.value.encode()
                if placeholder in value and _FIT_FOR_HEADERS.fullmatch(secret):
                    value = value.replace(placeholder, secret)
                    used_names.add(item.name)
            return value

        filled = tuple((name, _fill_basic_auth(value, put_in)) for name, value in headers)
        return FilledHeaders(filled, tuple(sorted(used_names)))

    def clean(self, content: bytes) -> bytes:
        """A response, or a complete part of one, with secrets replaced by placeholders."""
        return (
            self._replace_secrets(content, self._search(content), len(content)) if self else content
        )

    def cleaner(self) -> Cleaner:
        return Cleaner(self)

    def split(self, content: bytes) -> tuple[bytes, bytes]:
        """Split content into a finished part, cleaned, and an end that may be the beginning of a
        secret."""
        if not self:
            return content, b""
        findings = self._search(content)
        return self._replace_secrets(content, findings, findings.open), content[findings.open :]

    def _replace_secrets(self, content: bytes, matches: SecretMatches, stop: int) -> bytes:
        pieces: list[bytes] = []
        position = 0
        for begin, end, number in matches.spans:
            if begin >= stop:
                break
            pieces += (content[position:begin], self._placeholder_bytes[number])
            position = end
        return b"".join((*pieces, content[position:stop]))


class Cleaner:
    """Cleans a stream, however it is split into chunks; holds back only text that may be the
    beginning of a secret."""

    def __init__(self, placeholders: Placeholders) -> None:
        self._placeholders = placeholders
        self._buffer = b""

    def feed(self, content: bytes) -> bytes:
        clean, self._buffer = self._placeholders.split(self._buffer + content)
        return clean

    def end(self) -> bytes:
        clean, self._buffer = self._placeholders.clean(self._buffer), b""
        return clean


def _fill_basic_auth(value: bytes, put_in: Callable[[bytes], bytes]) -> bytes:
    basic = _BASIC.fullmatch(value)
    if basic is None:
        return put_in(value)
    try:
        login = b64decode(basic[1], validate=True)
    except ValueError:
        return put_in(value)
    return b"Basic " + b64encode(put_in(login))
