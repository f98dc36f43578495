"""How credentials authenticate: requests with secrets, the part that is shown, and the secrets
separately. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.core.errors import InvalidInput
from mainspring.core.ids import ExternalId

SecretText = Annotated[str, Meta(min_length=1, max_length=65_536)]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
SecretName = Annotated[str, Meta(max_length=255, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
AwareDatetime = Annotated[datetime, Meta(tz=True)]
OauthScope = Annotated[str, Meta(max_length=4096)]

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:\*\.)?(?:{_LABEL}\.)*{_LABEL}")
_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)")
_PORTS = {"https": 443, "http": 80}


def redacted_repr(self: object) -> str:
    """The `__repr__` of structs with secrets."""
    return f"<{type(self).__name__}: secret>"


class AllHosts(Struct, frozen=True, kw_only=True, tag_field="type", tag="unrestricted"):
    """Every host that the environment lets the session reach."""


class LimitedHosts(Struct, frozen=True, kw_only=True, tag_field="type", tag="limited"):
    allowed_hosts: Annotated[tuple[str, ...], Meta(max_length=16)]


CredentialNetworking: TypeAlias = AllHosts | LimitedHosts


class Injection(Struct, frozen=True, kw_only=True):
    """Where in a request the placeholder is replaced by the secret."""

    header: bool = True
    body: bool = False


class InjectionPatch(Struct, frozen=True, kw_only=True):
    header: bool | UnsetType = UNSET
    body: bool | UnsetType = UNSET


class NoClientAuth(Struct, frozen=True, kw_only=True, tag_field="type", tag="none"):
    pass


class BasicAuth(Struct, frozen=True, kw_only=True, tag_field="type", tag="client_secret_basic"):
    pass


class PostAuth(Struct, frozen=True, kw_only=True, tag_field="type", tag="client_secret_post"):
    pass


ClientAuth: TypeAlias = NoClientAuth | BasicAuth | PostAuth


class Refresh(Struct, frozen=True, kw_only=True):
    client_id: str
    token_endpoint: str
    token_endpoint_auth: ClientAuth
    resource: str | None = None
    scope: str | None = None


class StaticBearer(Struct, frozen=True, kw_only=True, tag_field="type", tag="static_bearer"):
    mcp_server_url: str


class McpOauth(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_oauth"):
    mcp_server_url: str
    expires_at: datetime | None = None
    refresh: Refresh | None = None


class EnvironmentVariable(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="environment_variable"
):
    secret_name: str
    networking: CredentialNetworking
    injection_location: Injection


Auth: TypeAlias = McpOauth | StaticBearer | EnvironmentVariable


class Secrets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sealed part of a credential."""

    value: str
    """The token, the access token or the value of the variable."""
    refresh_token: str | None = None
    client_secret: str | None = None
    __repr__ = redacted_repr

    def all(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.value, self.refresh_token, self.client_secret)))


class NewBasicAuth(Struct, frozen=True, kw_only=True, tag_field="type", tag="client_secret_basic"):
    client_secret: SecretText
    __repr__ = redacted_repr


class NewPostAuth(Struct, frozen=True, kw_only=True, tag_field="type", tag="client_secret_post"):
    client_secret: SecretText
    __repr__ = redacted_repr


class NewRefresh(Struct, frozen=True, kw_only=True):
    client_id: Annotated[ExternalId, Meta(min_length=1, max_length=1024)]
    refresh_token: SecretText
    token_endpoint: Url
    token_endpoint_auth: NoClientAuth | NewBasicAuth | NewPostAuth
    resource: Url | None = None
    scope: OauthScope | None = None
    __repr__ = redacted_repr


class NewStaticBearer(Struct, frozen=True, kw_only=True, tag_field="type", tag="static_bearer"):
    token: SecretText
    mcp_server_url: Url
    __repr__ = redacted_repr


