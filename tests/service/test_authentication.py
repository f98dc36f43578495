"""The doorkeeper, and what people try at doors."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.fixed_clock import NOON, Time, person

from mainspring.core.errors import (
    Forbidden,
    InvalidInput,
    MainspringError,
    NotFound,
    RateLimited,
    Unauthenticated,
)
from mainspring.log.records import Records
from mainspring.log.sqlite import open_sqlite
from mainspring.service.access.api_keys import CreateKey, Keys, NewKey
from mainspring.service.access.kill_switch import HALT_CACHE_SECONDS, CreateHalt, Halts
from mainspring.service.access.principal import Principal, Role
from mainspring.service.access.rate_limits import Rate
from mainspring.service.access.tenants import CreateTenant, Tenants, UpdateTenant
from mainspring.service.authorization.authentication import (
    ACTING_AGENT_HEADER,
    KEY_CACHE_SECONDS,
    AuthenticationResult,
    Authenticator,
    RateLimits,
    RequestCredentials,
    client_address,
    join_headers,
    presented_secret,
)
from mainspring.service.resources.agents import ModelConfig, ServiceAccount
from mainspring.service.resources.environments import SelfHostedConfig
from mainspring.service.sessions.session_agent import SessionAgent
from mainspring.service.sessions.session_record import SessionCreator, SessionRecord
from mainspring.service.storage.repository import Repository


@dataclass(frozen=True)
class Gate:
    """A route, as the doorkeeper sees it."""

    role: Role = "viewer"
    is_open: bool = False
    for_agent_keys: bool = False
    for_worker_keys: bool = False


SESSION = SessionRecord(
    id="sesn_1",
    agent=SessionAgent(
        id="agent_1",
        name="clerk",
        version=1,
        model=ModelConfig(id="a:b"),
        execution_identity=ServiceAccount(),
        mcp_servers=(),
        skills=(),
        tools=(),
    ),
    environment_id="env_1",
    environment=SelfHostedConfig(),
    created_at=NOON,
    updated_at=NOON,
    created_by=SessionCreator(key_id="key_1", name="ci"),
)


@dataclass
class AuthenticatorSetup:
    records: Records
    time: Time = field(default_factory=Time)
    rates: RateLimits = field(default_factory=RateLimits)

    def __post_init__(self) -> None:
        self.keys = Keys(self.records, clock=self.time.now)
        self.tenants = Tenants(self.records, clock=self.time.now)
        self.door = Authenticator(
            self.records, rate_limits=self.rates, clock=self.time.now, monotonic=self.time.monotonic
        )

    async def key(self, asked: CreateKey | None = None, tenant: str = "acme") -> NewKey:
        return await self.keys.create(person(tenant), asked or CreateKey(name="ci"))

    async def credentials(
        self,
        key: str,
        gate: Gate | None = None,
        *,
        path: dict[str, str] | None = None,
        address: str = "192.0.2.1",
        **headers: str,
    ) -> AuthenticationResult:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        credentials = RequestCredentials(
            headers={"x-api-key": key, **named}, path=path or {}, address=address
        )
        return await self.door.admit(credentials, gate or Gate())


@asynccontextmanager
async def authenticator_setup(
    folder: Path, rates: RateLimits | None = None
) -> AsyncGenerator[AuthenticatorSetup]:
    async with open_sqlite(folder / "mainspring.db") as store:
        service = AuthenticatorSetup(store.records, rates=rates or RateLimits())
        for tenant in ("acme", "rival"):
            await service.tenants.create(CreateTenant(id=tenant))
        await Repository(store.records, "session", SessionRecord).put("acme", SESSION)
        yield service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[AuthenticatorSetup]:
    async with authenticator_setup(tmp_path) as made:
        yield made


def kind(admission: AuthenticationResult) -> type[MainspringError] | None:
    return None if admission.refusal is None else type(admission.refusal)


async def test_a_key_is_accepted_as_x_api_key_and_as_bearer_in_any_case(
    service: AuthenticatorSetup,
):
    key = await service.key()
    for headers in (
        {"x-api-key": key.key},
        {"x-api-key": f"  {key.key} "},
        {"authorization": f"Bearer {key.key}"},
        {"authorization": f"bearer   {key.key}"},
        {"authorization": f"BEARER {key.key}", "x-api-key": key.key},
    ):
        admission = await service.door.admit(RequestCredentials(headers=headers), Gate())
        assert admission.refusal is None
        assert admission.who == Principal(tenant="acme", key_id=key.id, role="user", name="ci")


async def test_malformed_and_wrong_keys_are_refused(service: AuthenticatorSetup):
    mine, other = await service.key(), await service.key()
    attacks = [
        {},
        {"x-api-key": ""},
        {"x-api-key": " "},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": mine.key},
        {"authorization": f"Basic {mine.key}"},
        {"authorization": f"Bearer Bearer {mine.key}"},
        {"cookie": f"x-api-key={mine.key}"},
        {"x-api-key": mine.key.upper()},
        {"x-api-key": mine.key[:-1]},
        {"x-api-key": mine.key + "A"},
        {"x-api-key": mine.id},
        {"x-api-key": "msk_" + "a" * 43},
        {"x-api-key": mine.key.replace("m", "ｍ", 1)},
        {"x-api-key": "\udcff\udcfe"},
        {"x-api-key": "🗝" * 20},
        {"x-api-key": "k" * 100_000},
        {"x-api-key": "' or 1=1 --"},
        {"x-api-key": "\x00"},
        {"x-api-key": mine.key, "authorization": f"Bearer {other.key}"},
        {"x-api-key": f"{mine.key},{other.key}"},
        join_headers([("X-Api-Key", mine.key), ("x-api-key", mine.key)]),
        join_headers([("Authorization", f"Bearer {mine.key}"), ("authorization", "Bearer x")]),
    ]
    for number, headers in enumerate(attacks):
        with pytest.raises(Unauthenticated):
            await service.door.admit(
                RequestCredentials(headers=headers, address=f"192.0.2.{number}"), Gate()
            )


@given(st.dictionaries(st.sampled_from(["x-api-key", "authorization"]), st.text(max_size=80)))
def test_any_headers_are_parsed_or_refused(headers: dict[str, str]):
    try:
        secret, _ = presented_secret(headers)
    except Unauthenticated:
        return
    assert secret == secret.strip() != ""


async def test_a_revoked_key_is_refused_within_seconds_and_an_expired_one_at_once(
    service: AuthenticatorSetup,
):
    key = await service.key()
    assert (await service.credentials(key.key)).refusal is None
    await service.keys.revoke("acme", key.id)
    service.time.pass_(KEY_CACHE_SECONDS)
    with pytest.raises(Unauthenticated, match="revoked"):
        await service.credentials(key.key)
    brief = await service.key(CreateKey(name="b", expires_at=NOON.replace(hour=13)))
    assert (await service.credentials(brief.key)).refusal is None
    service.time.pass_(3600)
    with pytest.raises(Unauthenticated, match="expired"):
        await service.credentials(brief.key)


async def test_a_disabled_tenant_is_refused_within_seconds_with_the_key_known(
    service: AuthenticatorSetup,
):
    key = await service.key()
    await service.credentials(key.key)
    await service.tenants.disable("acme")
    service.time.pass_(KEY_CACHE_SECONDS)
    admission = await service.credentials(key.key)
    assert kind(admission) is Forbidden
    assert admission.who.key_id == key.id
    await service.tenants.enable("acme")
    service.time.pass_(KEY_CACHE_SECONDS)
    assert (await service.credentials(key.key)).refusal is None


async def test_a_key_of_an_unknown_tenant_is_refused(service: AuthenticatorSetup):
    assert kind(await service.credentials((await service.key(tenant="nobody")).key)) is Forbidden


async def test_a_role_includes_only_the_roles_below_it(service: AuthenticatorSetup):
    key = await service.key(CreateKey(name="u", role="user"))
    wanted: list[Role] = ["viewer", "user", "operator", "admin"]
    opened = [kind(await service.credentials(key.key, Gate(role=role))) for role in wanted]
    assert opened == [None, None, Forbidden, Forbidden]


async def test_an_open_route_needs_no_key_and_has_no_principal(service: AuthenticatorSetup):
    admission = await service.door.admit(RequestCredentials(headers={}), Gate(is_open=True))
    assert (admission.who.tenant, admission.who.key_id) == ("", "")


async def test_a_workspace_other_than_the_keys_is_refused(service: AuthenticatorSetup):
    key = await service.key()
    assert (await service.credentials(key.key, anthropic_workspace_id="acme")).refusal is None
    for other in ("rival", "wrkspc_01", "ACME"):
        assert kind(await service.credentials(key.key, anthropic_workspace_id=other)) is Forbidden


async def test_a_key_of_one_agent_has_access_only_to_that_agent(service: AuthenticatorSetup):
    key = await service.key(CreateKey(name="a", role="admin", agent_id="agent_1"))
    other = await service.key(CreateKey(name="b", role="admin", agent_id="agent_2"))

    async def tried(secret: str, gate: Gate | None = None, **path: str) -> object:
        return kind(await service.credentials(secret, gate, path=path))

    assert await tried(key.key, agent_id="agent_1") is None
    assert await tried(key.key, agent_id="agent_2") is Forbidden
    assert await tried(key.key, session_id="sesn_1") is None
    assert await tried(other.key, session_id="sesn_1") is Forbidden
    assert await tried(key.key, session_id="sesn_2") is NotFound
    assert await tried(key.key) is Forbidden
    assert await tried(key.key, key_id="key_1") is Forbidden
    assert await tried(key.key, vault_id="vlt_1") is Forbidden
    assert await tried(key.key, agent_id="agent_1", session_id="sesn_2") is NotFound
    assert await tried(key.key, Gate(for_agent_keys=True)) is None
    assert await tried(key.key, Gate(for_worker_keys=True)) is Forbidden


async def test_a_workers_key_does_only_the_work_of_its_environment(service: AuthenticatorSetup):
    key = await service.key(CreateKey(name="w", environment_id="env_1"))
    other = await service.key(CreateKey(name="v", environment_id="env_2"))
    work = Gate(role="user", for_worker_keys=True)

    async def tried(secret: str, gate: Gate, **path: str) -> object:
        return kind(await service.credentials(secret, gate, path=path))

    assert await tried(key.key, work, environment_id="env_1") is None
    assert await tried(key.key, work, environment_id="env_2") is Forbidden
    assert await tried(key.key, work, session_id="sesn_1") is None
    assert await tried(other.key, work, session_id="sesn_1") is Forbidden
    assert await tried(key.key, work, skill_id="skill_1") is Forbidden  # a work item's token may
    assert await tried(key.key, Gate(), environment_id="env_1") is Forbidden
    assert await tried(key.key, Gate(for_agent_keys=True)) is Forbidden
    who = (await service.credentials(key.key, work)).who
    with pytest.raises(Forbidden):
        who.require_human()


async def test_requests_by_an_agent_are_marked_with_the_agent(service: AuthenticatorSetup):
    key = await service.key()
    lent = await service.key(CreateKey(name="l", lent_to="agent_1"))
    plain = (await service.credentials(key.key)).who
    named = (await service.credentials(key.key, x_mainspring_agent="agent_2")).who
    kept = (await service.credentials(lent.key)).who
    disowned = (await service.credentials(lent.key, x_mainspring_agent="somebody-else")).who
    assert [plain.acting_agent, named.acting_agent] == [None, "agent_2"]
    assert [kept.acting_agent, disowned.acting_agent] == ["agent_1", "agent_1"]
    plain.require_human()
    for agent in (named, kept, disowned):
        with pytest.raises(Forbidden):
            agent.require_human()
    for nonsense in ("", "  ", "ä", "a" * 257, "a\nb"):
        headers = {"x-api-key": key.key, ACTING_AGENT_HEADER: nonsense}
        admission = await service.door.admit(RequestCredentials(headers=headers), Gate())
        assert kind(admission) is InvalidInput


async def test_a_halted_agent_is_refused_and_people_are_not(service: AuthenticatorSetup):
    lent = await service.key(CreateKey(name="l", lent_to="agent_1"))
    key = await service.key()
    assert (await service.credentials(lent.key)).refusal is None
    await Halts(service.records).halt("acme", person(), CreateHalt(agent_id="agent_1"))
    service.time.pass_(HALT_CACHE_SECONDS)
    assert kind(await service.credentials(lent.key)) is Forbidden
    assert (await service.credentials(key.key)).refusal is None


async def test_a_key_has_a_rate_limit_with_headers(service: AuthenticatorSetup):
    key = await service.key(CreateKey(name="r", requests_per_minute=60))
    other = await service.key()
    told = [(await service.credentials(key.key)) for _ in range(11)]
    assert [kind(item) for item in told] == [None] * 10 + [RateLimited]
    left = [item.headers["anthropic-ratelimit-requests-remaining"] for item in told]
    assert left == [*map(str, range(9, -1, -1)), "0"]
    assert told[0].headers["anthropic-ratelimit-requests-limit"] == "60"
    assert told[0].headers["anthropic-ratelimit-requests-reset"] == "2026-11-16T12:00:01Z"
    assert (await service.credentials(other.key)).refusal is None
    service.time.pass_(1)
    assert (await service.credentials(key.key)).refusal is None


async def test_all_keys_of_a_tenant_share_its_rate_limit(service: AuthenticatorSetup):
    await service.tenants.update("acme", UpdateTenant(requests_per_minute=60))
    keys = [await service.key() for _ in range(4)]
    rival = await service.key(tenant="rival")
    told = [kind(await service.credentials(keys[number % 4].key)) for number in range(12)]
    assert told == [None] * 10 + [RateLimited] * 2
    assert (await service.credentials(rival.key)).refusal is None


async def test_refused_requests_count_against_the_rate_limit(service: AuthenticatorSetup):
    key = await service.key(CreateKey(name="r", requests_per_minute=1))
    told = [kind(await service.credentials(key.key, Gate(role="admin"))) for _ in range(6)]
    assert told == [Forbidden] * 5 + [RateLimited]


async def test_guessing_keys_is_rate_limited_by_address(tmp_path: Path):
    async with authenticator_setup(tmp_path, RateLimits(failures=Rate(30))) as service:
        current, unseen = await service.key(), await service.key()
        assert (await service.credentials(current.key)).refusal is None
        for number in range(5):
            with pytest.raises(Unauthenticated):
                await service.credentials(f"guess {number}")
        with pytest.raises(RateLimited):
            await service.credentials("guess 6")
        with pytest.raises(RateLimited):  # even the right one, so that nothing is learnt
            await service.credentials(unseen.key)
        service.time.pass_(KEY_CACHE_SECONDS - 2)
        assert (await service.credentials(current.key)).refusal is None
        assert (await service.credentials(unseen.key, address="192.0.2.77")).refusal is None
        service.time.pass_(2)
        with pytest.raises(Unauthenticated):
            await service.credentials("guess 7")


async def test_addresses_of_one_ipv6_network_share_a_rate_limit(tmp_path: Path):
    async with authenticator_setup(tmp_path, RateLimits(failures=Rate(30))) as service:
        for number in range(5):
            with pytest.raises(Unauthenticated):
                await service.credentials("guess", address=f"2001:db8::{number:x}:1")
        with pytest.raises(RateLimited):
            await service.credentials("guess", address="2001:db8::ffff:2")
        with pytest.raises(Unauthenticated):
            await service.credentials("guess", address="2001:db8:0:1::1")


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("10.0.0.1", None, "10.0.0.1"),
        ("10.0.0.1", "192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.1", "192.0.2.1"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("10.0.0.1", " , ", "10.0.0.1"),
        ("192.0.2.9", "6.6.6.6", "192.0.2.9"),
    ],
)
def test_only_trusted_proxies_can_set_the_client_address(
    peer: str, forwarded: str | None, address: str
):
    headers = {} if forwarded is None else {"x-forwarded-for": forwarded}
    assert client_address(peer, headers, frozenset({"10.0.0.1", "10.0.0.2"})) == address
