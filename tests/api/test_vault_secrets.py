import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

import anthropic
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.beta.vaults.credential_create_params import Auth
from tests.api.api_server import Served, served
from tests.api.vault_api import NOTICES, oauth_auth, routes, static, variable
from tests.service.token_server import Provider, provider


@pytest.fixture
async def api(tmp_path: Path) -> AsyncGenerator[Served]:
    NOTICES.clear()
    async with served(tmp_path, routes) as running:
        yield running


@pytest.fixture
async def oauth() -> AsyncGenerator[Provider]:
    async with provider() as running:
        yield running


@pytest.mark.parametrize(
    ("auth", "where"),
    [
        (static(url="ftp://a.org"), "mcp_server_url"),
        (static(url="a.org"), "mcp_server_url"),
        (static(url="https://"), "mcp_server_url"),
        (static(url="https://a.org/é"), "mcp_server_url"),
        (static(url="https://a.org/" + "x" * 2048), "mcp_server_url"),
        (static(url="https://name:word@a.org"), "mcp_server_url"),
        (static(url="https://a.org:notaport"), "mcp_server_url"),
        (static(url="https://[a"), "mcp_server_url"),
        (static(token=""), "token"),
        (variable("1A"), "secret_name"),
        (variable("A B"), "secret_name"),
        (variable("A=B"), "secret_name"),
        (variable(value=""), "secret_value"),
        (variable(injection_location={"header": False}), "injection_location"),
        (variable(networking={"type": "limited", "allowed_hosts": ["a"] * 17}), "allowed_hosts"),
        *(
            (variable(networking={"type": "limited", "allowed_hosts": [host]}), "allowed_hosts")
            for host in ("https://a.org", "a.org:80", "a.org/x", "*", "::1", "a.*", "1.2.3", "")
        ),
        (oauth_auth(expires_at="2020-01-01T00:00:00Z"), "expires_at"),
        (oauth_auth(expires_at="2100-01-01T00:00:00"), "expires_at"),
        (cast("Auth", {"type": "password"}), "type"),
    ],
)
async def test_invalid_credentials_are_refused(auth: Auth, where: str, acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    with pytest.raises(anthropic.BadRequestError, match=where):
        await acme.beta.vaults.credentials.create(vault.id, auth=auth)


class Stringable(Protocol):
    """What the client makes of an answer."""

    def to_json(self) -> str: ...


T = TypeVar("T", bound=Stringable)


class RecordingSubscription:
    """Hears all that clients are told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def answer(self, asked: Awaitable[T]) -> T:
        answer = await asked
        self.heard.append(answer.to_json())
        return answer

    async def refusal(self, asked: Awaitable[Stringable]) -> None:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await asked
        self.heard.extend((str(caught.value), caught.value.response.text))


async def test_secrets_appear_in_no_response_log_notification_or_file(
    tmp_path: Path, oauth: Provider, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, logger="mainspring")
    NOTICES.clear()
    secrets = [f"planted-secret-{n}-zQ7" for n in range(8)]
    subscription = RecordingSubscription()
    async with served(tmp_path, routes) as api, api.client() as client:
        vault = await client.beta.vaults.create(display_name="Ada")
        await plant(client, vault.id, oauth, secrets, subscription)
        listed = client.beta.vaults.credentials.list(vault.id, include_archived=True)
        subscription.heard.extend([item.to_json() async for item in listed])
        live = b"".join(item.read_bytes() for item in tmp_path.iterdir())
        await client.beta.vaults.archive(vault.id)
    left = b"".join(item.read_bytes() for item in tmp_path.iterdir())
    assert b"API_KEY" in live  # it was there to be found
    assert "refresh_failed" in repr(NOTICES)
    for secret in secrets:
        assert secret not in "".join(subscription.heard)
        assert secret not in caplog.text
        assert secret not in repr(NOTICES)
        assert secret.encode() not in live
        assert secret.encode() not in left


async def plant(
    client: AsyncAnthropic,
    vault_id: str,
    oauth: Provider,
    secrets: Sequence[str],
    subscription: RecordingSubscription,
) -> None:
    creds = client.beta.vaults.credentials
    value, token, access, refresh, client_secret, bad, new, late = secrets
    env = await subscription.answer(creds.create(vault_id, auth=variable(value=value)))
    await subscription.answer(creds.create(vault_id, auth=static(token=token)))
    auth = oauth_auth(oauth.url, access=access, refresh=refresh, client_secret=client_secret)
    made = await subscription.answer(creds.create(vault_id, auth=auth))
    for wrong in (
        variable(value=bad),
        static("nowhere", bad),
        static(f"https://user:{bad}@a.org"),
        variable("1", bad),
        variable(bad, bad),
        cast("Auth", {"type": "static_bearer", "token": [bad]}),
    ):
        await subscription.refusal(creds.create(vault_id, auth=wrong))
    await subscription.refusal(
        creds.update(made.id, vault_id=vault_id, auth={"type": "static_bearer", "token": bad})
    )
    # sent to servers that say it all again, and kept anew
    await subscription.answer(creds.mcp_oauth_validate(made.id, vault_id=vault_id))
    await subscription.answer(
        creds.update(
            env.id, vault_id=vault_id, auth={"type": "environment_variable", "secret_value": new}
        )
    )
    await subscription.answer(
        creds.update(made.id, vault_id=vault_id, auth={"type": "mcp_oauth", "access_token": late})
    )
    await subscription.answer(creds.retrieve(made.id, vault_id=vault_id))


@pytest.mark.parametrize("value", ["swordfish", "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cE3gI5"])
async def test_an_error_does_not_repeat_the_refused_value(value: str, acme: AsyncAnthropic):
    vault = await acme.beta.vaults.create(display_name="Ada")
    with pytest.raises(anthropic.BadRequestError, match=r"type: invalid value") as refused:
        await acme.beta.vaults.credentials.create(vault.id, auth=cast("Auth", {"type": value}))
    assert value not in str(refused.value)
    with pytest.raises(anthropic.NotFoundError) as missing:
        await acme.beta.vaults.retrieve(f"{value}/{value}" if "_" in value else "none")
    assert "ghp_" not in str(missing.value)
