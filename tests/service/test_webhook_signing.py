import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.errors import InvalidInput
from mainspring.service.webhooks.webhook_signing import (
    GitHubSignature,
    HmacSignature,
    SignatureScheme,
    SignedRequest,
    SlackSignature,
    StandardWebhooksSignature,
    delivery_key,
    is_genuine,
    new_secret,
    secret_key,
    signed_headers,
)

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
STAMP = str(int(NOW.timestamp()))
SECRET = new_secret(bytes(range(32)))
BODY = b'{"a":1}'


def mac(content: bytes, secret: str = SECRET) -> bytes:
    return hmac.new(secret.encode(), content, hashlib.sha256).digest()


def standard(body: bytes = BODY, now: datetime = NOW) -> dict[str, str]:
    return signed_headers("msg_1", body, secrets=[SECRET], now=now)


GENUINE: list[tuple[SignatureScheme, dict[str, str]]] = [
    (StandardWebhooksSignature(), standard()),
    (GitHubSignature(), {"x-hub-signature-256": f"sha256={mac(BODY).hex()}"}),
    (
        SlackSignature(),
        {
            "x-slack-request-timestamp": STAMP,
            "x-slack-signature": f"v0={mac(b'v0:' + STAMP.encode() + b':' + BODY).hex()}",
        },
    ),
    (HmacSignature(header="X-Sign"), {"x-sign": mac(BODY).hex()}),
    (
        HmacSignature(header="X-Sign", encoding="base64", prefix="v1="),
        {"x-sign": f"v1={base64.b64encode(mac(BODY)).decode()}"},
    ),
    (
        HmacSignature(header="X-Sign", timestamp_header="X-Time"),
        {"x-time": STAMP, "x-sign": mac(STAMP.encode() + b"." + BODY).hex()},
    ),
]
TIMED = [GENUINE[0], GENUINE[2], GENUINE[5]]


def is_valid(
    scheme: SignatureScheme,
    headers: dict[str, str],
    *,
    body: bytes = BODY,
    secret: str = SECRET,
    now: datetime = NOW,
) -> bool:
    return is_genuine(scheme, SignedRequest(headers=headers, body=body), secret=secret, now=now)


@pytest.mark.parametrize(("scheme", "headers"), GENUINE)
def test_a_signature_is_valid_only_for_unchanged_content(
    scheme: SignatureScheme, headers: dict[str, str]
):
    assert is_valid(scheme, headers)
    assert not is_valid(scheme, headers, body=b'{"a":2}')
    assert not is_valid(scheme, headers, secret=new_secret(bytes(32)))
    for name, value in headers.items():
        assert not is_valid(scheme, {**headers, name: ""})
        assert not is_valid(scheme, {**headers, name: f"{value}0"})
        without = dict(headers)
        del without[name]
        assert not is_valid(scheme, without)


@pytest.mark.parametrize(("scheme", "headers"), TIMED)
def test_old_and_future_signatures_are_invalid(scheme: SignatureScheme, headers: dict[str, str]):
    assert is_valid(scheme, headers, now=NOW + timedelta(minutes=5))
    assert not is_valid(scheme, headers, now=NOW + timedelta(minutes=5, seconds=1))
    assert not is_valid(scheme, headers, now=NOW - timedelta(minutes=6))


@given(
    st.sampled_from([scheme for scheme, _ in GENUINE]),
    st.dictionaries(
        st.sampled_from(sorted({name for _, headers in GENUINE for name in headers})), st.text()
    ),
    st.binary(),
)
def test_any_headers_are_checked_without_an_exception(
    scheme: SignatureScheme, headers: dict[str, str], body: bytes
):
    assert not is_valid(scheme, headers, body=body)


def test_one_of_several_signatures_is_enough():
    headers = signed_headers("m", BODY, secrets=[new_secret(bytes(32)), SECRET], now=NOW)
    assert is_valid(StandardWebhooksSignature(), headers)


def test_the_delivery_key_depends_only_on_signed_content():
    body = SignedRequest(headers={"x-github-delivery": "1"}, body=BODY)
    again = SignedRequest(headers={"x-github-delivery": "2"}, body=BODY)
    assert delivery_key(GitHubSignature(), body, {}) == delivery_key(GitHubSignature(), again, {})
    other = SignedRequest(headers={}, body=b"{}")
    assert delivery_key(GitHubSignature(), body, {}) != delivery_key(GitHubSignature(), other, {})
    assert delivery_key(SlackSignature(), body, {"event_id": "Ev1"}) == "Ev1"


@pytest.mark.parametrize("secret", ["whsec_", "whsec_%%%", "whsec_YQ==", "ö"])
def test_an_invalid_secret_is_refused(secret: str):
    with pytest.raises(InvalidInput, match="secret"):
        secret_key(secret)
