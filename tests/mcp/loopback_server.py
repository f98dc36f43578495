"""An MCP server on loopback, in a thread of this process, that asks for tokens and repeats them."""

import base64
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, urlsplit

Fields: TypeAlias = dict[str, Any]
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


@dataclass(frozen=True)
class Asked:
    """A request that a server got."""

    method: str
    path: str
    """Without the query."""
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    @property
    def json(self) -> Fields:
        return json.loads(self.body)

    @property
    def bearer(self) -> str | None:
        kind, _, token = self.headers.get("authorization", "").partition(" ")
        return token if kind == "Bearer" else None


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: object = None
    """Bytes as they are, `None` for nothing, anything else as JSON."""
    headers: dict[str, str] = field(default_factory=dict[str, str])


Handle: TypeAlias = Callable[[Asked], Answer]


@dataclass
class LoopbackServer:
    """`routes`: what it does at other paths than `/mcp`."""

    url: str = ""
    tokens: set[str] = field(default_factory=set[str])
    """Those that it accepts; anybody is welcome if there are none and none are asked for."""
    asks_for_token: bool = True
    challenge: str = "Bearer"
    """What it says to those without a good token."""
    requests: list[Asked] = field(default_factory=list[Asked])
    calls: list[Fields] = field(default_factory=list[Fields])
    """Of its tools."""
    routes: dict[str, Handle] = field(default_factory=dict[str, Handle])

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    def sent_tokens(self) -> list[str | None]:
        return [asked.bearer for asked in self.requests if asked.path == "/mcp"]

    def handle(self, asked: Asked) -> Answer:
        self.requests.append(asked)
        if (route := self.routes.get(asked.path)) is not None:
            return route(asked)
        if asked.path != "/mcp" or asked.method != "POST":
            return Answer(404)
        if self.asks_for_token and asked.bearer not in self.tokens:
            return Answer(401, headers={"WWW-Authenticate": self.challenge})
        return self.speak(asked)

    def speak(self, asked: Asked) -> Answer:
        message = asked.json
        match message["method"]:
            case "server/discover":
                result: Fields = {
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                }
            case "tools/list":
                result = {"tools": self.tools(), "ttlMs": 0, "cacheScope": "private"}
            case "tools/call":
                self.calls.append(message["params"])
                result = self.call(message["params"], asked)
            case _:
                return Answer(202)
        result = {"resultType": "complete", **result}
        return Answer(body={"jsonrpc": "2.0", "id": message["id"], "result": result})

    def tools(self) -> list[Fields]:
        return [
            {"name": "look.up", "description": "Look a word up.", "inputSchema": TEXT},
            {"name": "write", "description": "Write a word down.", "inputSchema": TEXT},
            {"name": "leak", "description": "Repeat what it was given.", "inputSchema": TEXT},
        ]

    def call(self, params: Fields, asked: Asked) -> Fields:
        text = str(params["arguments"].get("text", ""))
        if params["name"] != "leak":
            return {"content": [{"type": "text", "text": f"{params['name']}: {text}"}]}
        token = asked.bearer or ""
        return {
            "content": [{"type": "text", "text": form} for form in forms_of(token)],
            "structuredContent": {"token": token, "nested": {token: [token]}},
            "_meta": {"token": token},
        }


def forms_of(secret: str) -> list[str]:
    """Ways to write a secret that a reader can undo."""
    plain = secret.encode()
    return [
        f"it is {secret}.",
        json.dumps({"token": secret}),
        f"Authorization: Bearer {secret}",
        base64.b64encode(plain).decode(),
        base64.b64encode(b"token=" + plain).decode(),
        plain.hex(),
        quote(secret, safe=""),
        "".join(f"\\u{ord(char):04x}" for char in secret),
    ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, loopback: LoopbackServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.loopback = loopback
        loopback.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        assert isinstance(self.server, _Server)
        parts = urlsplit(self.path)
        asked = Asked(
            method=self.command,
            path=parts.path,
            query={name: values[0] for name, values in parse_qs(parts.query).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        answer = self.server.loopback.handle(asked)
        body = b"" if answer.body is None else answer.body
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 (the names are http.server's)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def loopback_server(made: LoopbackServer | None = None) -> Generator[LoopbackServer]:
    loopback = made or LoopbackServer()
    server = _Server(loopback)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield loopback
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