class NewMcpOauth(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_oauth"):
    access_token: SecretText
    mcp_server_url: Url
    expires_at: AwareDatetime | None = None
    refresh: NewRefresh | None = None
    __repr__ = redacted_repr


class NewEnvironmentVariable(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="environment_variable"
):
    secret_name: SecretName
    secret_value: SecretText
    networking: CredentialNetworking
    injection_location: Injection = Injection()
    __repr__ = redacted_repr


NewAuth: TypeAlias = NewMcpOauth | NewStaticBearer | NewEnvironmentVariable


class BasicAuthPatch(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="client_secret_basic"
):
    client_secret: SecretText | None = None
    __repr__ = redacted_repr


class PostAuthPatch(Struct, frozen=True, kw_only=True, tag_field="type", tag="client_secret_post"):
    client_secret: SecretText | None = None
    __repr__ = redacted_repr


class RefreshPatch(Struct, frozen=True, kw_only=True):
    refresh_token: SecretText | None = None
    scope: OauthScope | None = None
    """An empty string removes it."""
    token_endpoint_auth: BasicAuthPatch | PostAuthPatch | None = None
    __repr__ = redacted_repr


class StaticBearerPatch(Struct, frozen=True, kw_only=True, tag_field="type", tag="static_bearer"):
    token: SecretText | None = None
    __repr__ = redacted_repr


class McpOauthPatch(Struct, frozen=True, kw_only=True, tag_field="type", tag="mcp_oauth"):
    access_token: SecretText | None = None
    expires_at: AwareDatetime | UnsetType | None = UNSET
    """`null`: unknown."""
    refresh: RefreshPatch | None = None
    __repr__ = redacted_repr


class EnvironmentVariablePatch(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="environment_variable"
):
    secret_value: SecretText | None = None
    networking: CredentialNetworking | None = None
    injection_location: InjectionPatch = InjectionPatch()
    __repr__ = redacted_repr


AuthPatch: TypeAlias = McpOauthPatch | StaticBearerPatch | EnvironmentVariablePatch


def credential_key(auth: Auth) -> str:
    """The key of a credential, unique in its vault, by which sessions find it."""
    if isinstance(auth, EnvironmentVariable):
        return f"variable {auth.secret_name}"
    return f"server {server_key(auth.mcp_server_url)}"


def server_key(url: str) -> str:
    """The same for all spellings of the URL of one server."""
    parts = urlsplit(url)
    host, port = (parts.hostname or "").lower(), parts.port
    address = host if port in (None, _PORTS.get(parts.scheme)) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{address}{parts.path.rstrip('/')}{query}"


def split_secrets(params: NewAuth, now: datetime) -> tuple[Auth, Secrets]:
    """The part that may be shown, and the secrets.

    Raises: InvalidInput.
    """
    match params:
        case NewStaticBearer():
            url = _url(params.mcp_server_url, "mcp_server_url")
            return StaticBearer(mcp_server_url=url), Secrets(value=params.token)
        case NewMcpOauth():
            return _split_oauth(params, now)
        case NewEnvironmentVariable():
            auth = EnvironmentVariable(
                secret_name=params.secret_name,
                networking=_networking(params.networking),
                injection_location=_injection(params.injection_location),
            )
            return auth, Secrets(value=params.secret_value)


def _split_oauth(params: NewMcpOauth, now: datetime) -> tuple[Auth, Secrets]:
    secrets = Secrets(value=params.access_token)
    auth = McpOauth(
        mcp_server_url=_url(params.mcp_server_url, "mcp_server_url"),
        expires_at=_require_future(params.expires_at, now),
    )
    if params.refresh is None:
        return auth, secrets
    endpoint_auth = params.refresh.token_endpoint_auth
    client_auth: ClientAuth = NoClientAuth()
    client_secret: str | None = None
    if not isinstance(endpoint_auth, NoClientAuth):
        client_auth = BasicAuth() if isinstance(endpoint_auth, NewBasicAuth) else PostAuth()
        client_secret = endpoint_auth.client_secret
    refresh = Refresh(
        client_id=params.refresh.client_id,
        token_endpoint=_url(params.refresh.token_endpoint, "refresh.token_endpoint"),
        token_endpoint_auth=client_auth,
        resource=params.refresh.resource,
        scope=params.refresh.scope or None,
    )
    return replace(auth, refresh=refresh), replace(
        secrets, refresh_token=params.refresh.refresh_token, client_secret=client_secret
    )


def patch_auth(
    auth: Auth, secrets: Secrets, params: AuthPatch, now: datetime
) -> tuple[Auth, Secrets]:
    """Raises: InvalidInput: another type, or a field that cannot be changed."""
    match auth, params:
        case StaticBearer(), StaticBearerPatch():
            return auth, replace(secrets, value=params.token or secrets.value)
        case McpOauth(), McpOauthPatch():
            expires = auth.expires_at
            if params.expires_at is not UNSET:
                expires = _require_future(params.expires_at, now)
            changed = replace(auth, expires_at=expires)
            new_secrets = replace(secrets, value=params.access_token or secrets.value)
            return (
                (changed, new_secrets)
                if params.refresh is None
                else _patch_refresh(changed, new_secrets, params.refresh)
            )
        case EnvironmentVariable(), EnvironmentVariablePatch():
            return _patch_variable(auth, params), replace(
                secrets, value=params.secret_value or secrets.value
            )
        case _:
            raise InvalidInput("auth.type: cannot be changed; create another credential")


def _patch_refresh(auth: McpOauth, secrets: Secrets, params: RefreshPatch) -> tuple[Auth, Secrets]:
    if auth.refresh is None:
        raise InvalidInput("auth.refresh: this credential has none; create another with refresh")
    client_secret = params.token_endpoint_auth and params.token_endpoint_auth.client_secret
    if params.token_endpoint_auth and isinstance(auth.refresh.token_endpoint_auth, NoClientAuth):
        raise InvalidInput("auth.refresh.token_endpoint_auth: this client has no secret")
    scope = auth.refresh.scope if params.scope is None else params.scope or None
    return replace(auth, refresh=replace(auth.refresh, scope=scope)), replace(
        secrets,
        refresh_token=params.refresh_token or secrets.refresh_token,
        client_secret=client_secret or secrets.client_secret,
    )


def _patch_variable(
    auth: EnvironmentVariable, params: EnvironmentVariablePatch
) -> EnvironmentVariable:
    header, body = params.injection_location.header, params.injection_location.body
    current = auth.injection_location
    return replace(
        auth,
        networking=auth.networking if params.networking is None else _networking(params.networking),
        injection_location=_injection(
            Injection(
                header=current.header if header is UNSET else header,
                body=current.body if body is UNSET else body,
            )
        ),
    )


def _injection(params: Injection) -> Injection:
    if not (params.header or params.body):
        raise InvalidInput("auth.injection_location: enable header, body or both")
    return params


def _networking(params: CredentialNetworking) -> CredentialNetworking:
    if isinstance(params, AllHosts):
        return params
    hosts = tuple(dict.fromkeys(_host(allowed_host) for allowed_host in params.allowed_hosts))
    return LimitedHosts(allowed_hosts=hosts)


def _host(text: str) -> str:
    host = text.lower()
    is_number = host.rpartition(".")[2].isdigit()
    if len(host) > 253 or not (_ADDRESS if is_number else _HOST).fullmatch(host):
        raise InvalidInput(
            "auth.networking.allowed_hosts: use names such as api.example.com, *.example.com for"
            " all its subdomains, or IPv4 addresses, without a scheme, port or path"
        )
    return host


def _url(text: str, field: str) -> str:
    """Check a URL. Errors do not contain it, since people put keys into URLs."""
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise InvalidInput(f"auth.{field}: not a URL") from None
    if not is_good or not text.isascii() or not text.isprintable() or " " in text:
        raise InvalidInput(
            f"auth.{field}: must begin with https:// (or http://) and a host, and contain only"
            " ASCII characters without spaces"
        )
    if "@" in parts.netloc or parts.fragment:
        raise InvalidInput(f"auth.{field}: must not contain a user name, a password or a fragment")
    return text


def _require_future(moment: datetime | None, now: datetime) -> datetime | None:
    if moment is not None and moment <= now:
        raise InvalidInput("auth.expires_at: must be in the future")
    return moment
