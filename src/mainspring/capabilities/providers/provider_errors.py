"""Classifies and words the errors of providers, for all adapters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

import msgspec
from msgspec import Struct

from mainspring.core.clock import Clock
from mainspring.core.errors import ProviderFailed, ProviderFailure

_EXCERPT = 400  # characters of a provider's message in an error
_BY_STATUS: dict[int, ProviderFailure] = {
    401: "unauthorized",
    402: "billing",
    403: "forbidden",
    404: "not_found",
    408: "timeout",
    409: "server",
    413: "prompt_too_long",
    425: "server",
    429: "rate_limited",
    503: "overloaded",
    529: "overloaded",
}
_BY_CODE: dict[str, ProviderFailure] = {
    "overloaded_error": "overloaded",
    "service_unavailable_error": "overloaded",
    "unavailable": "overloaded",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "resource_exhausted": "rate_limited",
    "api_error": "server",
    "server_error": "server",
    "internal": "server",
    "internal_server_error": "server",
    "timeout_error": "timeout",
    "deadline_exceeded": "timeout",
    "authentication_error": "unauthorized",
    "invalid_api_key": "unauthorized",
    "unauthenticated": "unauthorized",
    "permission_error": "forbidden",
    "permission_denied": "forbidden",
    "not_found_error": "not_found",
    "model_not_found": "not_found",
    "billing_error": "billing",
    "insufficient_quota": "billing",
    "request_too_large": "prompt_too_long",
    "context_length_exceeded": "prompt_too_long",
    "exceed_context_size_error": "prompt_too_long",
    "invalid_request_error": "invalid_request",
    "invalid_prompt": "invalid_request",
}
# Providers that answer everything with 400 give the reason only as text. The first match counts.
_BY_WORDS: tuple[tuple[str, ProviderFailure], ...] = (
    ("image exceeds", "media_too_large"),
    ("image dimensions", "media_too_large"),
    ("too many images", "media_too_large"),
    ("pdf pages", "media_too_large"),
    ("pdf is too large", "media_too_large"),
    ("prompt is too long", "prompt_too_long"),
    ("exceed context limit", "prompt_too_long"),
    ("maximum context length", "prompt_too_long"),
    ("context length exceeded", "prompt_too_long"),
    ("context window", "prompt_too_long"),
    ("available context size", "prompt_too_long"),
    ("input token count", "prompt_too_long"),
    ("too many tokens", "prompt_too_long"),
    ("credit balance", "billing"),
    ("api key not valid", "unauthorized"),
    ("incorrect api key", "unauthorized"),
)


class ProviderErrorBody(Struct, frozen=True, kw_only=True):
    """An error as the provider words it."""

    message: str
    codes: tuple[str, ...] = ()


def parse_error(error: object) -> ProviderErrorBody:
    """Parse an error in any shape: an object, its wrapper, a list of one, or plain text."""
    match error:
        case list() if error:
            return parse_error(cast(list[object], error)[0])
        case dict():
            fields = cast(dict[str, object], error)
            if inner := fields.get("error"):
                return parse_error(inner)
            codes = (fields.get(key) for key in ("code", "status", "type"))
            words = fields.get("message") or fields.get("detail") or ""
            return ProviderErrorBody(
                message=words if isinstance(words, str) else _json(words),
                codes=tuple(str(code).lower() for code in codes if code is not None),
            )
        case str():
            return ProviderErrorBody(message=error)
        case _:
            return ProviderErrorBody(message=_json(error))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def parse_error_body(body: bytes) -> ProviderErrorBody:
    try:
        return parse_error(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return ProviderErrorBody(message=" ".join(body.decode(errors="replace").split()))


def classify_failure(body: ProviderErrorBody, status: int | None = None) -> ProviderFailure:
    if status not in (401, 403, 404, 529):
        words = body.message.lower()
        for phrase, kind in _BY_WORDS:
            if phrase in words:
                return kind
    if status in (401, 403, 404, 413, 529):
        return _BY_STATUS[status]
    for code in body.codes:
        if code in _BY_CODE and _BY_CODE[code] != "invalid_request":
            return _BY_CODE[code]
        if status is None and code.isdecimal():
            return _classify_status(int(code))
    return "server" if status is None and not body.codes else _classify_status(status or 400)


def _classify_status(status: int) -> ProviderFailure:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return "server" if status >= 500 else "invalid_request"


def stream_failure(provider: str, error: object, *, secret: str) -> ProviderFailed:
    """An error inside a response that had begun successfully."""
    parsed = parse_error(error)
    codes = f" ({excerpt(', '.join(parsed.codes), secret=secret)})" if parsed.codes else ""
    what = f"the stream broke off: {excerpt(parsed.message, secret=secret)}{codes}"
    return ProviderFailed(provider, classify_failure(parsed), what)


def status_failure(
    provider: str, status: int, body: bytes, *, secret: str, retry_after: float | None
) -> ProviderFailed:
    parsed = parse_error_body(body)
    if 300 <= status < 400:
        what = f"HTTP {status}: redirected; requests with a key do not follow redirects"
        return ProviderFailed(provider, "invalid_request", what)
    what = f"HTTP {status}: {excerpt(parsed.message, secret=secret) or 'no reason given'}"
    return ProviderFailed(
        provider, classify_failure(parsed, status), what, retry_after_seconds=retry_after
    )


def excerpt(text: str, *, secret: str = "") -> str:
    if secret:
        text = text.replace(secret, "[key]")
    text = "".join(letter if letter.isprintable() else " " for letter in text[: _EXCERPT + 1])
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def retry_after_seconds(headers: Mapping[str, str], clock: Clock) -> float | None:
    """How long the provider asks us to wait: milliseconds, seconds or a date."""
    if (millis := _number(headers.get("retry-after-ms"))) is not None:
        return millis / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        moment: datetime = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - clock()).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
