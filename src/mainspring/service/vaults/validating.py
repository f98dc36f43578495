"""Whether an OAuth credential still works: asked of the MCP server that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput
from mainspring.service.vaults.credential_auth import McpOauth
from mainspring.service.vaults.credentials import Credentials, Opened
from mainspring.service.vaults.refreshing import Exchange, Outcome, Refresher
from mainspring.service.vaults.token_endpoint import HttpResponse, Reply, shown

Status: TypeAlias = Literal["valid", "invalid", "unknown"]
_UNAUTHORIZED = 401
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The step of a probe that failed."""

    method: str
    """`initialize`."""
    reply: Reply | None
    """`None`: the server did not answer."""


class Probe(Protocol):
    async def __call__(self, url: str, token: str) -> Failed | None:
        """Greet an MCP server with a token; `None` if it is content."""
        ...


class McpProbe(Struct, frozen=True, kw_only=True):
    method: str
    http_response: HttpResponse | None = None


class RefreshTried(Struct, frozen=True, kw_only=True):
    status: Outcome
    http_response: HttpResponse | None = None


class Validation(Struct, frozen=True, kw_only=True):
    credential_id: str
    vault_id: str
    status: Status
    has_refresh_token: bool
    validated_at: datetime
    mcp_probe: McpProbe | None = None
    refresh: RefreshTried | None = None
    type: Literal["vault_credential_validation"] = "vault_credential_validation"


@dataclass(frozen=True, slots=True)
class _Verdict:
    status: Status
    probe: McpProbe | None = None
    refresh: RefreshTried | None = None


class Validator:
    def __init__(
        self,
        credentials: Credentials,
        *,
        probe: Probe | None = None,
        refresher: Refresher | None = None,
        clock: Clock = clocks.now,
    ) -> None:
        """Without a `probe` nobody can be asked: what is asked about is `unknown`."""
        self._credentials = credentials
        self._probe = probe
        self._refresher = refresher
        self._clock = clock

    async def validate(self, tenant: str, vault_id: str, credential_id: str) -> Validation:
        """Raises: NotFound; InvalidInput: it is archived, or no OAuth credential."""
        opened = await self._credentials.opened(tenant, vault_id, credential_id)
        auth = opened.credential.auth
        if not isinstance(auth, McpOauth):
            raise InvalidInput(f"the credential {credential_id} is {_type(auth)}, not mcp_oauth")
        verdict = await self._verdict(opened, auth)
        return Validation(
            credential_id=credential_id,
            vault_id=vault_id,
            status=verdict.status,
            has_refresh_token=auth.refresh is not None,
            validated_at=self._clock(),
            mcp_probe=verdict.probe,
            refresh=verdict.refresh,
        )

    async def _verdict(self, opened: Opened, auth: McpOauth) -> _Verdict:
        if self._probe is None:
            return _Verdict("unknown")
        failed = await self._probe(auth.mcp_server_url, opened.secrets.value)
        if failed is None:
            return _Verdict("valid")
        told = _told(failed, opened)
        if failed.reply is None or failed.reply.status != _UNAUTHORIZED:
            return _Verdict(_status(failed), told)
        if auth.refresh is None:
            return _Verdict("invalid", told, RefreshTried(status="no_refresh_token"))
        if self._refresher is None:
            return _Verdict("invalid", told)
        exchange = await self._refresher.refresh(opened)
        tried = RefreshTried(status=exchange.outcome, http_response=exchange.http_response)
        if exchange.outcome != "succeeded":
            return _Verdict(_refused(exchange), told, tried)
        failed = await self._probe(auth.mcp_server_url, exchange.opened.secrets.value)
        if failed is None:
            return _Verdict("valid", refresh=tried)
        return _Verdict(_status(failed), _told(failed, exchange.opened), tried)


def _status(failed: Failed) -> Status:
    """Of a probe that failed: only a server that judged the token says something about it."""
    if failed.reply is not None and failed.reply.status in (_UNAUTHORIZED, _FORBIDDEN):
        return "invalid"
    return "unknown"


def _refused(exchange: Exchange) -> Status:
    return "invalid" if exchange.is_final else "unknown"


def _told(failed: Failed, opened: Opened) -> McpProbe:
    response = None if failed.reply is None else shown(failed.reply, opened.secrets)
    return McpProbe(method=failed.method, http_response=response)


def _type(auth: Struct) -> str:
    return str(auth.__struct_config__.tag)
