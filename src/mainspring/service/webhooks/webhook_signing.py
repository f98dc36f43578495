"""Signatures of webhooks: creating ours and verifying those of other senders. Pure.

Standard Webhooks (https://www.standardwebhooks.com): HMAC-SHA256 over `id.timestamp.body`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from mainspring.core.errors import InvalidInput

SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32  # Standard Webhooks asks for 24 to 64
TOLERANCE_SECONDS = 300
"""How far a timestamp may be from our clock."""

HeaderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class StandardWebhooksSignature(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="standard_webhooks"
):
    """`webhook-id`, `webhook-timestamp`, `webhook-signature`."""


class GitHubSignature(Struct, frozen=True, kw_only=True, tag_field="type", tag="github"):
    """`X-Hub-Signature-256`. It signs no timestamp: repeats are recognized by their body."""


class SlackSignature(Struct, frozen=True, kw_only=True, tag_field="type", tag="slack"):
    """`X-Slack-Signature`, version 0, and `X-Slack-Request-Timestamp`."""


class HmacSignature(Struct, frozen=True, kw_only=True, tag_field="type", tag="hmac"):
    """HMAC-SHA256 of the body in a header of any name."""

    header: HeaderName
    prefix: Annotated[str, Meta(max_length=32)] = ""
    """The prefix of the signature, such as `sha256=`."""
    encoding: Literal["hex", "base64"] = "hex"
    timestamp_header: HeaderName | None = None
    """Seconds since 1970; `timestamp.body` is then signed."""


SignatureScheme: TypeAlias = (
    StandardWebhooksSignature | GitHubSignature | SlackSignature | HmacSignature
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request from outside."""

    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


def new_secret(random: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(random).decode()


def secret_key(secret: str) -> bytes:
    """The key of a secret in the format of Standard Webhooks.

    Raises: InvalidInput: it is not in this format.
    """
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("secret: must be whsec_ followed by base64") from error
    if len(key) < 16:
        raise InvalidInput("secret: must have at least 16 bytes, encoded as base64")
    return key


def signed_headers(
    id_: str, body: bytes, *, secrets: Sequence[str], now: datetime
) -> dict[str, str]:
    """Headers with a signature for each secret: a receiver needs one of them."""
    stamp = str(int(now.timestamp()))
    content = _standard_content(id_, stamp, body)
    signatures = (
        base64.b64encode(_mac(secret_key(secret), content)).decode() for secret in secrets
    )
    return {
        "webhook-id": id_,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def is_genuine(
    scheme: SignatureScheme, request: SignedRequest, *, secret: str, now: datetime
) -> bool:
    """Whether a request is signed with the secret, and recently if it has a timestamp.

    Takes the same time for a wrong signature as for a right one.
    """
    headers, body = request.headers, request.body
    match scheme:
        case StandardWebhooksSignature():
            stamp = headers.get("webhook-timestamp", "")
            content = _standard_content(headers.get("webhook-id", ""), stamp, body)
            expected = _mac(secret_key(secret), content)
            header_values = headers.get("webhook-signature", "").split(" ")[:8]
            signatures = [
                _base64(item.removeprefix("v1,")) for item in header_values if item[:3] == "v1,"
            ]
            is_known = bool(headers.get("webhook-id"))
            return _matches(expected, signatures) and is_known and _is_recent(stamp, now)
        case GitHubSignature():
            header_values = headers.get("x-hub-signature-256", "")
            return _matches(_mac(secret.encode(), body), [_hex(header_values, "sha256=")])
        case SlackSignature():
            stamp = headers.get("x-slack-request-timestamp", "")
            expected = _mac(secret.encode(), b"v0:" + stamp.encode() + b":" + body)
            header_values = headers.get("x-slack-signature", "")
            return _matches(expected, [_hex(header_values, "v0=")]) and _is_recent(stamp, now)
        case HmacSignature():
            return _is_genuine_hmac(scheme, request, secret=secret, now=now)


def delivery_key(scheme: SignatureScheme, request: SignedRequest, parsed: Mapping[str, Any]) -> str:
    """Identifies a delivery by signed parts only, so that an old one cannot be made to look new.
    Retries have the same key."""
    match scheme:
        case StandardWebhooksSignature():
            return request.headers["webhook-id"]
        case SlackSignature() if isinstance(parsed.get("event_id"), str):
            return parsed["event_id"]
        case HmacSignature(timestamp_header=str(name)):
            stamp = request.headers.get(name.lower(), "")
            return f"{stamp}.{hashlib.sha256(request.body).hexdigest()}"
        case _:
            return hashlib.sha256(request.body).hexdigest()


def _is_genuine_hmac(
    scheme: HmacSignature, request: SignedRequest, *, secret: str, now: datetime
) -> bool:
    sent = request.headers.get(scheme.header.lower(), "")
    if scheme.encoding == "hex":
        signature = _hex(sent, scheme.prefix)
    else:
        has_prefix = sent.startswith(scheme.prefix)
        signature = _base64(sent.removeprefix(scheme.prefix)) if has_prefix else b""
    if scheme.timestamp_header is None:
        return _matches(_mac(secret.encode(), request.body), [signature])
    stamp = request.headers.get(scheme.timestamp_header.lower(), "")
    expected = _mac(secret.encode(), stamp.encode() + b"." + request.body)
    return _matches(expected, [signature]) and _is_recent(stamp, now)


def _standard_content(id_: str, stamp: str, body: bytes) -> bytes:
    return f"{id_}.{stamp}.".encode() + body


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def _matches(expected: bytes, signatures: Iterable[bytes]) -> bool:
    return any(
        [hmac.compare_digest(expected, item) for item in signatures]
    )  # a list: all are compared


def _is_recent(stamp: str, now: datetime) -> bool:
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        return False
    return abs(now.timestamp() - int(stamp)) <= TOLERANCE_SECONDS


def _hex(text: str, prefix: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix(prefix)) if text.startswith(prefix) else b""
    except ValueError:
        return b""


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
