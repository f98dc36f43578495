"""Resolves host names, and decides which addresses may be connected to: public ones, unless a rule
names others."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

import anyio

from mainspring.capabilities.network.rules import Network
from mainspring.core.errors import NetworkRefused

Address: TypeAlias = IPv4Address | IPv6Address
Resolver: TypeAlias = Callable[[str], Awaitable[Sequence[str]]]
"""Called once per connection; only the addresses that it returned are connected to."""

_PUBLIC_V6 = ip_network("2000::/3")
_NEVER_PUBLIC: tuple[Network, ...] = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            "168.63.129.16/32",  # Azure's platform services, at an address that looks public
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24"),
            *("192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
            "2001::/23",  # Teredo, ORCHID, benchmarks: embed another address, or unassigned
            "2002::/16",  # 6to4
            *("2001:db8::/32", "3ffe::/16", "3fff::/20", "2620:4f:8000::/48"),
        ),
    )
)


async def system_resolver(host: str) -> list[str]:
    addresses = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


def is_public(address: Address) -> bool:
    """Whether an address is reachable from the whole internet. IPv6 addresses are public only in
    known ranges: those that embed an IPv4 address (mapped, NAT64, 6to4, Teredo) are not."""
    if isinstance(address, IPv6Address) and (address not in _PUBLIC_V6 or address.scope_id):
        return False
    return not any(address in item for item in _NEVER_PUBLIC)


async def resolve_allowed(
    host: str, resolver: Resolver, *, besides: Sequence[Network] = ()
) -> tuple[str, ...]:
    """The addresses of a host that may be connected to.

    Raises:
        NetworkRefused: it has none.
    """
    try:
        addresses = [_parse_address(item) for item in await resolver(host)]
    except OSError as error:
        raise NetworkRefused(f"{host}: unknown host name") from error
    allowed = [
        str(item)
        for item in addresses
        if item is not None and (is_public(item) or any(item in network for network in besides))
    ]
    if not allowed:
        raise NetworkRefused(f"{host} has no public address, and no rule allows the address it has")
    return tuple(allowed)


def _parse_address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
