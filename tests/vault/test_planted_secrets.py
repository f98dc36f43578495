"""Secrets of fifty kinds and more, said by people, tools and a model: none is kept, none is read
by the model again, none is printed."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from tests.cli.conftest import Run, environ, mainspring, place, upstream
from tests.cli.upstream import Upstream
from tests.harness.session_setup import Stage
from tests.vault.planted import planted
from tests.written_files import write_file

from mainspring.capabilities.providers.scripted import Scripted, calls, says
from mainspring.capabilities.vault.redaction import Scrubber
from mainspring.core.content import TextBlock
from mainspring.core.events import ModelRequestStarted
from mainspring.core.model import ToolSpec
from mainspring.core.tool import Call, Tool, ToolResult, Traits
from mainspring.log.session_log import SessionLog
from mainspring.log.sqlite import open_sqlite

__all__ = ["environ", "mainspring", "place", "upstream"]  # fixtures

KNOWN = {"VAULTED": "correct horse battery staple 9"}


def leaking_tool(texts: Mapping[str, tuple[str, str]]) -> Tool:
    """A tool that shows everything, at once and in a result that is too long for the log."""

    async def show(call: Call) -> ToolResult:
        said = "\n".join(text for text, _ in texts.values()) + "\n" + KNOWN["VAULTED"]
        padding = "x " * 40_000 if call.input.get("long") else ""
        return ToolResult((TextBlock(f"{said}\n{padding}\n{said}"),))

    return Tool(
        spec=ToolSpec(
            name="show",
            description="\n".join(text for text, _ in texts.values()),
            input_schema={"type": "object", "default": {"key": KNOWN["VAULTED"]}},
        ),
        run=show,
        traits=lambda _: Traits(max_chars=30_000),
    )


@asynccontextmanager
async def scrubbed_stage(path: Path, model: Scripted, tool: Tool) -> AsyncGenerator[Stage]:
    async with open_sqlite(path / "log.db") as store:
        log = SessionLog(store, scrub=Scrubber(KNOWN))
        session = await log.create()
        yield Stage(log=log, session_id=session.id, model=model, tools={"show": tool})


def find_leaks(content: bytes, texts: Mapping[str, tuple[str, str]]) -> list[str]:
    """The kinds of which a secret is there, as it is or as JSON writes it."""
    found = [
        kind
        for kind, (_, secret) in texts.items()
        if secret.encode() in content or json.dumps(secret)[1:-1].encode() in content
    ]
    return found + [name for name, value in KNOWN.items() if value.encode() in content]


async def test_no_secret_reaches_the_log_the_blobs_or_the_context(tmp_path: Path):
    people, tools, models = planted(1), planted(2), planted(3)
    model = Scripted(
        calls("show", **{kind: text for kind, (text, _) in models.items()}),
        calls("show", long=True),
        says("\n".join(text for text, _ in models.values())),
        says("done"),
    )
    async with scrubbed_stage(tmp_path, model, leaking_tool(tools)) as stage:
        await stage.play("\n".join(text for text, _ in people.values()) + KNOWN["VAULTED"])
        await stage.play("and now?")
        for event in await stage.events():
            if isinstance(event.payload, ModelRequestStarted):
                assert await stage.log.blob(event.payload.prefix or "")
    written = b"".join(item.read_bytes() for item in tmp_path.rglob("*") if item.is_file())
    assert b"[redacted:github_token]" in written
    assert b"[VAULTED]" in written
    context = b"".join(msgspec.json.encode(request) for request in model.requests)
    assert context.count(b"[redacted:github_token]") > 4
    for texts in (people, tools, models):
        assert find_leaks(written, texts) == []
        assert find_leaks(context, texts) == []


def test_no_typed_secret_is_sent_or_printed(
    mainspring: Run, upstream: Upstream, place: Path, environ: dict[str, str], tmp_path: Path
):
    texts = planted(4)
    write_file(
        Path(environ["HOME"]) / ".mainspring/models.toml",
        '[models."ollama:test"]\nwindow = 32_768\n',
    )
    vault = {"MAINSPRING_VAULT": str(tmp_path / "vault.json")}
    kept = mainspring("vault", "set", "VAULTED", stdin=KNOWN["VAULTED"], **vault)
    assert kept.returncode == 0, kept.stderr
    upstream.says("I have seen nothing.")
    prompt = "\n".join(text for text, _ in texts.values()) + "\n" + KNOWN["VAULTED"]
    ran = mainspring("run", "--json", stdin=prompt, **upstream.variables, **vault)
    assert ran.returncode == 0, ran.stderr
    asked = json.dumps(upstream.requests).encode()
    assert b"[VAULTED]" in asked
    assert find_leaks(asked, texts) == []
    assert find_leaks((ran.stdout + ran.stderr).encode(), texts) == []
