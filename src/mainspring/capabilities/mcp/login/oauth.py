"""OAuth for MCP servers: find the authorization server, register, get a person's consent, exchange
codes and refresh tokens. The caller provides storage, browser and connections."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import msgspec
from msgspec import UNSET, Struct

from mainspring.capabilities.mcp.login.oauth_documents import (
    DEVICE_GRANT,
    AuthorizationServer,
    ClientConfig,
    RegisteredClient,
    ResourceMetadata,
    TokenResponse,
    check_url,
    decode_document,
    error_code,
    error_of,
    is_resource,
    metadata_places,
    printable_error,
)
from mainspring.core.errors import McpFailed, NetworkRefused
from mainspring.core.ports import HttpReply

# Before it expires a token is refreshed, so that no request arrives too late.
_MARGIN_SECONDS = 60.0
# Ten years; longer ones are taken for a mistake.
_MAX_LIFETIME_SECONDS = 10 * 365 * 24 * 3600.0
_CHALLENGE_PARAM = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_T = TypeVar("_T", bound=Struct)


class FetchDocument(Protocol):
    """Sends a request, a GET if it has no body; it follows no redirect, and limits size and time.

    Raises: NetworkRefused."""

    async def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply: ...


class Browser(Protocol):
    """Where a person gives consent."""

    @property
    def redirect_uri(self) -> str: ...

    async def __call__(self, url: str) -> str:
        """Open the page; returns the URL that it redirects to.

        Raises: McpFailed: the person did not agree, or not in time.
        """
        ...


class TokenRefused(McpFailed):
    def __init__(self, text: str, error: str) -> None:
        super().__init__(text)
        self.error = error
        """The error code of the authorization server."""


class ServerTokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens that an authorization server granted for one MCP server."""

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


class PendingGrant(Struct, frozen=True, kw_only=True):
    """A grant that waits for a person's consent."""

    grant: ServerTokens
    verifier: str
    redirect_uri: str
    has_iss: bool
    """Whether the answer must name its issuer."""

    def __repr__(self) -> str:
        return f"<PendingGrant of {self.grant.issuer}>"


@dataclass(frozen=True, slots=True)
class Challenge:
    """The parameters of a `WWW-Authenticate` header."""

    resource_metadata: str | None = None
    scope: str | None = None
    error: str | None = None

    @classmethod
    def parse(cls, header: str) -> Challenge:
        params = {
            match[1].lower(): match[2] if match[2] is not None else match[3]
            for match in _CHALLENGE_PARAM.finditer(header)
        }
        return cls(params.get("resource_metadata"), params.get("scope"), params.get("error"))


