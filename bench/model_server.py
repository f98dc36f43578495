"""A model with nothing to think about, on loopback: answers chat completions at once.

`model_server.py PORT`; the model `fake-N` asks for the tool `echo` N times, then says `done`. The
model `text-N` says N words, each in a write of its own.
"""

import asyncio
import json
import re
import sys
from itertools import count

_TOOLS = re.compile(rb'"role":\s*"tool"')
_TIMES = re.compile(rb'"model":\s*"[^"]*?fake-(\d+)')
_WORDS = re.compile(rb'"model":\s*"[^"]*?text-(\d+)')
_WORD_SECONDS = 0.0005
"""Between two writes, so that no two words arrive together."""
_NUMBERS = count()


def answer(body: bytes) -> bytes:
    found = _TIMES.search(body)
    wanted = int(found.group(1)) if found else 1
    base = {"id": f"c{next(_NUMBERS)}", "created": 1, "model": "fake"}
    delta: dict[str, object] = {"content": "done"}
    reason = "stop"
    if len(_TOOLS.findall(body)) < wanted:
        call = {"name": "echo", "arguments": json.dumps({"x": base["id"]})}  # no two alike
        delta = {
            "tool_calls": [
                {"index": 0, "id": f"call_{base['id']}", "type": "function", "function": call}
            ]
        }
        reason = "tool_calls"
    chunks: list[dict[str, object]] = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**base, "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


class Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(re.findall(rb"(?i)content-length:\s*(\d+)", head)[0])
        if len(body) < length:
            return
        self.received = body[length:]
        if words := _WORDS.search(body[:length]):
            self.task = asyncio.get_running_loop().create_task(self.say(int(words[1])))
            return
        said = answer(body[:length])
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: "
            + str(len(said)).encode()
            + b"\r\n\r\n"
            + said
        )

    async def say(self, words: int) -> None:
        base = {"id": "c", "created": 1, "model": "fake"}
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        self.transport.write(head + b"transfer-encoding: chunked\r\n\r\n")
        choice = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
        word = chunk(event({**base, "choices": [choice]}))
        for _ in range(words):
            self.transport.write(word)
            await asyncio.sleep(_WORD_SECONDS)
        end: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": words}
        last = event({**base, "choices": [end]}) + event({**base, "choices": [], "usage": usage})
        self.transport.write(chunk(last + b"data: [DONE]\n\n") + b"0\r\n\r\n")


def event(content: dict[str, object]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", int(sys.argv[1]), backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
