"""The scrubber: what it takes out, what it leaves alone, and that JSON stays what it was."""

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import cast
from urllib.parse import quote

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.row_checks import for_each
from tests.vault.planted import HARMLESS, planted

from mainspring.capabilities.vault.redaction import Scrubber

KNOWN = 'p"ss wörd/+\\n1'
scrub = Scrubber({"DB": KNOWN, "PIN": "8675309123", "SHORT": "abc"})
PLANTED = planted()


def test_more_than_fifty_kinds_of_secrets_are_known():
    assert len(PLANTED) >= 50


@for_each("kind", PLANTED)
def test_a_secret_of_every_kind_is_scrubbed_from_text_and_json(kind: str):
    text, secret = PLANTED[kind]
    for wrap in ("{}", "x\n{}\n", "\x1b[31m{}\x1b[0m", "a\t{}"):
        said = wrap.replace("{}", text)
        assert secret.encode() not in scrub(said.encode())
        body = msgspec.json.encode({"type": "user.message", "content": [{"text": said}]})
        assert secret not in json.dumps(json.loads(scrub(body)), ensure_ascii=False)
        nested = msgspec.json.encode({"text": json.dumps({"said": said})})  # JSON within JSON
        assert json.dumps(secret)[1:-1] not in json.loads(scrub(nested))["text"]
        for content in (said.encode(), body, nested):
            assert scrub(scrub(content)) == scrub(content)


@for_each("text", HARMLESS.values())
def test_text_that_only_resembles_a_secret_stays(text: str):
    assert scrub(text.encode()) == text.encode()
    body = msgspec.json.encode({"text": text, "more": [text]})
    assert scrub(body) == body


def test_an_image_is_unchanged():
    noise = b"".join(hash_of(n) for n in range(20_000))
    for image in (b64encode(noise), urlsafe_b64encode(noise), noise):
        assert scrub(image) == image


def hash_of(number: int) -> bytes:
    return (number * 2654435761 % 2**64 ^ number << 17).to_bytes(16, "big")


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": lambda value: value,
    "in base64": lambda value: b64encode(value.encode()).decode(),
    "in base64, after something": lambda value: b64encode(f"user:{value}".encode()).decode(),
    "in base64 for URLs": lambda value: urlsafe_b64encode(f"x{value}yz".encode()).decode(),
    "in a URL": lambda value: quote(value, safe=""),
    "in JSON": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "in hexadecimal": lambda value: value.encode().hex(),
    "in HEXADECIMAL": lambda value: value.encode().hex().upper(),
}


@for_each("way", WAYS.values())
def test_a_known_secret_is_scrubbed_in_every_encoding(way: Callable[[str], str]):
    written = way(KNOWN)
    for content in (f"<{written}>".encode(), msgspec.json.encode({written: [f"<{written}>"]})):
        clean = scrub(content)
        assert b"[DB]" in clean
        assert written[3:-4].encode() not in clean


def test_a_known_number_is_scrubbed_from_numbers_and_text():
    assert scrub(b'{"pin":8675309123,"say":"8675309123"}') == b'{"pin":0,"say":"[PIN]"}'


def test_the_value_of_a_password_field_is_scrubbed():
    body = b'{"input":{"password":"Tr0ub4dor&3x","user":"Tr0ub4dor&3x"}}'
    clean = b'{"input":{"password":"[redacted:assigned_secret]","user":"Tr0ub4dor&3x"}}'
    assert scrub(body) == clean


NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | NUMBERS | st.text()
TRICKY = st.sampled_from([8675309123, KNOWN, f'say "{KNOWN}"', "password=", "token:", '"', "\\"])
NAMES = st.sampled_from(["password", "token", "x"]) | st.text(max_size=5)
VALUES = st.recursive(
    PLAIN | TRICKY | st.sampled_from([text for text, _ in PLANTED.values()]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {name: shape(each) for name, each in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [shape(item) for item in cast("list[object]", value)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), VALUES, max_size=4))
def test_scrubbed_json_keeps_its_shape_and_scrubbing_is_idempotent(value: object):
    body = msgspec.json.encode(value)
    clean = scrub(body)
    assert shape(json.loads(clean)) == shape(json.loads(body))
    assert scrub(clean) == clean
    assert KNOWN not in json.dumps(json.loads(clean), ensure_ascii=False)


def test_what_a_redaction_leaves_is_redacted_too():
    key = "000:MII000IBAA" + "0" * 20 + "\r" + "0" * 240 + "\r" + "0" * 73 + "=\r0:-----END 0-----"
    clean = scrub(msgspec.json.encode({"a": {"password": key}}))
    assert scrub(clean) == clean


@given(st.binary(max_size=300) | st.text().map(str.encode))
def test_scrubbing_any_bytes_is_idempotent(content: bytes):
    assert scrub(scrub(content)) == scrub(content)


@given(
    st.lists(
        st.sampled_from([secret for _, secret in PLANTED.values()])
        | st.sampled_from(
            ["password=", " ", '"', "\\n", "token: ", "Bearer ", "://a:", "@", "[", "]"]
        ),
        max_size=6,
    )
)
def test_scrubbing_secrets_in_any_context_is_idempotent(parts: list[str]):
    content = "".join(parts).encode()
    assert scrub(scrub(content)) == scrub(content)


def test_many_long_tokens_are_scrubbed():
    tokens = {f"TOKEN_{number}": f"eyJhbGciOiJSUzI1NiJ9{number:04}" * 80 for number in range(40)}
    scrub = Scrubber(tokens)
    said = " ".join(tokens.values()).encode()
    assert scrub(said) == " ".join(f"[{name}]" for name in tokens).encode()


def test_a_partial_match_stays_and_hides_no_secret_after_it():
    scrub = Scrubber(
        {"LONG": "one-two-three-four-five", "SHORT": "one-two-th", "NEXT": "two-three-6"}
    )
    assert scrub(b"one-two-three-four-five") == b"[LONG]"
    assert scrub(b"one-two-three-four") == b"[SHORT]ree-four"
    assert scrub(b"one-two-two-three-6") == b"one-two-[NEXT]"


def test_a_secret_learned_later_is_scrubbed_from_then_on():
    scrub = Scrubber({"DB": KNOWN})
    text = f"{KNOWN} and late-0a1b2c3d4e5f6071".encode()
    assert scrub(text) == b"[DB] and late-0a1b2c3d4e5f6071"
    scrub.learn({"LATE": "late-0a1b2c3d4e5f6071"})
    assert scrub(text) == b"[DB] and [LATE]"
