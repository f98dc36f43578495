"""Parameters of requests to the server, and the client that they describe."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from mainspring.capabilities.mcp.protocol.messages import (
    LEGACY_VERSIONS,
    META,
    MODERN_VERSIONS,
    RequestId,
)
from mainspring.capabilities.mcp.server.exchange import ClientTraits, LogLevel
from mainspring.capabilities.mcp.server.refusals import invalid, unsupported_version

StructT = TypeVar("StructT", bound=Struct)
ItemT = TypeVar("ItemT")
PAGE_SIZE = 200  # entries of one page of a list


class RequestMeta(Struct, frozen=True, kw_only=True):
    version: str | None = msgspec.field(default=None, name=f"{META}protocolVersion")
    capabilities: dict[str, object] | None = msgspec.field(
        default=None, name=f"{META}clientCapabilities"
    )
    log_level: LogLevel | None = msgspec.field(default=None, name=f"{META}logLevel")
    progress_token: RequestId | None = msgspec.field(default=None, name="progressToken")


class RequestHead(Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of the parameters that every request may have."""

    meta: RequestMeta = msgspec.field(default_factory=RequestMeta, name="_meta")
    input_responses: dict[str, Raw] | None = None
    request_state: str | None = None


class InitializeParams(Struct, frozen=True, kw_only=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object] = {}


class ListParams(Struct, frozen=True):
    cursor: str | None = None


class CallToolParams(Struct, frozen=True):
    name: str
    arguments: dict[str, object] | None = None


class PromptParams(Struct, frozen=True):
    name: str
    arguments: dict[str, str] | None = None


class ResourceParams(Struct, frozen=True):
    uri: str


class LevelParams(Struct, frozen=True):
    level: LogLevel


class PromptReference(Struct, frozen=True, tag_field="type", tag="ref/prompt"):
    name: str


class ResourceReference(Struct, frozen=True, tag_field="type", tag="ref/resource"):
    uri: str


class _Argument(Struct, frozen=True):
    name: str
    value: str


class _CompletionContext(Struct, frozen=True):
    arguments: dict[str, str] = {}


class CompletionParams(Struct, frozen=True, kw_only=True):
    ref: PromptReference | ResourceReference
    argument: _Argument
    context: _CompletionContext = _CompletionContext()


def read_params(params: Raw, type_: type[StructT]) -> StructT:
    """Raises: RequestRefused: they have another format."""
    try:
        return msgspec.json.decode(bytes(params) or b"{}", type=type_)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise invalid(f"invalid parameters: {error!s:.300}") from error


def client_of(initialized: ClientTraits | None, head: RequestHead, method: str) -> ClientTraits:
    """The client as it introduced itself, or as a modern request describes it.

    Raises: RequestRefused: it says too little, or speaks another version.
    """
    meta = head.meta
    if meta.version is None and (initialized is not None or method == "initialize"):
        return initialized or ClientTraits(
            era="legacy", version=LEGACY_VERSIONS[0], capabilities={}, log_level=None
        )
    if meta.version is None:
        raise invalid(f"_meta must have {META}protocolVersion; older clients begin with initialize")
    if initialized is not None and initialized.era == "legacy" and meta.version in LEGACY_VERSIONS:
        return initialized
    if meta.version not in MODERN_VERSIONS:
        raise unsupported_version(meta.version)
    if meta.capabilities is None:
        raise invalid(f"_meta must have {META}clientCapabilities")
    return ClientTraits(
        era="modern",
        version=meta.version,
        capabilities=meta.capabilities,
        log_level=meta.log_level,
    )


def page_of(items: Sequence[ItemT], cursor: str | None) -> tuple[list[ItemT], str | None]:
    """A page, and the cursor of the next one, which is its start index.

    Raises: RequestRefused: not a cursor of this server.
    """
    start = 0 if cursor is None else _start(cursor)
    if start > len(items):
        raise invalid("cursor: the list is shorter now; start over")
    end = start + PAGE_SIZE
    following = base64.urlsafe_b64encode(b"%d" % end).decode("ascii")
    return list(items[start:end]), following if end < len(items) else None


def _start(cursor: str) -> int:
    try:
        text = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        text = b""
    if not text.isdigit() or len(text) > 9:
        raise invalid("cursor: this server did not issue it")
    return int(text)
