"""Tokens of an issuer: what holds, and everything that must not."""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.row_checks import for_each
from tests.service.fixed_clock import Time

from mainspring.core import clock
from mainspring.core.errors import Forbidden, InvalidInput, Unauthenticated
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.oidc import FRESH_SECONDS, RETRY_SECONDS, STALE_SECONDS, IssuedTokens
from mainspring.service.access.oidc_issuers import OidcIssuer
from mainspring.service.access.principal import Role
from mainspring.service.access.tenants import CreateTenant, Tenants
from mainspring.service.authorization.authentication import Authenticator, RequestCredentials
from mainspring.service.authorization.oidc_tokens import open_tokens

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
Private: TypeAlias = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
URL = "https://issuer.test/keys"
ISSUER = OidcIssuer(
    issuer="https://issuer.test",
    audience="mainspring",
    jwks_url=URL,
    tenant_claim="org",
    tenants={"Acme Ltd": "acme", "Rival": "rival"},
    role_claim="realm.roles",
    roles={"staff": "user", "boss": "admin"},
)


def jwks(**keys: dict[str, object]) -> bytes:
    return json.dumps({"keys": [{**key, "kid": kid} for kid, key in keys.items()]}).encode()


PUBLISHED: dict[str, dict[str, object]] = {
    "rsa": json.loads(RSAAlgorithm.to_jwk(RSA.public_key())),
    "ec": json.loads(ECAlgorithm.to_jwk(EC.public_key())),
    "ed": json.loads(OKPAlgorithm.to_jwk(ED.public_key())),
    "shared": {"kty": "oct", "k": base64.urlsafe_b64encode(b"s" * 32).decode()},
    "sealing": {**json.loads(RSAAlgorithm.to_jwk(OTHER_RSA.public_key())), "use": "enc"},
}


