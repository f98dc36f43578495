"""Whether an OAuth credential still works: asked of the MCP server that it is for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from mainspring.core import clock as clocks
from mainspring.core.clock import Clock
from mainspring.core.errors import InvalidInput, NetworkRefused
from mainspring.core.ports import HttpPost, HttpReply
from mainspring.service.vaults.credential_auth import McpOauth
from mainspring.service.vaults.credentials import Credentials, UnsealedCredential
from mainspring.service.vaults.token_refresh import (
    HttpResponse,
    Refresher,
    RefreshOutcome,
    RefreshResult,
    SendTokenRequest,
    redacted_response,
)

ValidationStatus: TypeAlias = Literal["valid", "invalid", "unknown"]
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_MCP_PROTOCOL = "2025-06-18"
_MCP_INITIALIZE = msgspec.json.encode(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": _MCP_PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "mainspring", "version": "1"},
        },
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFailure:
    """The step of a probe that failed."""

    method: str
    """`initialize`."""
    http_reply: HttpReply | None
    """`None`: the server did not answer."""


class Probe(Protocol):
    async def __call__(self, url: str, token: str) -> ProbeFailure | None:
        """Greet an MCP server with a token; `None` if it is content."""
        ...


class McpInitializeProbe:
    """A `Probe` that sends an MCP server the first request of every client."""

    def __init__(self, send: SendTokenRequest) -> None:
        self._send = send

    async def __call__(self, url: str, token: str) -> ProbeFailure | None:
        headers = (
            ("authorization", f"Bearer {token}"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", _MCP_PROTOCOL),
        )
        try:
            reply = await self._send(HttpPost(url=url, headers=headers, body=_MCP_INITIALIZE))
        except NetworkRefused:
            return ProbeFailure(method="initialize", http_reply=None)
        return None if reply.status == 200 else ProbeFailure(method="initialize", http_reply=reply)


class McpProbe(Struct, frozen=True, kw_only=True):
    method: str
    http_response: HttpResponse | None = None


class RefreshAttempt(Struct, frozen=True, kw_only=True):
    status: RefreshOutcome
    http_response: HttpResponse | None = None


class CredentialValidation(Struct, frozen=True, kw_only=True):
    credential_id: str
    vault_id: str
    status: ValidationStatus
    has_refresh_token: bool
    validated_at: datetime
    mcp_probe: McpProbe | None = None
    refresh: RefreshAttempt | None = None
    type: Literal["vault_credential_validation"] = "vault_credential_validation"


@dataclass(frozen=True, slots=True)
class _Verdict:
    validation_status: ValidationStatus
    probe: McpProbe | None = None
    refresh: RefreshAttempt | None = None


class CredentialValidator:
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

    async def validate(
        self, tenant: str, vault_id: str, credential_id: str
    ) -> CredentialValidation:
        """Raises: NotFound; InvalidInput: it is archived, or no OAuth credential."""
        opened = await self._credentials.unseal(tenant, vault_id, credential_id)
        auth = opened.vault_credential.auth
        if not isinstance(auth, McpOauth):
            raise InvalidInput(
                f"the credential {credential_id} is {_auth_type(auth)}, not mcp_oauth"
            )
        verdict = await self._verdict(opened, auth)
        return CredentialValidation(
            credential_id=credential_id,
            vault_id=vault_id,
            status=verdict.validation_status,
            has_refresh_token=auth.refresh is not None,
            validated_at=self._clock(),
            mcp_probe=verdict.probe,
            refresh=verdict.refresh,
        )

    async def _verdict(self, credential: UnsealedCredential, auth: McpOauth) -> _Verdict:
        if self._probe is None:
            return _Verdict("unknown")
        failed = await self._probe(auth.mcp_server_url, credential.secrets.value)
        if failed is None:
            return _Verdict("valid")
        told = _probe_result(failed, credential)
        if failed.http_reply is None or failed.http_reply.status != _UNAUTHORIZED:
            return _Verdict(_status(failed), told)
        if auth.refresh is None:
            return _Verdict("invalid", told, RefreshAttempt(status="no_refresh_token"))
        if self._refresher is None:
            return _Verdict("invalid", told)
        exchange = await self._refresher.refresh(credential)
        tried = RefreshAttempt(
            status=exchange.refresh_outcome, http_response=exchange.http_response
        )
        if exchange.refresh_outcome != "succeeded":
            return _Verdict(_refresh_attempt(exchange), told, tried)
        failed = await self._probe(auth.mcp_server_url, exchange.unsealed_credential.secrets.value)
        if failed is None:
            return _Verdict("valid", refresh=tried)
        return _Verdict(_status(failed), _probe_result(failed, exchange.unsealed_credential), tried)


def _status(probe_failure: ProbeFailure) -> ValidationStatus:
    """Of a probe that failed: only a server that judged the token says something about it."""
    if probe_failure.http_reply is not None and probe_failure.http_reply.status in (
        _UNAUTHORIZED,
        _FORBIDDEN,
    ):
        return "invalid"
    return "unknown"


def _refresh_attempt(result: RefreshResult) -> ValidationStatus:
    return "invalid" if result.is_final else "unknown"


def _probe_result(probe_failure: ProbeFailure, credential: UnsealedCredential) -> McpProbe:
    response = (
        None
        if probe_failure.http_reply is None
        else redacted_response(probe_failure.http_reply, credential.secrets)
    )
    return McpProbe(method=probe_failure.method, http_response=response)


def _auth_type(auth: Struct) -> str:
    return str(auth.__struct_config__.tag)
