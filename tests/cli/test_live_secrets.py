"""Pieces of a reply are redacted as the log redacts the whole, wherever a piece ends."""

import json

from tests.cli.upstream import Upstream, call
from tests.fork_server import Run

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
WORDS = ("The token is ", SECRET[:10], SECRET[10:25], SECRET[25:], " and that", " is all.\n")
VAULT_SECRET = "correct horse battery staple"


def kept(text: str) -> bool:
    return any(SECRET[at : at + 12] in text for at in range(len(SECRET) - 12))


def test_no_piece_of_a_stream_has_a_part_of_a_secret(mainspring: Run, upstream: Upstream) -> None:
    upstream.says(*WORDS, call("bash", command=f"echo {SECRET}"))
    upstream.says("Done.")
    words = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
    ran = mainspring("-p", "go", *words, **upstream.variables)
    assert not kept(ran.stdout + ran.stderr)
    deltas = [
        item["event"]["delta"]
        for item in map(json.loads, ran.stdout.splitlines())
        if item["type"] == "stream_event" and item["event"]["type"] == "content_block_delta"
    ]
    text = "".join(delta.get("text", "") for delta in deltas)
    assert text.startswith("The token is [redacted:")
    assert "and that is all." in text
    inputs = [json.loads(delta["partial_json"]) for delta in deltas if delta.get("partial_json")]
    assert inputs == [{"command": "echo [redacted:github_token]"}]


def test_a_run_and_its_replay_print_no_part_of_a_secret(
    mainspring: Run, upstream: Upstream
) -> None:
    mainspring("vault", "set", "phrase", stdin=VAULT_SECRET)
    upstream.says(*WORDS, "It begins: correct ", "horse ", "battery ", "staple", ".\n")
    ran = mainspring("run", "go", **upstream.variables)
    assert ran.returncode == 0, ran.stderr
    replayed = mainspring("replay", "last")
    for text in (ran.stdout + ran.stderr, replayed.stdout + replayed.stderr):
        assert not kept(text)
        assert "horse" not in text
    assert "[redacted:" in ran.stdout
    assert "[phrase]" in ran.stdout
