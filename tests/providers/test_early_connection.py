"""A connection that is opened before there is a request for it."""

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from tests.providers import wire
from tests.providers.wire import asks, drain

from mainspring.capabilities.providers.adapter import HttpModel
from mainspring.capabilities.providers.http_client import HttpClient
from mainspring.capabilities.providers.openai_chat.client import CHAT

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"


@pytest.mark.parametrize("waits", [True, False])
async def test_an_early_connection_sends_nothing_and_is_used_by_the_next_call(*, waits: bool):
    opened, received = anyio.Event(), list[list[bytes]]()
    body = b"".join(wire.chat({"content": "fine"}))

    async def answer(client: SocketStream) -> None:
        received.append([])
        opened.set()
        async with client:
            async for sent in client:
                received[-1].append(sent)
                if b"stream" in sent:  # the request is whole
                    await client.send(HEAD % len(body) + body)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, answer)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        with anyio.fail_after(60):
            async with HttpClient() as http:
                http.connect_early(url)
                if waits:  # else the call comes while the connection is being opened
                    await opened.wait()
                    assert received == [[]]
                await drain(HttpModel(http, CHAT, key="k", url=url, provider="p").stream(asks()))
        group.cancel_scope.cancel()
    assert len(received) == 1
    assert b"".join(received[0]).startswith(b"POST /chat/completions ")


async def test_an_unreachable_server_is_reported_by_the_call(http: HttpClient):
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    http.connect_early(url)
    with pytest.raises(Exception, match="cannot connect"):
        await drain(HttpModel(http, CHAT, key="k", url=url, provider="p").stream(asks()))
