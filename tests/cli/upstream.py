"""A model server that speaks OpenAI's chat completions and says what a test tells it to."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

Part: TypeAlias = str | dict[str, Any] | threading.Event | int
"""Words, a call of a tool, a pause until a test lets it go on, or an HTTP status."""


def call(tool: str, **given: object) -> dict[str, Any]:
    return {"name": tool, "arguments": json.dumps(given)}


def people_and_model(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages without the notes of the harness."""
    return [
        message
        for message in request["messages"]
        if message["role"] != "user" or not str(message["content"]).startswith("<system-note>")
    ]


@dataclass
class Upstream:
    url: str = ""
    answers: list[tuple[Part, ...]] = field(default_factory=list[tuple[Part, ...]])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """Of each request; names in lower case."""
    otherwise: Callable[[dict[str, Any]], tuple[Part, ...]] = lambda _: ("That is all I know.",)
    """What it says when nothing else was told it."""
    models: list[str] = field(default_factory=list[str])
    """What it lists."""
    asked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released at every request."""

    def says(self, *parts: Part) -> None:
        """The answer to the next request that has none yet."""
        self.answers.append(parts)

    @property
    def variables(self) -> dict[str, str]:
        """What leads the command here."""
        return {"OLLAMA_BASE_URL": self.url, "MAINSPRING_MODEL": "ollama:test"}

    def last_words(self) -> str:
        content = self.requests[-1]["messages"][-1]["content"]
        return content if isinstance(content, str) else content[-1]["text"]


class ModelServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: Upstream, port: int = 0, *, shares_port: bool = False) -> None:
        self.allow_reuse_port = shares_port
        super().__init__(("127.0.0.1", port), _Handler)
        self.upstream = upstream
        upstream.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """The list of its models."""
        assert isinstance(self.server, ModelServer)
        body = json.dumps({"data": [{"id": name} for name in self.server.upstream.models]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        assert isinstance(self.server, ModelServer)
        upstream = self.server.upstream
        length = int(self.headers["content-length"])
        upstream.requests.append(json.loads(self.rfile.read(length)))
        upstream.headers.append({name.lower(): value for name, value in self.headers.items()})
        request = upstream.requests[-1]
        parts = upstream.answers.pop(0) if upstream.answers else upstream.otherwise(request)
        upstream.asked.release()
        self.close_connection = True
        if isinstance(parts[0], int):
            self._fail(parts[0])
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # who asked may have gone away
            self._stream(parts)

    def _fail(self, status: int) -> None:
        body = json.dumps({"error": {"message": "as the test says"}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, parts: tuple[Part, ...]) -> None:
        calls = 0
        for part in parts:
            match part:
                case str():
                    for piece in part.splitlines(keepends=True):
                        self._send({"content": piece})
                case dict():
                    use = {"index": calls, "id": f"call_{calls}", "type": "function"}
                    self._send({"tool_calls": [{**use, "function": part}]})
                    calls += 1
                case threading.Event():
                    part.wait(60)
                case int():
                    raise AssertionError("a status stands alone")
        reason = "tool_calls" if calls else "stop"
        usage = {
            "prompt_tokens": 1000,
            "completion_tokens": 20,
            "total_tokens": 1020,
            "prompt_tokens_details": {"cached_tokens": 900},
        }
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, delta: dict[str, Any]) -> None:
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})

    def _event(self, chunk: dict[str, Any]) -> None:
        whole = {"id": "c1", "object": "chat.completion.chunk", "model": "test", **chunk}
        self.wfile.write(b"data: " + json.dumps(whole).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serving() -> Generator[Upstream]:
    upstream = Upstream()
    server = ModelServer(upstream)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def interrupted_run(
    upstream: Upstream, place: Path, environ: Mapping[str, str], message: str = "go"
) -> Generator[subprocess.Popen[bytes]]:
    """A process of `mainspring run` in the middle of a reply, which goes on when this is left."""
    held = threading.Event()
    upstream.says("I was about to ", held)
    with subprocess.Popen(
        [sys.executable, "-m", "mainspring", "run", message],
        cwd=place,
        env={**environ, **upstream.variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert upstream.asked.acquire(timeout=60)
        yield process
    held.set()
