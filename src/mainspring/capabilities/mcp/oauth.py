"""OAuth as MCP servers ask for it: find the authorization server, register, have a person agree,
exchange codes and refresh tokens. Storage, browsers and connections are the caller's.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mainspring.core.errors import McpFailed, NetworkRefused
from mainspring.core.ports import HttpReply

_MARGIN_SECONDS = 60.0
_MAX_LIFETIME_SECONDS = 10 * 365 * 24 * 3600.0
_CHALLENGE_PARAM = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_T = TypeVar("_T", bound=Struct)


class Fetch(Protocol):
    """Sends a request, without a body a GET; it follows no redirect, and bounds size and time.

    Raises: NetworkRefused.
    """

    async def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply: ...


class Browser(Protocol):
    """Where a person agrees."""

    @property
    def redirect_uri(self) -> str: ...

    async def __call__(self, url: str) -> str:
        """Open the page; the address that it leads back to.

        Raises: McpFailed: the person did not agree, or not in time.
        """
        ...


class ClientConfig(Struct, frozen=True, kw_only=True):
    """What the entry of a server says about OAuth."""

    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """Of a Client ID Metadata Document."""
    auth_server_metadata_url: str | None = None
    scopes: tuple[str, ...] = ()


class Grant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one authorization server has granted for one MCP server."""

    issuer: str
    token_endpoint: str
    client_id: str
    access_token: str
    resource: str
    client_secret: str | None = None
    auth_method: str = "none"
    refresh_token: str | None = None
    scope: str = ""
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"<Grant of {self.issuer}>"

    def is_fresh(self, now: float) -> bool:
        return self.expires_at is None or now < self.expires_at - _MARGIN_SECONDS


class _Resource(Struct, frozen=True):
    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None


