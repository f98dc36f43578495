"""Checks with the MCP server whether an OAuth credential still works."""

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
    SendTokenRequest,
    redacted_response,
)

ValidationStatus: TypeAlias = Literal["valid", "invalid", "unknown"]
_UNAUTHORIZED = 401  # HTTP's status (RFC 9110): the credential is not accepted
_FORBIDDEN = 403  # HTTP's status (RFC 9110)
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
    """Always `initialize`."""
    reply: HttpReply | None
    """`None`: the server did not answer."""


class Probe(Protocol):
    async def __call__(self, url: str, token: str) -> ProbeFailure | None:
        """Initialize a session with an MCP server; `None` if it accepts the token."""
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
            return ProbeFailure(method="initialize", reply=None)
        return None if reply.status == 200 else ProbeFailure(method="initialize", reply=reply)


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
class CredentialValidator:
    credentials: Credentials
    probe: Probe | None = None
    """Without it the status is always `unknown`."""
    refresher: Refresher | None = None
    clock: Clock = clocks.now

    async def validate(
        self, tenant: str, vault_id: str, credential_id: str
    ) -> CredentialValidation:
        """Raises: NotFound; InvalidInput: it is archived, or not an OAuth credential."""
        unsealed = await self.credentials.unseal(tenant, vault_id, credential_id)
        auth = unsealed.credential.auth
        if not isinstance(auth, McpOauth):
            type_ = auth.__struct_config__.tag
            raise InvalidInput(f"the credential {credential_id} is {type_}, not mcp_oauth")
        status, probe, refresh = await self._check(unsealed, auth)
        return CredentialValidation(
            credential_id=credential_id,
            vault_id=vault_id,
            status=status,
            has_refresh_token=auth.refresh is not None,
            validated_at=self.clock(),
            mcp_probe=probe,
            refresh=refresh,
        )

    async def _check(
        self, unsealed: UnsealedCredential, auth: McpOauth
    ) -> tuple[ValidationStatus, McpProbe | None, RefreshAttempt | None]:
        if self.probe is None:
            return "unknown", None, None
        failure = await self.probe(auth.mcp_server_url, unsealed.secrets.value)
        if failure is None:
            return "valid", None, None
        probe = _probe_result(failure, unsealed)
        if failure.reply is None or failure.reply.status != _UNAUTHORIZED:
            return _status(failure), probe, None
        if auth.refresh is None:
            return "invalid", probe, RefreshAttempt(status="no_refresh_token")
        if self.refresher is None:
            return "invalid", probe, None
        result = await self.refresher.refresh(unsealed)
        attempt = RefreshAttempt(status=result.outcome, http_response=result.http_response)
        if result.outcome != "succeeded":
            return "invalid" if result.is_final else "unknown", probe, attempt
        failure = await self.probe(auth.mcp_server_url, result.unsealed.secrets.value)
        if failure is None:
            return "valid", None, attempt
        return _status(failure), _probe_result(failure, result.unsealed), attempt


def _status(failure: ProbeFailure) -> ValidationStatus:
    """The status of a token: it is invalid only if the server rejected it, not if the request
    failed otherwise."""
    is_judged = failure.reply is not None and failure.reply.status in (_UNAUTHORIZED, _FORBIDDEN)
    return "invalid" if is_judged else "unknown"


def _probe_result(failure: ProbeFailure, unsealed: UnsealedCredential) -> McpProbe:
    response = failure.reply and redacted_response(failure.reply, unsealed.secrets)
    return McpProbe(method=failure.method, http_response=response)
