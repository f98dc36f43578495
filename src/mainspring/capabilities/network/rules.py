"""Which hosts a session may reach, and how. Data and pure decisions; what no rule allows is
denied."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Literal, TypeAlias
from urllib.parse import unquote_to_bytes

import msgspec
import re2
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.events import NetworkRequested

Network: TypeAlias = IPv4Network | IPv6Network
Scheme: TypeAlias = Literal["https", "http"]

PORTS: Mapping[Scheme, int] = {"https": 443, "http": 80}
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_METHOD = re.compile(r"[A-Z]{1,20}")
_NEVER = frozenset(("CONNECT", "TRACE"))
_LONGEST_PATH = 500  # characters of a path in a refusal


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """A request as the rules see it."""

    scheme: Scheme
    host: str
    port: int
    method: str = "GET"
    path: str = "/"
    """Without the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRule:
    host: str
    """A name, `*.` and a name for all its subdomains, `*` for every name, or an IPv4 address."""
    methods: frozenset[str] = frozenset()
    """Allowed methods; all if empty."""
    paths: tuple[str, ...] = ()
    """`*` matches anything but a slash, `**` anything. All paths if empty."""
    plain_http: bool = False
    ports: frozenset[int] = frozenset()
    """Allowed ports in addition to the default one."""
    addresses: tuple[Network, ...] = ()
    """Addresses that the host may have although they are not public."""

    def covers(self, host: str, port: int, scheme: Scheme) -> bool:
        """Whether a connection may be made; `allows` decides on each request over it."""
        if scheme == "http" and not self.plain_http:
            return False
        if port != PORTS[scheme] and port not in self.ports:
            return False
        return is_host(host, self.host)

    def allows(self, request: EgressRequest) -> bool:
        if not self.covers(request.host, request.port, request.scheme) or request.method in _NEVER:
            return False
        if self.methods and request.method not in self.methods:
            return False
        if not self.paths:
            return True
        path = _plain_path(request.path)
        return path is not None and any(_matches(path, item) for item in self.paths)


@dataclass(frozen=True, slots=True)
class EgressRules:
    """An allow list. The first rule that allows a request is recorded."""

    rules: tuple[EgressRule, ...] = field(default=())
    outer: EgressRules | None = None
    """Another list that must also allow each request."""

    def covering(self, host: str, port: int, scheme: Scheme) -> tuple[EgressRule, ...]:
        if self.outer is not None and not self.outer.covering(host, port, scheme):
            return ()
        return tuple(rule for rule in self.rules if rule.covers(host, port, scheme))

    def allowing(self, request: EgressRequest) -> EgressRule | None:
        if self.outer is not None and self.outer.allowing(request) is None:
            return None
        return next((rule for rule in self.rules if rule.allows(request)), None)

    def addresses(self, host: str, port: int, scheme: Scheme) -> tuple[Network, ...]:
        """Addresses that are not public and that the host may have anyway. An inner list cannot add
        to them."""
        if self.outer is not None:
            return self.outer.addresses(host, port, scheme)
        rules = self.covering(host, port, scheme)
        return tuple(address for rule in rules for address in rule.addresses)


ALL_HOSTS = EgressRules((EgressRule(host="*", plain_http=True),))
"""Every public host: an address that is not public must be named in a rule."""


class _Host(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: str
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    plain_http: bool = False
    ports: tuple[int, ...] = ()
    addresses: tuple[str, ...] = ()


class _Networking(Struct, frozen=True, kw_only=True):
    type: Literal["unrestricted", "limited"] = "limited"
    allowed_hosts: tuple[str | _Host, ...] = ()


def parse_rules(settings: object) -> EgressRules:
    """Parse `networking` of an environment: `unrestricted`, or `limited` to `allowed_hosts`.

    Raises:
        InvalidInput: the rules are not valid.
    """
    try:
        networking = msgspec.convert(settings, _Networking)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"networking: {error}") from error
    rules = tuple(_parse_rule(allowed_host) for allowed_host in networking.allowed_hosts)
    if networking.type == "unrestricted":
        return EgressRules((*rules, *ALL_HOSTS.rules))
    return EgressRules(rules)


