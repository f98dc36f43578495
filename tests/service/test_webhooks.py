from collections.abc import AsyncGenerator, Sequence
from ipaddress import ip_network
from pathlib import Path

import pytest
from tests.service.receiver import Receiver, receiving
from tests.service.schedule_setup import LOOPBACK, TENANT, Works, works

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.capabilities.vault.aes_seal import AesSeal
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import PostResult
from mainspring.service.storage.repository import Notification
from mainspring.service.webhooks.webhook_endpoints import MAX_ENDPOINTS, CreateWebhook, Webhooks


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as running:
        yield running


def port_of(receiver: Receiver) -> str:
    return receiver.url.split(":")[2].split("/")[0]


async def post_to(poster: HttpPoster, url: str) -> PostResult:
    return await poster(url, headers={"content-type": "application/json"}, body=b"{}")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "168.63.129.16",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::7f00:1]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[2002:7f00:1::]",
        "224.0.0.1",
        "255.255.255.255",
    ],
)
async def test_private_addresses_are_not_called(host: str, receiver: Receiver):
    answer = await post_to(HttpPoster(allow_http=True), f"http://{host}:{port_of(receiver)}/hook")
    assert answer.status is None
    assert answer.error
    assert receiver.got == []


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "https://user:pass@example.com/",
        "https:///nowhere",
        "//example.com",
        "",
        "https://exa mple.com",
        "https://example.com:99999/",
        f"https://{'a' * 70}.example..com@/",
    ],
)
async def test_urls_that_are_not_plain_https_are_neither_called_nor_stored(
    url: str, tmp_path: Path
):
    answer = await post_to(HttpPoster(), url)
    assert (answer.status, bool(answer.error)) == (None, True)
    async with works(tmp_path) as made:
        webhooks = Webhooks(made.records, seal=AesSeal(bytes(32)))
        if url:
            with pytest.raises(InvalidInput, match="url"):
                await webhooks.create(
                    TENANT, CreateWebhook(url=url, event_types=("agent.created",))
                )


async def test_a_host_that_resolves_to_a_private_address_is_not_called(receiver: Receiver):
    asked: list[str] = []

    async def rebinding(host: str) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["93.184.216.34"]

    poster = HttpPoster(allow_http=True, resolver=rebinding)
    assert (await post_to(poster, f"http://hooks.example:{port_of(receiver)}/")).is_refused
    assert asked == ["hooks.example"]
    assert receiver.got == []


async def test_the_checked_address_is_the_one_that_is_connected(receiver: Receiver):
    async def resolver(_host: str) -> Sequence[str]:
        return ["10.0.0.1", "127.0.0.1"]  # the first is not allowed and so not tried

    poster = HttpPoster(allowed=[ip_network(LOOPBACK)], allow_http=True, resolver=resolver)
    assert (await post_to(poster, f"http://hooks.example:{port_of(receiver)}/hook")).status == 200
    [(headers, _)] = receiver.got
    assert headers["Host"] == f"hooks.example:{port_of(receiver)}"


@pytest.mark.parametrize("host", ["a" * 300, "a..b", ".", "\u2024", "%00", "xn--\u00fc"])
async def test_an_invalid_host_name_is_an_error_result(host: str):
    answer = await post_to(HttpPoster(), f"https://{host}/")
    assert (answer.status, bool(answer.error)) == (None, True)


async def test_an_unresolvable_host_is_a_temporary_failure():
    async def resolver(_host: str) -> Sequence[str]:
        raise OSError("no such name")

    answer = await post_to(HttpPoster(resolver=resolver), "https://hooks.example/")
    assert answer.error
    assert not answer.is_refused


async def test_only_the_beginning_of_a_long_response_is_kept(receiver: Receiver):
    receiver.answer = b"x" * 5_000_000
    poster = HttpPoster(allowed=[ip_network(LOOPBACK)], allow_http=True)
    assert len((await post_to(poster, receiver.url)).excerpt) <= 1024


async def test_an_endpoint_at_a_private_address_is_disabled_at_its_first_call(
    tmp_path: Path, receiver: Receiver
):
    async with works(tmp_path, poster=HttpPoster(allow_http=True)) as made:
        webhook = await _create_webhook(made, receiver.url)
        await made.outbox.notify(Notification(tenant=TENANT, type="agent.created", id="agent_1"))
        await made.deliver_due()
        after = await made.webhooks.get(TENANT, webhook)
        assert (after.status, after.disabled_reason) == ("disabled", "address")
        assert receiver.got == []


async def test_the_number_of_endpoints_is_limited(tmp_path: Path):
    async with works(tmp_path) as made:
        for _ in range(MAX_ENDPOINTS):
            await _create_webhook(made, "https://example.com/")
        with pytest.raises(InvalidInput, match="at most"):
            await _create_webhook(made, "https://example.com/")


async def _create_webhook(made: Works, url: str) -> str:
    asked = CreateWebhook(url=url, event_types=("agent.created",))
    return (await made.webhooks.create(TENANT, asked)).id
