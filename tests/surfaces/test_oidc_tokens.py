"""Tokens of people: key sets, claims and headers that an issuer of one tenant, or somebody who can
answer for it, makes to get more. `tests/service/test_oidc.py` has forged tokens."""

import base64
from typing import Any

import pytest
from tests.service.test_oidc import (
    ISSUER,
    OTHER_RSA,
    PUBLISHED,
    FakeIssuerSite,
    claims,
    handmade_token,
    jwks,
    token,
    tokens,
)

from mainspring.core.errors import Forbidden, Unauthenticated

DEEP = '{"a":' * 4_000 + "1" + "}" * 4_000

KEY_SETS: dict[str, bytes] = {
    "nested deeply": b'{"keys":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "a text": b'{"keys": "all"}',
    "keys that are lists": b'{"keys": [["kty", "RSA"]]}',
    "null": b'{"keys": [null]}',
    "a key without numbers": b'{"keys": [{"kty": "RSA", "kid": "rsa", "n": "", "e": ""}]}',
    "a key of one bit": b'{"keys": [{"kty": "RSA", "kid": "rsa", "n": "AQ", "e": "AQAB"}]}',
    "an exponent of zero": b'{"keys": [{"kty": "RSA", "kid": "rsa", "n": "AQAB", "e": "AA"}]}',
    "a curve of its own": b'{"keys": [{"kty": "EC", "kid": "rsa", "crv": "P-0", "x": "A"}]}',
    "a point that is on no curve": (
        b'{"keys": [{"kty": "EC", "kid": "rsa", "crv": "P-256", "x": "AAAA", "y": "AAAA"}]}'
    ),
    "a shared secret of the same name": (
        b'{"keys": [{"kty": "oct", "kid": "rsa", "k": "c2VjcmV0", "alg": "HS256"}]}'
    ),
    "three megabytes": b'{"keys": [], "x": "' + b"x" * 3_000_000 + b'"}',
    "a key set in a page": b"<html>" + jwks(rsa=PUBLISHED["rsa"]),
    "a key for encryption": jwks(rsa={**PUBLISHED["rsa"], "use": "enc"}),
    "an algorithm of its own": jwks(rsa={**PUBLISHED["rsa"], "alg": "none"}),
}


@pytest.mark.parametrize("name", KEY_SETS)
async def test_no_key_set_makes_a_token_valid_that_it_should_not(name: str) -> None:
    with pytest.raises(Unauthenticated):
        await tokens(FakeIssuerSite(KEY_SETS[name])).principal(token())


CLAIMS: dict[str, dict[str, Any]] = {
    "a tenant of another": {"org": "Rival\u0000"},
    "a tenant with a space": {"org": " Acme Ltd"},
    "a tenant in capitals": {"org": "ACME LTD"},
    "two tenants": {"org": ["Rival", "Acme Ltd"]},
    "a tenant as an object": {"org": {"0": "Acme Ltd"}},
    "a tenant by its id": {"org": "acme"},
    "a role by its own name": {"realm": {"roles": ["admin"]}},
    "a role in capitals": {"realm": {"roles": ["BOSS"]}},
    "a role as a text with spaces": {"realm": {"roles": "staff boss"}},
    "a role in a nested list": {"realm": {"roles": [["boss"]]}},
    "roles as an object": {"realm": {"roles": {"0": "boss"}}},
    "a claim with a dot, of the wrong type": {"realm.roles": {"boss": 1}},
}


@pytest.mark.parametrize("name", CLAIMS)
async def test_claims_that_only_resemble_a_role_or_a_tenant_give_none(name: str) -> None:
    with pytest.raises((Forbidden, Unauthenticated)):
        await tokens().principal(token(claims(**CLAIMS[name])))


TIMES: dict[str, dict[str, Any]] = {
    "infinity": {"exp": float("inf")},
    "not a number": {"exp": float("nan")},
    "a negative time": {"exp": -1},
    "a text": {"exp": "tomorrow"},
    "a list": {"exp": [4_000_000_000]},
    "an object": {"exp": {}},
    "issued in a thousand years": {"iat": 10**11},
    "issued at infinity": {"iat": float("inf")},
    "not before infinity": {"nbf": float("inf")},
    "a subject that is a number": {"sub": 5},
    "a subject that is nothing": {"sub": ""},
    "a subject of spaces": {"sub": " \t"},
    "a subject that is longer than what is kept": {"sub": "e" * 300},
    "an audience that is an object": {"aud": {"0": ISSUER.audience}},
    "an issuer with a line break": {"iss": f"{ISSUER.issuer}\n"},
}


@pytest.mark.parametrize("name", TIMES)
async def test_a_signed_token_with_claims_of_another_kind_is_refused_not_a_crash(name: str) -> None:
    with pytest.raises((Forbidden, Unauthenticated)):
        await tokens().principal(token(claims(**TIMES[name])))


HEADERS: list[dict[str, object]] = [
    {"alg": "RS256", "kid": "rsa", "crit": ["exp"]},
    {"alg": "RS256", "kid": "rsa", "b64": False, "crit": ["b64"]},
    {"alg": "RS256", "kid": ["rsa"]},
    {"alg": "RS256", "kid": {"a": "rsa"}},
    {"alg": "RS256", "kid": 5},
    {"alg": None, "kid": "rsa"},
    {"alg": {"RS256": 1}, "kid": "rsa"},
    {"alg": "rs256", "kid": "rsa"},
    {"alg": "RS256 ", "kid": "rsa"},
    {"alg": "ES256", "kid": "rsa", "jwk": PUBLISHED["ec"]},
    {"alg": "RS256", "x5c": ["MIIB"], "kid": "rsa"},
    {"alg": "RS256", "kid": "x" * 5_000},
]


@pytest.mark.parametrize("number", range(len(HEADERS)))
async def test_no_header_makes_a_forged_signature_valid(number: int) -> None:
    site = FakeIssuerSite()
    for secret in (None, b"", b"rsa"):
        with pytest.raises(Unauthenticated):
            await tokens(site).principal(handmade_token(HEADERS[number], secret))
    assert len(site.asked) <= 3


async def test_a_token_that_is_nested_deeply_is_refused() -> None:
    deep = base64.urlsafe_b64encode(DEEP.encode()).decode().rstrip("=")
    for held in (f"{deep}.e30.AAAA", f"e30.{deep}.AAAA", f"{deep}.{deep}.{deep}"):
        with pytest.raises(Unauthenticated):
            await tokens().principal(held)


async def test_a_key_of_another_issuer_signs_nothing_here() -> None:
    with pytest.raises(Unauthenticated):
        await tokens().principal(token(key=OTHER_RSA, kid="sealing"))