Random: TypeAlias = Callable[[], str]
"""43 to 128 random characters that are safe in URLs."""
Now: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthClient:
    """An OAuth client for one MCP server. All methods raise McpFailed."""

    url: str
    """The URL of the server."""
    fetch: FetchDocument
    config: ClientConfig
    random: Random
    now: Now

    async def authorize(
        self, browser: Browser, challenge: Challenge, earlier: ServerTokens | None = None
    ) -> ServerTokens:
        """Get a person's consent for what the server asks for. Scopes of an `earlier` grant of the
        same authorization server are requested again."""
        states: list[str] = []

        def make_state(_: PendingGrant) -> str:
            states.append(self.random())
            return states[0]

        page, pending = await self.begin(challenge, browser.redirect_uri, make_state, earlier)
        return await self.finish(pending, await browser(page), states[0])

    async def begin(
        self,
        challenge: Challenge,
        redirect_uri: str,
        make_state: Callable[[PendingGrant], str],
        earlier: ServerTokens | None = None,
    ) -> tuple[str, PendingGrant]:
        """The URL where a person gives consent, and the state for `finish`. `make_state` creates
        the value that identifies the answer."""
        server, grant = await self.prepare(challenge, redirect_uri, earlier)
        pending = PendingGrant(
            grant=grant,
            verifier=self.random(),
            redirect_uri=redirect_uri,
            has_iss=server.authorization_response_iss_parameter_supported,
        )
        digest = hashlib.sha256(pending.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": grant.client_id,
            "redirect_uri": redirect_uri,
            "state": make_state(pending),
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": grant.resource,
            **({"scope": grant.scope} if grant.scope else {}),
        }
        join = "&" if urlsplit(server.authorization_endpoint).query else "?"
        return f"{server.authorization_endpoint}{join}{urlencode(query)}", pending

    async def finish(self, pending: PendingGrant, back: str, state: str) -> ServerTokens:
        """The grant with its token. `back`: the URL that the page redirected to."""
        form = {
            "grant_type": "authorization_code",
            "code": _code_of(back, state=state, pending=pending),
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.verifier,
        }
        return await self.exchange(pending.grant, form)

    async def prepare(
        self, challenge: Challenge, redirect_uri: str | None, earlier: ServerTokens | None
    ) -> tuple[AuthorizationServer, ServerTokens]:
        """The authorization server, and a grant without a token. Without a `redirect_uri`, for a
        device code."""
        resource = await self._resource(challenge)
        server = await self._server(self._issuer(resource))
        client = await self._client(server, redirect_uri)
        same = earlier is not None and earlier.issuer == server.issuer
        scope = self._scope(challenge, resource, server, earlier.scope if same and earlier else "")
        return server, ServerTokens(
            issuer=server.issuer,
            token_endpoint=server.token_endpoint,
            client_id=client.client_id,
            client_secret=client.client_secret,
            auth_method=_auth_method(client, server),
            access_token="",
            resource=self.url if resource is None else resource.resource,
            scope=scope,
        )

    async def refresh(self, grant: ServerTokens) -> ServerTokens:
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token or ""}
        return await self.exchange(grant, form)

    async def exchange(self, grant: ServerTokens, form: Mapping[str, str]) -> ServerTokens:
        """The grant with a token. Raises: TokenRefused: there is none."""
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
        reply = await self.send(grant.token_endpoint, headers, urlencode(body).encode())
        if reply.status != 200:
            raise TokenRefused(
                f"its authorization server grants no token ({error_of(reply)})", error_code(reply)
            )
        token = decode_document(reply.body, TokenResponse, "token")
        if not token.access_token or token.token_type.lower() != "bearer":
            raise McpFailed("its authorization server issued no bearer token")
        lifetime = token.expires_in
        is_limited = lifetime is not None and 0 < lifetime < _MAX_LIFETIME_SECONDS
        return msgspec.structs.replace(
            grant,
            access_token=token.access_token,
            refresh_token=token.refresh_token or grant.refresh_token,
            scope=token.scope if token.scope is not None else grant.scope,
            expires_at=self.now() + lifetime if is_limited and lifetime is not None else None,
        )

    async def _resource(self, challenge: Challenge) -> ResourceMetadata | None:
        """`None`: the server publishes no metadata, and is its own authorization server."""
        parts = urlsplit(self.url)
        root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
        path = parts.path.rstrip("/")
        places = [challenge.resource_metadata] if challenge.resource_metadata else []
        places += [f"{root}{path}", root] if path and not places else [root] if not places else []
        for place in places:
            if urlsplit(place).netloc != parts.netloc:
                raise McpFailed("its resource metadata is at another host")
            if (metadata := await self._get(place, ResourceMetadata)) is not None:
                if not is_resource(self.url, metadata.resource):
                    raise McpFailed(
                        f"its metadata is of another resource: {metadata.resource:.200}"
                    )
                return metadata
        return None

    def _issuer(self, resource: ResourceMetadata | None) -> str:
        if resource is None or not resource.authorization_servers:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc}"
        return resource.authorization_servers[0]

    async def _server(self, issuer: str) -> AuthorizationServer:
        own = self.config.auth_server_metadata_url
        for place in [own] if own else metadata_places(issuer):
            authorization_server = await self._get(place, AuthorizationServer)
            if authorization_server is None:
                continue
            if own is None and authorization_server.issuer != issuer:
                raise McpFailed(f"the metadata of {issuer:.200} belongs to another issuer")
            methods = authorization_server.code_challenge_methods_supported
            if methods is UNSET or "S256" not in methods:
                raise McpFailed("its authorization server does not support PKCE with S256")
            for endpoint in (
                authorization_server.authorization_endpoint,
                authorization_server.token_endpoint,
            ):
                check_url(endpoint)
            return authorization_server
        raise McpFailed(f"there is no authorization server at {issuer:.200}")

    async def _client(
        self, server: AuthorizationServer, redirect_uri: str | None
    ) -> RegisteredClient:
        config = self.config
        if config.client_id is not None:
            return RegisteredClient(config.client_id, config.client_secret)
        if config.client_metadata_url and server.client_id_metadata_document_supported:
            return RegisteredClient(config.client_metadata_url, None, "none")
        if server.registration_endpoint is None:
            raise McpFailed(
                "its authorization server registers no clients: get a client id there, and put it"
                " into the server's entry as oauth.clientId"
            )
        methods = server.token_endpoint_auth_methods_supported
        supported = ("client_secret_basic", "client_secret_post", "none")
        body = {
            "client_name": "Mainspring",
            "redirect_uris": [redirect_uri] if redirect_uri else [],
            "grant_types": [
                "authorization_code" if redirect_uri else DEVICE_GRANT,
                "refresh_token",
            ],
            "response_types": ["code"] if redirect_uri else [],
            "application_type": "native",
            "token_endpoint_auth_method": next((m for m in supported if m in methods), "none")
            if "none" not in methods
            else "none",
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        reply = await self.send(server.registration_endpoint, headers, msgspec.json.encode(body))
        if reply.status not in (200, 201):
            raise McpFailed(
                f"its authorization server refused to register this client ({error_of(reply)})"
            )
        return decode_document(reply.body, RegisteredClient, "registration")

    def _scope(
        self,
        challenge: Challenge,
        resource: ResourceMetadata | None,
        server: AuthorizationServer,
        earlier: str,
    ) -> str:
        scopes: Sequence[str]
        if challenge.scope is not None:
            scopes = challenge.scope.split()
        elif self.config.scopes:
            scopes = self.config.scopes
        else:
            scopes = () if resource is None else resource.scopes_supported or ()
        more = ["offline_access"] if "offline_access" in server.scopes_supported else []
        return " ".join(dict.fromkeys([*earlier.split(), *scopes, *more]))

    async def _get(self, url: str, type_: type[_T]) -> _T | None:
        reply = await self.send(url, {"Accept": "application/json"})
        if 300 <= reply.status < 400:
            raise McpFailed(f"{url:.200} redirects elsewhere; redirects are not followed")
        return decode_document(reply.body, type_, url) if reply.status == 200 else None

    async def send(
        self, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        check_url(url)
        try:
            return await self.fetch(url, headers, body)
        except NetworkRefused as error:
            raise McpFailed(f"its authorization does not work: {error}") from error


def _code_of(back: str, *, state: str, pending: PendingGrant) -> str:
    query = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
    if query.get("state") != state:
        raise McpFailed("the answer of the authorization server does not match the request (state)")
    issuer = query.get("iss")
    if (issuer is None and pending.has_iss) or (
        issuer is not None and issuer != pending.grant.issuer
    ):
        raise McpFailed("the answer is from another authorization server (iss)")
    if "error" in query:
        raise McpFailed(f"not authorized: {printable_error(query['error'])}")
    if not query.get("code"):
        raise McpFailed("the answer of the authorization server has no code")
    return query["code"]


def _auth_method(client: RegisteredClient, server: AuthorizationServer) -> str:
    if client.token_endpoint_auth_method is not None:
        return client.token_endpoint_auth_method
    if client.client_secret is None:
        return "none"
    methods = server.token_endpoint_auth_methods_supported
    supported = ("client_secret_basic", "client_secret_post")
    return next((method for method in supported if method in methods), supported[0])