def _parse_rule(entry: str | _Host) -> EgressRule:
    host = _Host(host=entry) if isinstance(entry, str) else entry
    for method in host.methods:
        if not _METHOD.fullmatch(method) or method in _NEVER:
            raise InvalidInput(f"{host.host}: {method!r} is not a method that can be allowed")
    for path in host.paths:
        if not path.startswith("/"):
            raise InvalidInput(f"{host.host}: {path!r}: a path must start with /")
    for port in host.ports:
        if not 0 < port < 65536:
            raise InvalidInput(f"{host.host}: {port} is not a valid port")
    return EgressRule(
        host=_parse_host(host.host, may_be_address=bool(host.addresses)),
        methods=frozenset(host.methods),
        paths=host.paths,
        plain_http=host.plain_http,
        ports=frozenset(host.ports),
        addresses=tuple(_parse_range(host.host, address) for address in host.addresses),
    )


def _parse_host(text: str, *, may_be_address: bool) -> str:
    """An address needs `addresses` beside it: no list of names allows one by mistake."""
    wildcard = "*." if text.startswith("*.") else ""
    host = host_name(text[len(wildcard) :])
    if host is None and may_be_address:
        host = ipv4_address(text)
    if host is None:
        wrong = InvalidInput(f"allowed_hosts: {text!r} is not a host name")
        wrong.add_note("api.example.com, or *.example.com for all below it; no address, no URL")
        raise wrong
    return wildcard + host


def _parse_range(host: str, text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidInput(f"{host}: addresses: {error}") from error


def host_name(text: str) -> str | None:
    """A host name in canonical form; `None` for an address or anything else."""
    name = text.lower().removesuffix(".")
    if not text.isascii() or len(name) > 253 or not _HOST.fullmatch(name):
        return None
    if _NUMBER.fullmatch(name.rpartition(".")[2]):  # 127.0.0.1, 127.1, 2130706433, 0x7f000001
        return None
    return name


def ipv4_address(text: str) -> str | None:
    """An IPv4 address as it is usually written; `None` for other ways to write it, and anything
    else."""
    try:
        return text if str(IPv4Address(text)) == text else None
    except ValueError:
        return None


def is_host(host: str, pattern: str) -> bool:
    """`*.example.com` matches all subdomains of example.com, but not example.com itself; `*` no
    address."""
    if pattern == "*":
        return ipv4_address(host) is None
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern


def network_fact(
    request: EgressRequest,
    rule: EgressRule | None,
    *,
    status: int | None = None,
    used: Iterable[str] = (),
) -> NetworkRequested:
    """The event for the log: a request, the rule that allowed it if any, and the credentials in
    it."""
    return NetworkRequested(
        host=request.host[:255],
        decision="deny" if rule is None else "allow",
        rule=None if rule is None else rule.host,
        method=request.method,
        path=request.path[:_LONGEST_PATH],
        status=status,
        credential=",".join(used) or None,
    )


def _plain_path(path: str) -> str | None:
    """The path as servers will parse it; `None` if they might parse it differently."""
    plain = unquote_to_bytes(path).decode("latin-1")
    if not plain.startswith("/") or "%" in plain or "\\" in plain or not plain.isprintable():
        return None
    if "%2f" in path.lower() or ";" in plain:
        return None
    inner = plain.split("/")[1:]
    if any(item in (".", "..") for item in inner) or "" in inner[:-1]:
        return None
    return plain


def _matches(path: str, glob: str) -> bool:
    return _glob(glob).fullmatch(path) is not None


@cache
def _glob(glob: str) -> re2.Pattern[str]:
    """A glob as an RE2 pattern, which is linear for any path and any number of stars."""
    parts = re.split(r"(\*+)", glob)
    pattern_text = (
        ("[^/]*" if part == "*" else ".*") if part.startswith("*") else re.escape(part)
        for part in parts
    )
    return re2.compile("".join(pattern_text))
