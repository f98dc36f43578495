"""OAuth documents: the settings of an MCP server, and what authorization servers publish and
return."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from mainspring.core.errors import McpFailed
from mainspring.core.ports import HttpReply

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_T = TypeVar("_T", bound=Struct)
VisibleText: TypeAlias = Annotated[str, Meta(pattern=r"^[\x20-\x7e]{0,16384}\Z")]
"""What RFC 6749 allows in tokens and ids of clients, and headers can carry."""


class ClientConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """The OAuth settings of a server's entry."""

    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """The URL of a Client ID Metadata Document."""
    auth_server_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()


def parse_client_config(oauth: Mapping[str, object]) -> ClientConfig:
    """Raises: McpFailed: the OAuth settings of a server's entry are invalid."""
    scopes = oauth.get("scopes", ())
    try:
        return msgspec.convert(
            {**oauth, "scopes": scopes.split() if isinstance(scopes, str) else scopes}, ClientConfig
        )
    except msgspec.ValidationError as error:
        raise McpFailed(f"its oauth settings: {error}") from error


class ResourceMetadata(Struct, frozen=True):
    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None


class AuthorizationServer(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    device_authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] | UnsetType = UNSET
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class RegisteredClient(Struct, frozen=True):
    client_id: VisibleText
    client_secret: VisibleText | None = None
    token_endpoint_auth_method: str | None = None


class TokenResponse(Struct, frozen=True):
    access_token: VisibleText
    refresh_token: VisibleText | None = None
    expires_in: float | None = None
    scope: str | None = None
    token_type: str = "Bearer"


def metadata_places(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}/.well-known", parts.path.rstrip("/")
    if not path:
        return [f"{root}/oauth-authorization-server", f"{root}/openid-configuration"]
    return [
        f"{root}/oauth-authorization-server{path}",
        f"{root}/openid-configuration{path}",
        f"{parts.scheme}://{parts.netloc}{path}/.well-known/openid-configuration",
    ]


def is_resource(url: str, resource: str) -> bool:
    """Whether a resource is the server, or a path above it."""
    server, parts = urlsplit(url), urlsplit(resource)
    if (server.scheme, server.netloc.lower()) != (parts.scheme, parts.netloc.lower()):
        return False
    path, above = server.path.rstrip("/"), parts.path.rstrip("/")
    return path == above or path.startswith(f"{above}/")


def check_url(url: str) -> None:
    if _UNPRINTABLE.search(url) is not None:
        raise McpFailed("an address of its authorization has characters that no address has")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise McpFailed("an address of its authorization is not a URL") from error
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not is_safe or not host or parts.username is not None:
        raise McpFailed(f"an address of its authorization is not https: {parts.scheme}://{host}")


def decode_document(content: bytes, type_: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(content, type=type_, strict=False)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise McpFailed(f"{what:.200}: not in the expected format") from error


def error_of(reply: HttpReply) -> str:
    """The status and the error's code; the other fields may contain secrets."""
    return f"HTTP {reply.status}, {code}" if (code := error_code(reply)) else f"HTTP {reply.status}"


def error_code(reply: HttpReply) -> str:
    """Empty if there is none."""
    try:
        fields = msgspec.json.decode(reply.body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ""
    error = fields.get("error")
    return printable_error(error) if isinstance(error, str) else ""


def printable_error(code: str) -> str:
    """The code of an error, if it looks like one."""
    return code if re.fullmatch(r"[a-z_]{1,60}", code) else ""
