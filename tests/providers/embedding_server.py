"""A server on this machine with OpenAI's endpoint for embeddings."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import msgspec
from msgspec import Struct

ANIMALS = ("cat", "kitten", "pet")
MACHINES = ("rocket", "launch", "engine")


class EmbeddingRequest(Struct):
    model: str
    input: list[str]


@dataclass
class EmbeddingServer:
    """What is about animals is near to what is about animals."""

    url: str = ""
    requests: list[EmbeddingRequest] = field(default_factory=list[EmbeddingRequest])
    keys: set[str] = field(default_factory=set[str])
    failures: list[int] = field(default_factory=list[int])
    """Statuses that the next requests get."""
    dimensions: int = 3
    reply: bytes | None = None
    """Instead of vectors."""

    def answer(self, request: EmbeddingRequest) -> bytes:
        data = [
            {"object": "embedding", "index": at, "embedding": self._vector(text)}
            for at, text in enumerate(request.input)
        ]
        return self.reply or json.dumps({"object": "list", "data": data[::-1]}).encode()

    def _vector(self, text: str) -> list[float]:
        words = text.lower()
        animals = sum(word in words for word in ANIMALS)
        machines = sum(word in words for word in MACHINES)
        return [2.0 * animals, 2.0 * machines, 0.2, *([0.0] * (self.dimensions - 3))]


@contextmanager
def embedding_server() -> Generator[EmbeddingServer]:
    server = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            request = msgspec.json.decode(self.rfile.read(length), type=EmbeddingRequest)
            server.requests.append(request)
            server.keys.add(self.headers.get("authorization", ""))
            status = server.failures.pop(0) if server.failures else 200
            if self.path != "/v1/embeddings":
                status = 404
            content = server.answer(request) if status == 200 else b'{"error": "not now"}'
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join(60)
        http.server_close()
