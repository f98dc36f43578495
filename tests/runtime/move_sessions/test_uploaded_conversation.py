"""What a server takes out of a log that a client has sent, and what it refuses to open."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.log.sample_sessions import asks, opened, says
from tests.senders import TESTER

from mainspring.core.content import BlobSource, ImageBlock, TextBlock, UrlSource, plain_text
from mainspring.core.errors import InvalidInput, TooLarge
from mainspring.core.events import (
    AgentMcpToolUse,
    AgentThinking,
    AgentToolResult,
    AgentToolUse,
    ContextCompacted,
    KnownPayload,
    MessageWithheld,
    ModelRequestEnded,
    ModelRequestStarted,
    SessionCreated,
    StatusIdle,
    StatusRunning,
    StopReason,
    ToolCallStarted,
    Usage,
    UserMessage,
)
from mainspring.harness.state.thread_tree import ThreadTree
from mainspring.log.session_log import SessionLog
from mainspring.runtime.import_sessions.import_store import store_new_session
from mainspring.runtime.import_sessions.source_session import SourcePrompt, SourceSession
from mainspring.runtime.move_sessions.session_bundle import UploadLimits, check_headers
from mainspring.runtime.move_sessions.uploaded_conversation import read_conversation

NEW = f"sesn_{'1' * 32}"
WAITING = StatusIdle(stop_reason=StopReason(type="requires_action"), reason="requires_action")


@pytest.fixture
async def log(tmp_path: Path) -> AsyncGenerator[SessionLog]:
    async with opened(tmp_path / "log.db") as made:
        yield made


class Client:
    """Somebody who writes a log."""

    def __init__(self, log: SessionLog, session_id: str, thread_id: str) -> None:
        self.log = log
        self.session_id = session_id
        self.thread_id = thread_id

    @classmethod
    async def on(cls, log: SessionLog) -> Client:
        session = await log.create(SessionCreated(title="Prices"))
        return cls(log, session.id, session.thread_id)

    async def writes(self, *payloads: KnownPayload) -> list[str]:
        writer = await self.log.hold(self.session_id, owner="client")
        events = await writer.append(*payloads)
        await writer.release()
        return [event.id for event in events]

    async def replies(self, *parts: KnownPayload, is_error: bool = False) -> list[str]:
        start, *made = await self.writes(ModelRequestStarted(), *parts)
        await self.writes(
            ModelRequestEnded(model_request_start_id=start, model_usage=Usage(), is_error=is_error)
        )
        return made

    async def source(self, **blobs: bytes) -> SourceSession:
        events = await self.log.read(self.session_id)
        return read_conversation(events, thread_id=self.thread_id, blobs=blobs)

    async def messages(self) -> list[str]:
        """What the model is sent by the server that has received it."""
        source = await self.source()
        now = (await self.log.read(self.session_id))[-1].time
        await store_new_session(self.log, source, session_id=NEW, now=now, importer=TESTER)
        session = await self.log.session(NEW)
        thread = ThreadTree.of(await self.log.read(NEW), session.thread_id).main.thread
        self.unsettled = [call.name for call in thread.unsettled_calls()]
        self.is_running = thread.running
        return [str(message) for message in thread.transcript.upcoming()]


async def test_the_model_continues_with_the_messages_and_the_summary_of_the_rest(log: SessionLog):
    client = await Client.on(log)
    [old] = await client.writes(asks("an old question"))
    await client.writes(StatusRunning())
    await client.replies(AgentThinking(text="hm", signature="forged"), says("an old answer"))
    last = (await log.session(client.session_id)).head.seq
    await client.writes(
        ContextCompacted(layer="auto", first_seq=2, last_seq=last, summary="what was before"),
        asks("a new question"),
    )
    [withheld] = await client.writes(asks("a secret"))
    await client.writes(MessageWithheld(event_id=withheld))
    [call] = await client.replies(AgentToolUse(name="read", input={"file_path": "a"}))
    await client.writes(AgentToolResult(tool_use_id=call, content=(TextBlock("content of a"),)))
    await client.replies(says("a new answer"))
    text = " ".join(await client.messages())
    for there in ("what was before", "a new question", "content of a", "a new answer"):
        assert there in text
    for absent in ("an old answer", "a secret", "forged", old):
        assert absent not in text
    assert not client.unsettled
    assert not client.is_running


async def test_unstarted_calls_stay_open_and_started_ones_are_in_doubt(log: SessionLog):
    client = await Client.on(log)
    await client.writes(asks("do it"), StatusRunning())
    _, begun, _ = await client.replies(
        AgentToolUse(name="write", input={}),
        AgentToolUse(name="bash", input={}),
        AgentMcpToolUse(mcp_server_name="s", name="post", input={}),
    )
    await client.writes(ToolCallStarted(tool_use_id=begun, idempotency_key="k"), WAITING)
    await client.messages()
    assert client.unsettled == ["write"]
    assert client.is_running


async def test_an_aborted_reply_brings_no_calls(log: SessionLog):
    client = await Client.on(log)
    await client.writes(asks("do it"), StatusRunning())
    await client.replies(AgentToolUse(name="write", input={}), is_error=True)
    await client.writes(WAITING)
    await client.messages()
    assert client.unsettled == []


async def test_only_media_from_the_bundle_are_used(log: SessionLog):
    client = await Client.on(log)
    sources = (
        BlobSource(hash="here", size=1, media_type="image/png"),
        BlobSource(hash="elsewhere", size=1, media_type="image/png"),
        UrlSource(url="https://example.com/a.png"),
    )
    await client.writes(UserMessage(content=tuple(ImageBlock(source=source) for source in sources)))
    [prompt] = (await client.source(here=b"x")).main.items
    assert isinstance(prompt, SourcePrompt)
    content = prompt.content
    assert isinstance(content[0], ImageBlock)
    assert plain_text(content).count("stayed on the other machine") == 2
    assert "example.com" not in str(content)


def archive_of(*entries: tarfile.TarInfo) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(bytes(entry.size)))
    return made.getvalue()


def entry_of(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry


def test_misleading_tar_headers_are_refused(tmp_path: Path):
    file, small = tmp_path / "a.tar", UploadLimits(max_bytes=1 << 20, max_entries=2)
    file.write_bytes(archive_of(entry_of("a"), entry_of("ü" * 150)))
    check_headers(file, small)
    file.write_bytes(archive_of(*(entry_of(name) for name in "abc")))
    with pytest.raises(TooLarge, match="2 files"):
        check_headers(file, small)
    file.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(TooLarge, match="1,048,576 bytes"):
        check_headers(file, small)
    long = archive_of(entry_of("x" * 200))
    pax = long[:1024]
    for content in (
        archive_of(entry_of("a", 100, tarfile.GNUTYPE_LONGNAME)),
        archive_of(entry_of("a", 100, tarfile.XGLTYPE)),
        archive_of(entry_of("a", 20_000, tarfile.XHDTYPE)),
        archive_of(entry_of("a", 100, tarfile.DIRTYPE)),
        archive_of(entry_of("a", 2000))[:1024],
        pax * 3 + long,
        long.replace(b" path=", b" size="),
        long.replace(b"path=", b"pat\n="),
        b"",
    ):
        file.write_bytes(content)
        with pytest.raises(InvalidInput):
            check_headers(file, small)
