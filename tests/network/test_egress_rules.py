"""Allow lists: what they say, and what cannot be said."""

import ssl
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.network.internet import SESSION
from tests.row_checks import for_each

from mainspring.capabilities.network.addresses import is_public
from mainspring.capabilities.network.placeholders import Placeholders
from mainspring.capabilities.network.rules import (
    ALL_HOSTS,
    EgressRequest,
    EgressRule,
    host_name,
    parse_rules,
)
from mainspring.capabilities.vault.known_values import KnownValues
from mainspring.core.errors import InvalidInput
from mainspring.core.ports import Credential


def options(
    host: str = "api.test", path: str = "/", method: str = "GET", port: int = 443
) -> EgressRequest:
    return EgressRequest("https", host, port, method, path)


def test_without_settings_nothing_is_allowed():
    for settings in ({}, {"type": "limited"}, {"allowed_hosts": ()}):
        assert parse_rules(settings).allowing(options()) is None


def test_hosts_are_listed_by_name_or_with_conditions():
    listed = [
        "API.test.",
        {"host": "*.x.test", "methods": ["GET"], "paths": ["/a/**"], "ports": [8443]},
    ]
    rules = parse_rules({"type": "limited", "allowed_hosts": listed, "allow_mcp_servers": True})
    assert rules.allowing(options()) == EgressRule(host="api.test")
    assert rules.allowing(options("b.x.test", "/a/b/c", port=8443)) is not None
    for refused in (
        options("x.test", "/a/b"),
        options("b.x.test", "/b"),
        options("b.x.test", "/a/b", "PUT"),
        options("b.x.test", "/a/b", port=22),
        options(method="CONNECT"),
        options(method="TRACE"),
        EgressRequest("http", "api.test", 80),
    ):
        assert rules.allowing(refused) is None


def test_a_nested_list_allows_only_what_both_allow():
    private = {"host": "a.test", "addresses": ["10.0.0.0/8"]}
    outer = parse_rules({"allowed_hosts": ["a.test", {"host": "b.test", "methods": ["GET"]}]})
    for inner in ({"type": "unrestricted"}, {"allowed_hosts": [private, "b.test", "c.test"]}):
        rules = replace(parse_rules(inner), outer=outer)
        assert rules.allowing(options("a.test")) is not None
        assert rules.allowing(options("b.test", method="PUT")) is None
        assert rules.allowing(options("c.test")) is None
        assert rules.covering("c.test", 443, "https") == ()
        assert rules.addresses("a.test", 443, "https") == ()
    assert replace(parse_rules({}), outer=ALL_HOSTS).allowing(options()) is None


def test_unrestricted_allows_every_host_at_the_usual_ports():
    rules = parse_rules({"type": "unrestricted"})
    assert rules == ALL_HOSTS
    assert rules.allowing(options("any.test")) is not None
    assert rules.allowing(options("any.test", port=25)) is None
    assert rules.addresses("any.test", 443, "https") == ()


@for_each(
    "host",
    [
        "",
        "*",
        "*.",
        "https://a.test",
        "a.test/x",
        "a.test:443",
        "10.0.0.1",
        "1",
        "a..b",
        "ä.test",
        "-a.test",
        "*.*.test",
        "a*.test",
        "[::1]",
        "a b.test",
        "a.0x1",
    ],
)
def test_an_invalid_host_is_refused(host: str):
    with pytest.raises(InvalidInput):
        parse_rules({"allowed_hosts": [host]})


@for_each(
    "wrong",
    [
        "limited",
        {"type": "open"},
        {"allowed_hosts": [{"host": "a.test", "method": ["GET"]}]},
        {"allowed_hosts": [{"host": "a.test", "methods": ["CONNECT"]}]},
        {"allowed_hosts": [{"host": "a.test", "methods": ["get"]}]},
        {"allowed_hosts": [{"host": "a.test", "paths": ["a"]}]},
        {"allowed_hosts": [{"host": "a.test", "ports": [0]}]},
        {"allowed_hosts": [{"host": "a.test", "addresses": ["10.0.0.1/8"]}]},
    ],
)
def test_invalid_settings_are_refused(wrong: object):
    with pytest.raises(InvalidInput):
        parse_rules(wrong)


@given(st.ip_addresses())
def test_an_address_is_never_a_host_name_and_public_means_global(address: object):
    assert host_name(str(address)) is None
    if is_public(address):  # pyright: ignore[reportArgumentType]
        assert address.is_global  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@given(st.text(max_size=40), st.sampled_from(["/a/*", "/a/**", "/a/*/c", "/**/x"]))
def test_an_allowed_path_stays_below_its_folder(rest: str, glob: str):
    rule = EgressRule(host="api.test", paths=(glob,))
    path = f"/a/{rest}"
    if rule.allows(options(path=path)):
        assert ".." not in path.split("/")
        assert "%2e" not in path.lower() or "/." not in path


SECRETS = ("tok12345", "tok12345-and-more", "aaaaaaab", "zyxw9876")


@given(
    st.lists(st.one_of(st.sampled_from(SECRETS), st.text("tok1aab-", max_size=6)), max_size=8),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_cleaning_does_not_depend_on_chunking(parts: list[str], cuts: list[int]):
    numbers = iter(range(10))
    placeholders = Placeholders(
        [Credential(name=item, value=item, hosts=()) for item in SECRETS],
        KnownValues,
        lambda: f"<{next(numbers)}>",
    )
    said = "".join(parts).encode()
    at = sorted({min(cut, len(said)) for cut in cuts} | {0, len(said)})
    cleaner = placeholders.cleaner()
    pieces = [cleaner.feed(said[a:b]) for a, b in pairwise(at)]
    assert b"".join([*pieces, cleaner.end()]) == placeholders.clean(said)
    assert not any(secret.encode() in placeholders.clean(said) for secret in SECRETS)


def test_only_a_possible_start_of_a_secret_is_held_back():
    placeholders = Placeholders([Credential(name="A", value="tok12345", hosts=())], KnownValues)
    cleaner = placeholders.cleaner()
    assert cleaner.feed(b"data: 1\n\n") == b"data: 1\n\n"
    assert cleaner.feed(b"data: to") == b"data: "
    assert cleaner.feed(b"p\n\n") == b"top\n\n"


CLIENT = ssl.create_default_context()


@given(st.from_regex(r"[a-z0-9_.\-]{1,80}", fullmatch=True))
def test_every_valid_host_name_gets_a_certificate(written: str):
    if (host := host_name(written)) is not None:
        context = SESSION.context(host)
        CLIENT.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=host)
        assert isinstance(context, ssl.SSLContext)
