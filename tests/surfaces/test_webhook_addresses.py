"""Webhooks whose names change what they mean. An attack wins if a request reaches an address that
is not public, or that was not the one that was checked."""

from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.service.receiver import Receiver, receiving

from mainspring.capabilities.network.outbound_http import HttpPoster
from mainspring.core.ports import PostResult

ANSWERS: dict[str, Sequence[str]] = {
    "loopback": ["127.0.0.1"],
    "loopback, another": ["127.255.255.254"],
    "loopback of IPv6": ["::1"],
    "IPv4 in IPv6": ["::ffff:127.0.0.1"],
    "IPv4 in IPv6, in full": ["0:0:0:0:0:ffff:7f00:1"],
    "IPv4 compatible": ["::127.0.0.1"],
    "NAT64": ["64:ff9b::7f00:1"],
    "NAT64, local": ["64:ff9b:1::7f00:1"],
    "6to4": ["2002:7f00:1::"],
    "Teredo": ["2001:0:7f00:1::"],
    "this host": ["0.0.0.0"],
    "any of this host": ["0.0.0.5"],
    "any of IPv6": ["::"],
    "a metadata service": ["169.254.169.254"],
    "another metadata service": ["100.100.100.200"],
    "a metadata service of IPv6": ["fd00:ec2::254"],
    "link-local with a zone": ["fe80::1%lo"],
    "site-local": ["fec0::1"],
    "a private network": ["10.0.0.5"],
    "benchmarking": ["198.18.0.1"],
    "documentation": ["192.0.2.1"],
    "reserved": ["240.0.0.1"],
    "broadcast": ["255.255.255.255"],
    "multicast": ["239.1.1.1"],
    "all private": ["10.0.0.1", "192.168.0.1", "::1"],
    "nothing": [],
    "no address": ["localhost"],
    "a name": ["internal.example"],
    "octal": ["0177.0.0.1"],
    "short": ["127.1"],
    "a number": ["2130706433"],
    "a text with spaces": [" 127.0.0.1 "],
    "a path": ["/var/run/docker.sock"],
}


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    async with receiving() as running:
        yield running


def port_of(receiver: Receiver) -> str:
    return receiver.url.split(":")[2].split("/")[0]


async def post(receiver: Receiver, poster: HttpPoster, host: str = "hooks.example") -> PostResult:
    return await poster(f"http://{host}:{port_of(receiver)}/hook", headers={}, body=b"{}")


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_name_cannot_lead_to_an_address_that_is_not_public(
    name: str, receiver: Receiver
) -> None:
    async def resolve(_: str) -> Sequence[str]:
        return ANSWERS[name]

    answer = await post(receiver, HttpPoster(allow_http=True, resolver=resolve))
    assert answer.status is None
    assert answer.error
    assert receiver.got == []


async def test_a_name_that_changes_between_requests_is_checked_each_time(
    receiver: Receiver,
) -> None:
    asked: list[str] = []

    async def resolve(host: str) -> Sequence[str]:
        asked.append(host)
        return ["::1", "127.0.0.1", "169.254.169.254"][len(asked) % 3 :][:1]

    poster = HttpPoster(allow_http=True, resolver=resolve)
    for number in range(6):
        assert (await post(receiver, poster)).is_refused
        assert len(asked) == number + 1  # one question for each request: none to check, none to use
    assert receiver.got == []


HOSTS = {
    "a dot at the end": "localhost.",
    "capitals": "LOCALHOST",
    "full-width digits": "１２７.0.0.1",
    "full-width dots": "127。0。0。1",
    "circled digits": "①②⑦.⓪.⓪.①",
    "a zone": "[fe80::1%25lo]",
    "an escape": "%6c%6f%63alhost",
    "a soft hyphen": "local\u00adhost",
    "hexadecimal": "0x7f.1",
    "IPv6 of many forms": "[0000:0000:0000:0000:0000:0000:0000:0001]",
}


@pytest.mark.parametrize("name", HOSTS)
async def test_another_spelling_of_this_machine_is_not_called(
    name: str, receiver: Receiver
) -> None:
    answer = await post(receiver, HttpPoster(allow_http=True), HOSTS[name])
    assert answer.status is None
    assert receiver.got == []
