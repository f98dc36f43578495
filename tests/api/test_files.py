from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path

import anthropic
import anyio
import httpx2
import pytest
from anthropic import AsyncAnthropic
from hypothesis import given
from hypothesis import strategies as st
from tests.api.api_server import Served, collect, ids, served

from mainspring.edges.api.file_transfer import content_disposition
from mainspring.edges.api.route import routes_of
from mainspring.edges.api.routes.define.files import FileRoutes
from mainspring.service.resources.file_resources import (
    Files,
    NewFile,
    normalize_filename,
    normalize_media_type,
)

MAX_BYTES = 200_000
KEY = {"x-api-key": "acme:admin"}


class SetClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def api(tmp_path: Path, clock: SetClock) -> AsyncGenerator[Served]:
    async with served(
        tmp_path,
        lambda records: routes_of(FileRoutes(Files(records, max_bytes=MAX_BYTES, clock=clock))),
    ) as running:
        yield running


async def test_a_file_is_uploaded_read_downloaded_and_deleted(user: AsyncAnthropic):
    content = bytes(range(256)) * 40 + b"\r\n--not a boundary\r\n"
    file = await user.beta.files.upload(file=("notes/plan.bin", content, "image/png"))
    assert file.id.startswith("file_")
    assert file.to_dict(mode="python") == {
        "id": file.id,
        "type": "file",
        "created_at": file.created_at,
        "filename": "plan.bin",
        "mime_type": "image/png",
        "size_bytes": len(content),
        "downloadable": True,
        "expires_at": None,
        "scope": None,
    }
    assert await user.beta.files.retrieve_metadata(file.id) == file
    assert await (await user.beta.files.download(file.id)).read() == content
    assert (await user.beta.files.delete(file.id)).type == "file_deleted"
    with pytest.raises(anthropic.NotFoundError):
        await user.beta.files.retrieve_metadata(file.id)
    with pytest.raises(anthropic.NotFoundError):
        await user.beta.files.download(file.id)
    with pytest.raises(anthropic.NotFoundError):
        await user.beta.files.delete(file.id)


async def test_an_empty_file_can_be_uploaded(acme: AsyncAnthropic):
    file = await acme.beta.files.upload(file=("empty.txt", b""))
    assert file.size_bytes == 0
    assert await (await acme.beta.files.download(file.id)).read() == b""


async def test_a_download_is_an_attachment_that_browsers_do_not_run(api: Served):
    async with api.client() as client:
        file = await client.beta.files.upload(
            file=('a "q" ü.html', b"<script>alert(1)</script>", "text/html")
        )
        answer = await client.beta.files.with_raw_response.download(file.id)
    headers = answer.headers
    assert (headers["content-type"], headers["x-content-type-options"]) == ("text/html", "nosniff")
    assert "sandbox" in headers["content-security-policy"]
    assert headers["content-disposition"].startswith("attachment; ")
    assert "%C3%BC.html" in headers["content-disposition"]


async def test_files_are_listed_newest_first_and_filtered(
    api: Served, clock: SetClock, acme: AsyncAnthropic
):
    made: list[str] = []
    for n in range(5):
        clock.now += timedelta(seconds=1)
        made.append((await acme.beta.files.upload(file=(f"{n}.txt", b"x"))).id)
    files = Files(api.records, clock=clock)
    clock.now += timedelta(seconds=1)
    left = await files.create("acme", NewFile(content=b"out", session_id="sesn_1"))
    assert (await ids(acme.beta.files.list(limit=2)))[1:] == made[::-1]
    scoped = await collect(acme.beta.files.list(scope_id="sesn_1"))
    assert [item.id for item in scoped] == [left.id]
    scope = scoped[0].scope
    assert scope is not None
    assert (scope.id, scope.type) == ("sesn_1", "session")
    named = acme.beta.files.list(ids=[made[3], "file_none", made[0], made[3]])
    assert [item.id async for item in named] == [made[3], made[0]]
    both = acme.beta.files.list(ids=[made[3], left.id], scope_id="sesn_1")
    assert [item.id async for item in both] == [left.id]
    with pytest.raises(anthropic.BadRequestError, match="ids"):
        await acme.beta.files.list(ids=made, limit=2)
    with pytest.raises(anthropic.BadRequestError, match="ids"):
        await acme.beta.files.list(ids=[f"file_{n}" for n in range(101)])
    with pytest.raises(anthropic.BadRequestError, match="page"):
        await acme.beta.files.list(page="nonsense")


async def test_a_file_expires(api: Served, clock: SetClock, acme: AsyncAnthropic):
    kept = await acme.beta.files.upload(file=("a.txt", b"x"))
    file = await acme.beta.files.upload(file=("b.txt", b"x"), expires_in_seconds=3600)
    assert file.expires_at == clock.now + timedelta(hours=1)
    clock.now += timedelta(hours=1)
    with pytest.raises(anthropic.NotFoundError, match="expired"):
        await acme.beta.files.download(file.id)
    files = Files(api.records, clock=clock)
    assert await files.remove_expired() == 1
    assert await files.remove_expired() == 0
    assert await ids(acme.beta.files.list()) == [kept.id]
    for seconds in (3599, 7_776_001):
        with pytest.raises(anthropic.BadRequestError, match="expires_in_seconds"):
            await acme.beta.files.upload(file=("b.txt", b"x"), expires_in_seconds=seconds)


