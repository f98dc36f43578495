"""A registry of npm packages and an index of Python ones on loopback, and the packages in it: small
MCP servers that say which version they are, and whether they can change themselves.
"""

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from urllib.parse import quote

from aiohttp import web

_NODE_SERVER = """#!/usr/bin/env node
const fs = require("fs"), version = require("./package.json").version;
function change() {
  try { fs.writeFileSync(__filename + ".x", ""); return "changed"; } catch (e) { return e.code; }
}
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {id, method} = JSON.parse(line);
  if (id === undefined) return;
  const answers = {
    "server/discover": {supportedVersions: ["2026-07-28"], capabilities: {tools: {}}},
    "tools/list": {tools: [{name: "version"}]},
    "tools/call": {content: [{type: "text",
      text: `${version} ${change()} ${process.argv.slice(2)}`}]},
  };
  const result = {resultType: "complete", ...answers[method]};
  console.log(JSON.stringify({jsonrpc: "2.0", id, result}));
});
"""
_PYTHON_SERVER = """
import json, sys
VERSION = {version!r}
def change():
    try:
        open(__file__ + ".x", "w")
        return "changed"
    except OSError as error:
        return error.strerror
def main():
    for line in sys.stdin:
        message = json.loads(line)
        answers = {{
            "server/discover": {{"supportedVersions": ["2026-07-28"],
                                 "capabilities": {{"tools": {{}}}}}},
            "tools/list": {{"tools": [{{"name": "version"}}]}},
            "tools/call": {{"content": [{{"type": "text",
                "text": VERSION + " " + change() + " " + ",".join(sys.argv[1:])}}]}},
        }}
        if "id" in message:
            result = {{"resultType": "complete", **answers.get(message["method"], {{}})}}
            print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}),
                  flush=True)
"""


def npm_archive(name: str, version: str) -> bytes:
    fields = {"name": name, "version": version, "bin": {"acme-notes": "server.js"}}
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in (("package.json", json.dumps(fields)), ("server.js", _NODE_SERVER)):
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


def wheel(name: str, version: str) -> bytes:
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": _PYTHON_SERVER.format(version=version),
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, text)
    return content.getvalue()


@dataclass
class Registry:
    """What is published can be changed while it is served."""

    npm: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Archives of one package, by version."""
    python: dict[str, bytes] = field(default_factory=dict[str, bytes])
    requests: list[str] = field(default_factory=list[str])
    url: str = ""
    login: tuple[str, str] | None = None
    """Who may read it; `None`: anybody."""

    @property
    def environ(self) -> dict[str, str]:
        login = "" if self.login is None else ":".join(quote(part, safe="") for part in self.login)
        url = self.url.replace("//", f"//{login}@" if login else "//")
        return {"npm_config_registry": f"{url}/npm/", "UV_DEFAULT_INDEX": f"{url}/simple/"}

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        login = self.login and base64.b64encode(":".join(self.login).encode()).decode()
        if login and request.headers.get("Authorization") != f"Basic {login}":
            return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        match request.path.strip("/").split("/"):
            case ["npm", "@acme", "notes"] | ["npm", "@acme%2fnotes"] | ["npm", "@acme%2Fnotes"]:
                return web.json_response(self._packument())
            case ["npm", "files", version]:
                return web.Response(body=self.npm[version])
            case ["simple", "acme-notes"]:
                return web.Response(text=self._index(), content_type="text/html")
            case ["files", version, _]:
                return web.Response(body=self.python[version])
            case _:
                return web.Response(status=404)

    def _packument(self) -> object:
        versions = {
            version: {
                "name": "@acme/notes",
                "version": version,
                "bin": {"acme-notes": "server.js"},
                "dist": {
                    "tarball": f"{self.url}/npm/files/{version}",
                    "integrity": "sha512-"
                    + base64.b64encode(hashlib.sha512(content).digest()).decode(),
                },
            }
            for version, content in self.npm.items()
        }
        newest = list(versions)[-1]
        return {"name": "@acme/notes", "dist-tags": {"latest": newest}, "versions": versions}

    def _index(self) -> str:
        links = [
            f'<a href="/files/{version}/acme_notes-{version}-py3-none-any.whl'
            f'#sha256={hashlib.sha256(content).hexdigest()}">x</a>'
            for version, content in self.python.items()
        ]
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"


@asynccontextmanager
async def running_registry(tls: SSLContext | None = None) -> AsyncGenerator[Registry]:
    registry = Registry()
    app = web.Application()
    app.router.add_get("/{path:.*}", registry.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    registry.url = f"{'https' if tls else 'http'}://localhost:{runner.addresses[0][1]}"
    try:
        yield registry
    finally:
        await runner.cleanup()
