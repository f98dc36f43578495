"""Texts that are made to be slow: what a detector does grows with the text and no faster."""

import json
import random
from base64 import b64encode

import msgspec
from tests.row_checks import for_each

from mainspring.capabilities.vault.detector_registry import DETECTORS
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.capabilities.vault.secret_detector import CUT_LABEL, ScanBudget

SHAPES = {
    "keys without an end": "-----BEGIN RSA PRIVATE KEY-----",
    "keys of one line": "-----BEGIN RSA PRIVATE KEY-----\nMIIabcIBAAAAAAAAAAAAAAAAAAAAAAAA\n",
    "beginnings of keys": "MIHvAgEB",
    "passwords without an end": '"password": "',
    "arrows": "secret => ",
    "wrapped tokens": "xapp-c\n",
    "base64 of words": "RH9BOCACc2RtWDUS ",
    "names": "pwd:",
    "URLs": "u://:0UBj@",
    "options": "--user X:gWC1+uEqPkX\t",
    "cookies": "set-cookie: c=~v]7W ",
    "JSON Web Keys": 'kty""k": \\\\\\"LumBnXOrpJkU2PygKeDe ',
    "short tokens": "xaat-",
    "brackets": "[",
}


def text_of(shape: str, size: int) -> str:
    return (shape * (size // len(shape) + 1))[:size]


class CountingBudget(ScanBudget):
    __slots__ = ("examined",)

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.examined = 0

    def take(self, count: int = 1) -> bool:
        self.examined += 1
        return super().take(count)


@for_each("shape", SHAPES.values())
def test_a_scan_examines_a_limited_number_of_candidates(shape: str) -> None:
    text = text_of(shape, 200_000).encode()
    for detector in DETECTORS:
        budget = CountingBudget(len(text))
        detector.redacted(text, budget)
        assert budget.examined <= 3_000, detector.kind


@for_each("shape", SHAPES.values())
def test_a_secret_after_any_flood_does_not_pass(shape: str) -> None:
    token = "ghp_" + "".join(random.Random(1).choices("abcdefghij0123456789", k=36))
    text = f"{text_of(shape, 60_000)}\n the token {token} \n"
    scrub = Scrubber({})
    for content in (text.encode(), json.dumps({"a": [text, "x"]}).encode()):
        clean = scrub(content)
        assert token.encode() not in clean
        assert scrub(clean) == clean


def test_a_text_of_nothing_but_candidates_is_cut_and_a_long_file_of_people_is_not() -> None:
    flood = b"token: get_next_item()\n" * 60_000
    assert CUT_LABEL in Scrubber({})(flood)
    people = b"A line that says nothing about tokens, as most lines of most files do.\n" * 5
    assert Scrubber({})((people + b"token: get_next_item()\n") * 3_000).count(CUT_LABEL) == 0


@for_each(
    "text",
    [
        "LS0tLS1CRUdJTi=i0b1E3BDLe0D4pAxkvKWB/RICPDg3F7xADh+vSGyvAB=PLMhpZm9y5Lz6d4/Uyl9z7/tUh" * 2,
        "LS0tLS1CRUdJTi4PWEC8COvaDaHoRsB2=b=WQyEW08isYS4=Ta" + "A" * 60,
        "mXmM6aUkPXAFEVTQt\\\\n ~qk-265715→ YG8a\\n18351",
        "eyoCMHt8OyotCww/e" + b64encode(b"password=").decode(),
    ],
)
def test_base64_that_is_broken_is_only_text(text: str) -> None:
    assert Scrubber({})(f" {text} ".encode())


@for_each("shape", SHAPES.values())
def test_json_that_is_a_flood_of_candidates_stays_valid_json(shape: str) -> None:
    for strings in ([text_of(shape, 200_000)], [shape] * 20_000, [text_of(shape, 1_000)] * 200):
        event = {"type": "tool.returned", "content": strings, "id": f"sevt_{'0a' * 16}"}
        event |= {"is_error": False, "known": "correcthorse", "at": "2026-11-19T22:31:55.123Z"}
        clean = msgspec.json.decode(Scrubber({"DB": "correcthorse"})(msgspec.json.encode(event)))
        assert clean.pop("known") in ("[DB]", CUT_LABEL.decode())
        assert len(clean.pop("content")) == len(strings)
        assert clean.items() <= event.items()


def test_many_keys_that_are_numbers_leave_valid_json() -> None:
    event = {"type": "x", "rows": [[number % 256 for number in range(64)]] * 9_000, "last": "y"}
    clean = msgspec.json.decode(Scrubber({})(msgspec.json.encode(event)))
    assert clean == {"type": "x", "rows": [[]] * 9_000, "last": "y"}


def test_json_deeper_than_any_reader_accepts_is_redacted_as_text() -> None:
    token = "ghp_" + "".join(random.Random(1).choices("abcdefghij0123456789", k=36))
    deep = b"[" * 200_000 + f'"{token}"'.encode() + b"]" * 200_000
    assert token.encode() not in Scrubber({})(deep)


@for_each("order", [("kty", "crv", "d"), ("d", "kty", "crv"), ("crv", "d", "kty")])
def test_a_json_web_key_is_redacted_in_any_order_of_its_members(order: tuple[str, ...]) -> None:
    private = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
    members = {"kty": "OKP", "crv": "Ed25519", "d": private}
    key = json.dumps({name: members[name] for name in order})
    for content in (key, f"the key is {key}\n", json.dumps({"text": key})):
        assert private.encode() not in Scrubber({})(content.encode()), content