async def test_a_file_that_is_too_large_is_refused(acme: AsyncAnthropic):
    largest = await acme.beta.files.upload(file=("l.bin", b"x" * MAX_BYTES))
    assert largest.size_bytes == MAX_BYTES
    with pytest.raises(anthropic.APIStatusError) as refused:
        await acme.beta.files.upload(file=("l.bin", b"x" * (MAX_BYTES + 1)))
    assert refused.value.status_code == 413
    assert await ids(acme.beta.files.list()) == [largest.id]


async def test_an_endless_upload_is_aborted(api: Served, acme: AsyncAnthropic):
    sent = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal sent
        yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while sent < 50_000_000:
            sent += 50_000
            yield b"x" * 50_000

    with anyio.fail_after(60):
        async with httpx2.AsyncClient(base_url=api.url) as http:
            headers = {**KEY, "content-type": "multipart/form-data; boundary=b"}
            try:
                answer = await http.post("/v1/files", content=endless(), headers=headers)
                assert answer.status_code == 413
            except httpx2.TransportError:  # cut off in the middle of what it sends
                pass
    assert await collect(acme.beta.files.list()) == []


MALFORMED = [
    ("application/json", b"{}"),
    ("multipart/form-data", b"no boundary"),
    ("multipart/form-data; boundary=b", b""),
    ("multipart/form-data; boundary=b", b"nothing of the kind"),
    ("multipart/form-data; boundary=b", b"--b\r\n"),
    ("multipart/form-data; boundary=b", b"--b\r\n\r\nno name\r\n--b--\r\n"),
    (
        "multipart/form-data; boundary=b",
        b'--b\r\ncontent-disposition: form-data; name="other"\r\n\r\nx\r\n--b--\r\n',
    ),
    (
        "multipart/form-data; boundary=b",
        b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nno end',
    ),
    (
        "multipart/form-data; boundary=b",
        b'--b\r\ncontent-disposition: form-data; name="file"\r\n'
        b"content-transfer-encoding: base64\r\n\r\neA==\r\n--b--\r\n",
    ),
    (
        "multipart/form-data; boundary=b",
        b"--b\r\ncontent-type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b--\r\n",
    ),
    (
        "multipart/form-data; boundary=b",
        2 * b'--b\r\ncontent-disposition: form-data; name="file"\r\n\r\nx\r\n' + b"--b--\r\n",
    ),
    ("multipart/form-data; boundary=" + "b" * 100, b"--b\r\n"),
    ("multipart/form-data; boundary=b", b"--b\r\n" + b"a: b\r\n" * 5000),
]


async def test_malformed_uploads_are_refused(api: Served):
    async with httpx2.AsyncClient(base_url=api.url, timeout=60) as http:
        for kind, body in MALFORMED:
            headers = {**KEY, "content-type": kind}
            answer = await http.post("/v1/files", content=body, headers=headers)
            assert answer.status_code == 400, (kind, body)
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_file_name_with_control_or_invalid_bytes_is_cleaned(api: Served):
    raw = (
        b'--b\r\ncontent-disposition: form-data; name="file"; filename="a\xff\x0bb.txt"\r\n'
        b"content-type: text/x\x01y\r\n\r\nx\r\n--b--\r\n"
    )
    async with httpx2.AsyncClient(base_url=api.url) as http:
        headers = {**KEY, "content-type": "multipart/form-data; boundary=b"}
        answer = await http.post("/v1/files", content=raw, headers=headers)
        assert answer.status_code in (200, 400), answer.text
    forged = NewFile(content=b"x", filename="a\r\nset-cookie: x=1.txt", mime_type="a/b\r\nx: y")
    file = await Files(api.records).create("acme", forged)
    async with api.client() as client:
        download = await client.beta.files.with_raw_response.download(file.id)
    assert "set-cookie" not in download.headers
    assert download.headers["content-type"] == "text/plain"


def test_a_file_name_is_the_part_after_the_last_slash_or_generated():
    assert normalize_filename("/etc/passwd", "text/plain") == "passwd"
    assert normalize_filename("C:\\docs\\plan.pdf", "text/plain") == "plan.pdf"
    assert normalize_filename("", "application/pdf") == "unnamed.pdf"
    assert normalize_filename(None, "x/y") == "unnamed"
    assert normalize_filename("a/..", "text/plain").startswith("unnamed")
    assert normalize_media_type("Text/HTML; charset=x", "a.txt") == "text/html"
    assert normalize_media_type(None, "a.json") == "application/json"
    assert normalize_media_type("no type", "a") == "application/octet-stream"


@given(name=st.text(max_size=200))
def test_any_file_name_becomes_one_valid_header_line(name: str):
    cleaned = normalize_filename(name, "text/plain")
    assert "/" not in cleaned
    assert cleaned not in ("", ".", "..")
    cleaned.encode()
    header = content_disposition(cleaned)
    assert header.isascii()
    assert header.isprintable()
    message = Message()
    message["content-disposition"] = header
    assert message.get_filename() is not None
    assert header.count('"') == 2