class _Server(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] | UnsetType = UNSET
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class _Client(Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


class _Token(Struct, frozen=True):
    access_token: str
    refresh_token: str | None = None
    expires_in: float | None = None
    scope: str | None = None
    token_type: str = "Bearer"


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a `WWW-Authenticate` header asks for."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None

    @classmethod
    def parse(cls, header: str) -> Challenge:
        found = {
            match[1].lower(): match[2] if match[2] is not None else match[3]
            for match in _CHALLENGE_PARAM.finditer(header)
        }
        return cls(found.get("resource_metadata"), found.get("scope"), found.get("error"))


Random: TypeAlias = Callable[[], str]
"""43 to 128 unguessable characters of URLs."""
Now: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """For one MCP server. Raises: McpFailed, everywhere."""

    url: str
    """Of the server."""
    fetch: Fetch
    config: ClientConfig
    random: Random
    now: Now

    async def authorize(
        self, browser: Browser, challenge: Challenge, earlier: Grant | None = None
    ) -> Grant:
        """Have a person agree to what the server asks for. Scopes of an `earlier` grant of the same
        authorization server are asked for again."""
        resource = await self._resource(challenge)
        issuer = self._issuer(resource)
        server = await self._server(issuer)
        client = await self._client(server, browser.redirect_uri)
        same = earlier is not None and earlier.issuer == server.issuer
        scope = self._scope(challenge, resource, server, earlier.scope if same and earlier else "")
        target = self.url if resource is None else resource.resource
        state, verifier = self.random(), self.random()
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": browser.redirect_uri,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": target,
            **({"scope": scope} if scope else {}),
        }
        join = "&" if urlsplit(server.authorization_endpoint).query else "?"
        back = await browser(f"{server.authorization_endpoint}{join}{urlencode(query)}")
        code = _code_of(back, state=state, server=server)
        method = _auth_method(client, server)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": browser.redirect_uri,
            "code_verifier": verifier,
        }
        grant = Grant(
            issuer=server.issuer,
            token_endpoint=server.token_endpoint,
            client_id=client.client_id,
            client_secret=client.client_secret,
            auth_method=method,
            access_token="",
            resource=target,
            scope=scope,
        )
        return await self._exchange(grant, form)

    async def refresh(self, grant: Grant) -> Grant:
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token or ""}
        return await self._exchange(grant, form)

    async def _exchange(self, grant: Grant, form: Mapping[str, str]) -> Grant:
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        body = {**form, "resource": grant.resource}
        secret = grant.client_secret or ""
        if grant.auth_method == "client_secret_basic":
            login = f"{quote_plus(grant.client_id)}:{quote_plus(secret)}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        else:
            body["client_id"] = grant.client_id
        if grant.auth_method == "client_secret_post":
            body["client_secret"] = secret
        reply = await self._send(grant.token_endpoint, headers, urlencode(body).encode())
        if reply.status != 200:
            raise McpFailed(f"its authorization server grants no token ({_error_of(reply)})")
        token = _decode(reply.body, _Token, "token")
        if not token.access_token or token.token_type.lower() != "bearer":
            raise McpFailed("its authorization server grants no bearer token")
        lifetime = token.expires_in
        is_limited = lifetime is not None and 0 < lifetime < _MAX_LIFETIME_SECONDS
        return msgspec.structs.replace(
            grant,
            access_token=token.access_token,
            refresh_token=token.refresh_token or grant.refresh_token,
            scope=token.scope if token.scope is not None else grant.scope,
            expires_at=self.now() + lifetime if is_limited and lifetime is not None else None,
        )

    async def _resource(self, challenge: Challenge) -> _Resource | None:
        """`None`: the server publishes nothing, and is its own authorization server."""
        parts = urlsplit(self.url)
        root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
        path = parts.path.rstrip("/")
        places = [challenge.resource_metadata] if challenge.resource_metadata else []
        places += [f"{root}{path}", root] if path and not places else [root] if not places else []
        for place in places:
            if urlsplit(place).netloc != parts.netloc:
                raise McpFailed("its resource metadata is at another host")
            if (found := await self._get(place, _Resource)) is not None:
                if not _is_resource(self.url, found.resource):
                    raise McpFailed(f"its metadata is of another resource: {found.resource:.200}")
                return found
        return None

    def _issuer(self, resource: _Resource | None) -> str:
        if resource is None or not resource.authorization_servers:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc}"
        return resource.authorization_servers[0]

    async def _server(self, issuer: str) -> _Server:
        own = self.config.auth_server_metadata_url
        for place in [own] if own else _metadata_places(issuer):
            found = await self._get(place, _Server)
            if found is None:
                continue
            if own is None and found.issuer != issuer:
                raise McpFailed(f"the metadata of {issuer:.200} is of another issuer")
            methods = found.code_challenge_methods_supported
            if methods is UNSET or "S256" not in methods:
                raise McpFailed("its authorization server does not support PKCE with S256")
            for endpoint in (found.authorization_endpoint, found.token_endpoint):
                _check_url(endpoint)
            return found
        raise McpFailed(f"there is no authorization server at {issuer:.200}")

    async def _client(self, server: _Server, redirect_uri: str) -> _Client:
        config = self.config
        if config.client_id is not None:
            return _Client(config.client_id, config.client_secret)
        if config.client_metadata_url and server.client_id_metadata_document_supported:
            return _Client(config.client_metadata_url, None, "none")
        if server.registration_endpoint is None:
            raise McpFailed(
                "its authorization server registers no clients: get a client id there, and put it"
                " into the server's entry as oauth.clientId"
            )
        methods = server.token_endpoint_auth_methods_supported
        known = ("client_secret_basic", "client_secret_post", "none")
        body = {
            "client_name": "Mainspring",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": "native",
            "token_endpoint_auth_method": next((m for m in known if m in methods), "none")
            if "none" not in methods
            else "none",
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        reply = await self._send(server.registration_endpoint, headers, msgspec.json.encode(body))
        if reply.status not in (200, 201):
            raise McpFailed(f"its authorization server refuses to register us ({_error_of(reply)})")
        return _decode(reply.body, _Client, "registration")

    def _scope(
        self, challenge: Challenge, resource: _Resource | None, server: _Server, earlier: str
    ) -> str:
        asked: Sequence[str]
        if challenge.scope is not None:
            asked = challenge.scope.split()
        elif self.config.scopes:
            asked = self.config.scopes
        else:
            asked = () if resource is None else resource.scopes_supported or ()
        more = ["offline_access"] if "offline_access" in server.scopes_supported else []
        return " ".join(dict.fromkeys([*earlier.split(), *asked, *more]))

    async def _get(self, url: str, type_: type[_T]) -> _T | None:
        reply = await self._send(url, {"Accept": "application/json"})
        if 300 <= reply.status < 400:
            raise McpFailed(f"{url:.200} redirects elsewhere; redirects are not followed")
        return _decode(reply.body, type_, url) if reply.status == 200 else None

    async def _send(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        _check_url(url)
        try:
            return await self.fetch(url, headers, body)
        except NetworkRefused as error:
            raise McpFailed(f"its authorization does not work: {error}") from error


def _metadata_places(issuer: str) -> list[str]:
    parts = urlsplit(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}/.well-known", parts.path.rstrip("/")
    if not path:
        return [f"{root}/oauth-authorization-server", f"{root}/openid-configuration"]
    return [
        f"{root}/oauth-authorization-server{path}",
        f"{root}/openid-configuration{path}",
        f"{parts.scheme}://{parts.netloc}{path}/.well-known/openid-configuration",
    ]


def _is_resource(url: str, resource: str) -> bool:
    """Whether a resource is the server, or has it below."""
    one, other = urlsplit(url), urlsplit(resource)
    if (one.scheme, one.netloc.lower()) != (other.scheme, other.netloc.lower()):
        return False
    path, above = one.path.rstrip("/"), other.path.rstrip("/")
    return path == above or path.startswith(f"{above}/")


def _code_of(back: str, *, state: str, server: _Server) -> str:
    found = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    if found.get("state") != state:
        raise McpFailed("the answer of the authorization server is not to our question (state)")
    issuer = found.get("iss")
    is_required = server.authorization_response_iss_parameter_supported
    if (issuer is None and is_required) or (issuer is not None and issuer != server.issuer):
        raise McpFailed("the answer is from another authorization server (iss)")
    if "error" in found:
        raise McpFailed(f"not authorized: {found['error']:.100}")
    if not found.get("code"):
        raise McpFailed("the answer of the authorization server has no code")
    return found["code"]


def _auth_method(client: _Client, server: _Server) -> str:
    if client.token_endpoint_auth_method is not None:
        return client.token_endpoint_auth_method
    if client.client_secret is None:
        return "none"
    methods = server.token_endpoint_auth_methods_supported
    known = ("client_secret_basic", "client_secret_post")
    return next((method for method in known if method in methods), known[0])


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise McpFailed("an address of its authorization is not a URL") from error
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not is_safe or not host or parts.username is not None:
        raise McpFailed(f"an address of its authorization is not https: {parts.scheme}://{host}")


def _decode(content: bytes, type_: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(content, type=type_, strict=False)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise McpFailed(f"{what:.200}: not what it should be") from error


def _error_of(reply: HttpReply) -> str:
    """The error's code; the rest may repeat secrets."""
    try:
        fields = msgspec.json.decode(reply.body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeError):
        return f"HTTP {reply.status}"
    error = fields.get("error")
    is_code = isinstance(error, str) and re.fullmatch(r"[a-z_]{1,60}", error)
    return f"HTTP {reply.status}, {error}" if is_code else f"HTTP {reply.status}"
