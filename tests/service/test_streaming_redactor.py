"""What is shown of a message before it is whole, and what is not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.capabilities.vault.redaction import Scrubber, multi_word_secrets
from mainspring.runtime.session.streaming_redactor import BOUNDARIES, StreamingRedactor

SECRETS = {
    "WORD": "s3cr3t-pass-w0rd",
    "PHRASE": "correct horse battery staple",
    "LINES": "first line of it\nsecond line of it\n\tthird 'line' of it",
}
SCRUB, PASSAGES = Scrubber(SECRETS), multi_word_secrets(SECRETS, BOUNDARIES)
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cE3gI5"
CLAIM = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4ifQ.SflKxwRJSMeKKF2QT4fw"
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
KEY = (
    f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE}\nab12=\n-----END RSA PRIVATE KEY-----"
)
KEY_LINES = [
    "q2Vt8Yw3Zx6Ab9Cd1Ef4Gh7Ij0Kl5Mn2Op8Qr3St6Uv9Wx1Yz4Ab7Cd0Ef5Gh2Ij",
    "Kl8Mn3Op6Qr9St1Uv4Wx7Yz0Ab5Cd2Ef8Gh3Ij6Kl9Mn1Op4Qr7St0Uv5Wx2Yz8A",
    "Bc3De6Fg9Hi1Jk4Lm7No0Pq5Rs2Tu8Vw3Xy6Za9Bc1De4Fg7Hi0Jk5Lm2No8Pq3R",
    "St6Uv9Wx1Yz4Ab7Cd0Ef5Gh2IjKl8Mn3Op6Qr9St1Uv4Wx7Yz0Ab5Cd2Ef8Gh3Ij",
]
"""From the midst of a key."""
PLANTED = [
    *SECRETS.values(),
    TOKEN,
    CLAIM,
    KEY,
    "api_key = Zx81mQ0pLr7v",
    f"{TOKEN[:24]}\n{TOKEN[24:]}",
    "\n".join(KEY_LINES),
    "password: swordfishes\n",
    "Bearer q8w7e6r5t4y3u2i1",
    "passphrase: velvet tractor lantern pigeon\n",
    "echo marmalades | sudo -S true",
    "\n".join(f"{at}: {line}" for at, line in enumerate(KEY_LINES)),
    "<db_password>\n  marmalade\n</db_password>",
]
TELLTALE = [
    *("s3cr3t", "battery", "second", TOKEN[:10], CLAIM[:10], KEY_LINE[:10], "Zx81", "q8w7"),
    *("swordfish", "velvet", "tractor", "marmalade", TOKEN[24:], *KEY_LINES),
]
"""What there would be of each of them, had it come through."""


def redact_chunks(text: str, cuts: list[int]) -> str:
    redactor = StreamingRedactor(SCRUB, PASSAGES)
    places = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[one:other] for one, other in pairwise(places)]
    return "".join(map(redactor.add, pieces)) + redactor.close()


WORDS = st.lists(
    st.sampled_from(
        ["a", "correct", "horses", "first line of", "\n", "x: ", "。", ",", "first", "é"]
    ),
    max_size=8,
).map(" ".join)
CUTS = st.lists(st.integers(0, 400), max_size=60)


@given(WORDS, CUTS)
def test_text_without_secrets_is_unchanged(text: str, cuts: list[int]):
    assert redact_chunks(text, cuts) == text


@given(WORDS, st.sampled_from(PLANTED), WORDS, CUTS)
def test_a_secret_split_over_chunks_is_not_shown(
    before: str, secret: str, after: str, cuts: list[int]
):
    seen = redact_chunks(f"{before} {secret} {after}", cuts)
    assert [item for item in TELLTALE if item in seen] == []
    assert seen.startswith(f"{before} ")


@given(st.sampled_from(PLANTED), st.integers(1, 9))
def test_a_secret_that_arrives_in_steps_is_not_shown(secret: str, step: int):
    text = f"So it is {secret}, or {secret}"
    seen = redact_chunks(text, list(range(0, len(text), step)))
    assert [item for item in TELLTALE if item in seen] == []


@pytest.mark.parametrize("text", ["a \ud800 b ", "\udfff"])
def test_an_incomplete_character_is_not_shown(text: str):
    redactor = StreamingRedactor(SCRUB, PASSAGES)
    assert redactor.add(text) + redactor.add("and more ") + redactor.close() == ""


def test_a_word_is_shown_once_it_is_complete():
    redactor = StreamingRedactor(SCRUB, PASSAGES)
    assert [redactor.add(item) for item in ("Hel", "lo wor", "ld", "!\n", "元気です、か")] == [
        "",
        "Hello ",
        "",
        "world!\n",
        "元気です、",
    ]
    assert redactor.close() == "か"
