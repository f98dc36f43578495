"""docs/security.md names tests that exist, for every promise."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text(encoding="utf-8")
PROMISES = TEXT.partition("## Promises")[2].partition("## Not promised")[0]


def test_every_promise_names_existing_tests():
    rows = re.findall(r"^\| (.+) \| (.+) \|$", PROMISES, re.MULTILINE)
    promises = [(promise, tests) for promise, tests in rows if promise != "promise"]
    assert len(promises) > 15
    for promise, tests in promises:
        named = re.findall(r"`(tests/[\w/.]+)`", tests)
        assert named, promise
        assert [path for path in named if not (ROOT / path).exists()] == [], promise
