"""The state that a server leaves with a client between two rounds of one request (`requestState`).

The client can read it and send anything instead: so it is signed, and valid only for the same
caller, the same request and a limited time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw, Struct

from mainspring.capabilities.mcp.server.refusals import RequestRefused, invalid

_LIFETIME_SECONDS = 24 * 3600
"""Long, since people may take time to answer."""
# Of the state that a client sends back; a longer one is refused before it is decoded.
_MAX_CHARS = 256 * 1024
_DIGEST_BYTES = 32  # of SHA-256


class RequestState(Struct, frozen=True, kw_only=True):
    answers: dict[str, Raw] = {}
    """The client's answers so far, by the key of the question."""
    note: bytes = b""
    """A note of the handler for the next round."""


class _SignedState(Struct, frozen=True, kw_only=True, array_like=True):
    caller: str
    request: bytes
    until: float
    state: RequestState


_DECODER = msgspec.json.Decoder(_SignedState)


class StateSigner:
    def __init__(self, key: bytes, *, seconds_now: Callable[[], float]) -> None:
        self._key = key
        self._now = seconds_now

    def sign(self, state: RequestState, *, caller: str, request: bytes) -> str:
        until = self._now() + _LIFETIME_SECONDS
        content = msgspec.json.encode(
            _SignedState(caller=caller, request=request, until=until, state=state)
        )
        return base64.urlsafe_b64encode(self._digest(content) + content).decode("ascii")

    def verify(self, text: str, *, caller: str, request: bytes) -> RequestState:
        """The state that `sign` encoded.

        Raises:
            RequestRefused: it is not ours, or for another caller or request, or too old.
        """
        if len(text) > _MAX_CHARS:
            raise _refused()
        try:
            content = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise _refused() from None
        digest, content = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if not hmac.compare_digest(digest, self._digest(content)):
            raise _refused()
        signed = _DECODER.decode(content)
        if signed.caller != caller or not hmac.compare_digest(signed.request, request):
            raise _refused()
        if signed.until < self._now():
            raise invalid("requestState: too old; begin again without it")
        return signed.state

    def _digest(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")


def request_digest(method: str, target: str, arguments: Mapping[str, object] | None) -> bytes:
    """Identifies the request of a state: the same request gives the same digest."""
    parts = (method, target, arguments or {})
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).digest()


def _refused() -> RequestRefused:
    return invalid("requestState: this server did not issue it for this request")
