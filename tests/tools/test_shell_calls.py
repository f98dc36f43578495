"""bash: what each call is like, and what becomes of it when the harness or the sandbox dies."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.tools.open_sandbox import OpenSandbox
from tests.tools.shells import Session

from mainspring.core.content import plain_text


@pytest.fixture
def sandbox(tmp_path: Path) -> OpenSandbox:
    return OpenSandbox(tmp_path)


@pytest.fixture
def session(sandbox: OpenSandbox) -> Session:
    return Session(sandbox, sandbox.root)


async def test_a_missing_sandbox_is_a_result_and_not_a_crash(
    session: Session, sandbox: OpenSandbox
):
    sandbox.is_broken = True
    outcome = await session.outcome("true")
    assert outcome.error == "unavailable"
    assert "no sandbox works here" in plain_text(outcome.content)


async def test_a_finished_command_is_never_run_again(session: Session, sandbox: OpenSandbox):
    call = session.call(command="builtin echo x >> log; builtin echo done")
    await session.tool.run(call)
    probe = Session(sandbox, sandbox.root).tool.probe
    assert probe is not None
    found = await probe(call)
    assert found is not None
    assert plain_text(found.content) == "done"
    assert await probe(session.call(command="touch never")) is None
    sandbox.lose("key_9")
    lost = await probe(replace(call, idempotency_key="key_9"))
    assert lost is not None
    assert lost.error == "in_doubt"
    assert (sandbox.root / "log").read_text() == "x\n"


async def test_a_lost_read_is_repeated(session: Session, sandbox: OpenSandbox):
    call = session.call(command="echo again")
    sandbox.lose(call.idempotency_key)
    assert plain_text((await session.tool.run(call)).content) == "again"


async def test_stored_results_are_deleted_at_the_next_write(session: Session, sandbox: OpenSandbox):
    await session.text("touch a")
    await session.text("echo text")
    assert sandbox.forgotten == []
    await session.text("touch b")
    assert sorted(sandbox.forgotten) == ["key_1", "key_2"]
    assert list(sandbox.ran) == ["key_3"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("ls -la src", (True, True, "retry")),
        ("cd src", (True, False, "probe")),
        ("echo a; export B=1", (True, False, "probe")),
        ("echo a; . ./env", (True, False, "probe")),
        ("echo a; PATH=x", (True, False, "probe")),
        ("echo a; ls() { :; }", (True, False, "probe")),
        ("touch x", (False, False, "probe")),
    ],
)
def test_only_reads_that_cannot_change_the_shell_are_concurrent(
    session: Session, command: str, expected: tuple[bool, bool, str]
):
    traits = session.tool.traits({"command": command})
    assert (traits.read_only, traits.concurrent, traits.in_doubt) == expected
    assert traits.cascades is not traits.concurrent


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "command"),
        ({"command": "  "}, "command"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 200_000}, "bytes"),
        ({"command": "ls", "timeout_ms": 10_000_000}, "timeout_ms"),
        ({"command": "ls", "timeout_ms": -1}, "timeout_ms"),
        ({"command": 3}, "command"),
        ({"command": "ls", "cwd": "/"}, "cwd"),
    ],
)
def test_an_invalid_input_is_explained(session: Session, given: dict[str, object], word: str):
    assert word in (session.tool.invalid(given) or "")


async def test_the_preview_is_the_command(session: Session):
    assert session.tool.preview is not None
    assert await session.tool.preview(session.call(command="rm -rf x")) == "rm -rf x"