class FakeIssuerSite:
    """Where the keys are published."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content or jwks(**PUBLISHED)
        self.is_down = False
        self.asked: list[str] = []

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.is_down:
            raise OSError("nobody answers")
        return self.content


def claims(**more: object) -> dict[str, Any]:
    now = clock.now()
    said = {
        "iss": ISSUER.issuer,
        "aud": ISSUER.audience,
        "sub": "eve",
        "exp": now + timedelta(hours=1),  # some are made when this file is read
        "org": "Acme Ltd",
        "realm": {"roles": ["staff", "boss", "unheard-of"]},
        "email": "eve@acme.test",
        **more,
    }
    return {name: value for name, value in said.items() if value is not None}


def token(
    said: Mapping[str, Any] | None = None,
    *,
    key: Private = RSA,
    algorithm: str = "RS256",
    kid: str | None = "rsa",
    **header: object,
) -> str:
    headers = {**({} if kid is None else {"kid": kid}), **header}
    return jwt.encode(dict(said or claims()), key, algorithm=algorithm, headers=headers)


def tokens(site: FakeIssuerSite | None = None, time: Time | None = None) -> IssuedTokens:
    monotonic = (time or Time()).monotonic
    return IssuedTokens((ISSUER,), (site or FakeIssuerSite()).fetch, monotonic=monotonic)


@pytest.mark.parametrize(
    "held",
    [
        token(),
        token(key=EC, algorithm="ES256", kid="ec"),
        token(key=ED, algorithm="EdDSA", kid="ed"),
    ],
    ids=["RS256", "ES256", "EdDSA"],
)
async def test_a_valid_token_gives_tenant_role_and_name(held: str):
    checked = tokens()
    assert checked.is_one(held)
    who = await checked.principal(held)
    assert (who.tenant, who.role, who.key_id, who.name) == (
        "acme",
        "admin",
        "oidc:eve",
        "eve@acme.test",
    )


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def handmade_token(header: dict[str, object], secret: bytes | None, **more: object) -> str:
    said = {**claims(), "exp": 4_000_000_000, **more}
    signed = f"{part(header)}.{part(said)}"
    mac = b"" if secret is None else hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
WHOLE = token()
HEAD, _, SIGNATURE = WHOLE.split(".")

ATTACKS: dict[str, str] = {
    "alg none": handmade_token({"alg": "none", "kid": "rsa"}, None),
    "alg NONE": handmade_token({"alg": "NonE", "kid": "rsa"}, None),
    "no alg": handmade_token({"kid": "rsa"}, None),
    "alg a list": handmade_token({"alg": ["RS256"], "kid": "rsa"}, None),
    "HS256 with the public key": handmade_token({"alg": "HS256", "kid": "rsa"}, PEM),
    "HS256 with the shared key": handmade_token({"alg": "HS256", "kid": "shared"}, b"s" * 32),
    "RS256 said, another key's kid": token(kid="ec"),
    "PS256, which is not allowed": token(algorithm="PS256"),
    "signed by somebody else": token(key=OTHER_RSA),
    "a key for sealing": token(key=OTHER_RSA, kid="sealing"),
    "no signature": WHOLE.rpartition(".")[0] + ".",
    "other claims, old signature": f"{HEAD}.{part({**claims(), 'exp': 4e9})}.{SIGNATURE}",
    "wrong issuer": token(claims(iss="https://evil.test")),
    "issuer with a slash": token(claims(iss=ISSUER.issuer + "/")),
    "issuer a list": handmade_token({"alg": "RS256", "kid": "rsa"}, b"x", iss=[ISSUER.issuer]),
    "no issuer": token(claims(iss=None)),
    "wrong audience": token(claims(aud="other")),
    "no audience": token(claims(aud=None)),
    "expired": token(claims(exp=clock.now() - timedelta(minutes=5))),
    "never expires": token(claims(exp=None)),
    "not yet": token(claims(nbf=clock.now() + timedelta(days=1), exp=4_000_000_000)),
    "no subject": token(claims(sub=None)),
    "unknown kid": token(kid="made-up"),
    "kid a path": token(kid="../../../../dev/null"),
    "kid a query": token(kid="rsa' or '1'='1"),
    "kid with a key of its own": token(key=OTHER_RSA, kid="rsa", jwk=PUBLISHED["sealing"]),
    "kid at an address": token(key=OTHER_RSA, kid="rsa", jku="https://evil.test/keys"),
    "no kid among several": token(kid=None),
    "too long": token(claims(filler="x" * 20_000)),
    "not JSON": "eyJ.eyJ.AAAA",
    "other letters": WHOLE[:-3] + "äöü",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_an_invalid_token_is_refused(attack: str):
    site = FakeIssuerSite()
    with pytest.raises(Unauthenticated):
        await tokens(site).principal(attack)
    assert set(site.asked) <= {URL}


@pytest.mark.parametrize(
    "said",
    [
        claims(org="Unknown"),
        claims(org=None),
        claims(org=["Acme Ltd", "Rival"]),
        claims(org={"Acme Ltd": True}),
        claims(realm=None),
        claims(realm={"roles": []}),
        claims(realm={"roles": ["unheard-of"]}),
        claims(realm={"roles": {"boss": 1}}),
        claims(realm="boss"),
    ],
)
async def test_a_token_without_a_mapped_tenant_or_role_is_refused(said: dict[str, Any]):
    with pytest.raises(Forbidden):
        await tokens().principal(token(said))


async def test_a_token_without_kid_is_valid_if_there_is_only_one_key():
    only = FakeIssuerSite(jwks(rsa=PUBLISHED["rsa"]))
    assert (await tokens(only).principal(token(kid=None))).tenant == "acme"


async def test_keys_are_cached_and_refetched_for_an_unknown_key_but_not_too_often():
    site, time = FakeIssuerSite(jwks(rsa=PUBLISHED["rsa"])), Time()
    checked = tokens(site, time)
    for _ in range(3):
        await checked.principal(token())
    assert len(site.asked) == 1
    turned = token(key=EC, algorithm="ES256", kid="ec")
    site.content = jwks(rsa=PUBLISHED["rsa"], ec=PUBLISHED["ec"])
    for _ in range(5):
        with pytest.raises(Unauthenticated):
            await checked.principal(turned)
    assert len(site.asked) == 1
    time.pass_(RETRY_SECONDS)
    assert (await checked.principal(turned)).tenant == "acme"
    assert len(site.asked) == 2


async def test_an_unpublished_key_is_accepted_for_an_hour_at_most():
    site, time = FakeIssuerSite(), Time()
    checked = tokens(site, time)
    await checked.principal(token())
    site.content = jwks(ec=PUBLISHED["ec"], ed=PUBLISHED["ed"])
    time.pass_(FRESH_SECONDS + 1)
    with pytest.raises(Unauthenticated):
        await checked.principal(token())


async def test_with_the_issuer_down_known_keys_are_valid_for_a_day():
    site, time = FakeIssuerSite(), Time()
    site.is_down = True
    checked = tokens(site, time)
    with pytest.raises(Unauthenticated, match="are not available"):
        await checked.principal(token())
    site.is_down = False
    time.pass_(RETRY_SECONDS)
    await checked.principal(token())
    site.is_down = True
    time.pass_(STALE_SECONDS - 1)
    await checked.principal(token())
    time.pass_(2)
    with pytest.raises(Unauthenticated, match="are not available"):
        await checked.principal(token())


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"not JSON", b'{"keys": 5}', b'{"keys": [5]}', b'{"keys": [{"kty": "RSA"}]}'],
)
async def test_invalid_key_sets_are_refused(content: bytes):
    site = FakeIssuerSite(b" ")
    site.content = content
    with pytest.raises(Unauthenticated):
        await tokens(site).principal(token())


@given(
    st.text(max_size=200) | st.from_regex(r"\AeyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*\Z")
)
async def test_any_text_as_a_token_is_refused(sent: str):
    with pytest.raises(Unauthenticated):
        await tokens().principal(sent)


def test_without_issuers_no_token_checker_is_opened():
    assert open_tokens((), FakeIssuerSite().fetch) is None
    assert open_tokens((ISSUER,), FakeIssuerSite().fetch) is not None


@pytest.mark.parametrize("url", ["http://issuer.test/keys", "file:///etc/passwd", "https://", ""])
def test_a_jwks_url_must_be_an_https_url(url: str):
    with pytest.raises(InvalidInput, match="jwks_url"):
        open_tokens((msgspec.structs.replace(ISSUER, jwks_url=url),), FakeIssuerSite().fetch)


@for_each(
    "wrong",
    [
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"tenant": "acme"},
        {"tenants": {}},
        {"tenant_claim": None},
        {"roles": {}},
        {"roles": {"boss": "god"}},
        {"audience": ""},
        {"surprise": 1},
    ],
)
def test_an_issuer_that_would_admit_too_many_cannot_be_configured(wrong: dict[str, object]):
    given_ = {**msgspec.to_builtins(ISSUER), **wrong}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(given_, OidcIssuer)


async def test_concurrent_requests_share_one_fetch_of_the_keys():
    site, let = FakeIssuerSite(), anyio.Event()

    async def fetch(url: str) -> bytes:
        await let.wait()
        return await site.fetch(url)

    checked = IssuedTokens((ISSUER,), fetch)
    tenants: list[str] = []

    async def come() -> None:
        tenants.append((await checked.principal(token())).tenant)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(come)
            await anyio.lowlevel.checkpoint()
            let.set()
    assert tenants == ["acme"] * 5
    assert len(site.asked) == 1


@dataclass(frozen=True)
class Gate:
    role: Role = "admin"
    is_open: bool = False
    for_agent_keys: bool = False
    for_worker_keys: bool = False


async def test_a_token_is_accepted_as_bearer_only_while_its_tenant_is_enabled(tmp_path: Path):
    time = Time()
    async with open_sqlite(tmp_path / "mainspring.db") as store:
        tenants = Tenants(store.records)
        await tenants.create(CreateTenant(id="acme"))
        door = Authenticator(store.records, token_verifier=tokens(), monotonic=time.monotonic)
        bearer = RequestCredentials(headers={"authorization": f"Bearer {token()}"})
        admission = await door.admit(bearer, Gate())
        assert admission.refusal is None
        assert (admission.who.tenant, admission.who.role) == ("acme", "admin")
        with pytest.raises(Unauthenticated):
            await door.admit(RequestCredentials(headers={"x-api-key": token()}), Gate())
        with pytest.raises(Unauthenticated):
            await Authenticator(store.records).admit(bearer, Gate())
        staff = token(claims(realm={"roles": "staff"}))
        refused = await door.admit(
            RequestCredentials(headers={"authorization": f"Bearer {staff}"}), Gate()
        )
        assert isinstance(refused.refusal, Forbidden)
        await tenants.disable("acme")
        time.pass_(60)
        assert isinstance((await door.admit(bearer, Gate())).refusal, Forbidden)
