"""A mirror of apt on loopback with two packages: a program, and the data that it needs."""

import hashlib
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

_TOOL = """#!/bin/bash
here=$(dirname "$(readlink -f "$0")")
echo "$(cat "$here/../share/acme/text") changed: $( (: > "$here/x") 2>&1 | sed 's/.*: //')"
"""


def publish(mirror: Path, version: str, *, text: str = "data") -> None:
    """The tool asks to run as its owner, and a link names a path from the root."""
    shutil.rmtree(mirror, ignore_errors=True)
    tool, data = mirror / "build/acme-tool", mirror / "build/acme-data"
    _write(tool / "usr/bin/acme-tool", _TOOL, mode=0o4755)
    _write(tool / "usr/lib/acme/tool", _TOOL, mode=0o755)
    (tool / "usr/bin/acme-link").symlink_to("/usr/lib/acme/tool")
    _write(data / "usr/share/acme/text", f"{text} {version}")
    _build(mirror, tool, f"Version: {version}\nArchitecture: all\nDepends: acme-data")
    _build(mirror, data, f"Version: {version}\nArchitecture: all")
    shutil.rmtree(mirror / "build")


@asynccontextmanager
async def running_mirror(folder: Path) -> AsyncGenerator[tuple[str, list[str]]]:
    """Its address, and the paths that it was asked for."""
    requests: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append(request.path)
        file = folder / request.path.lstrip("/")
        return web.FileResponse(file) if file.is_file() else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://localhost:{runner.addresses[0][1]}", requests
    finally:
        await runner.cleanup()


def _build(mirror: Path, folder: Path, fields: str) -> None:
    control = (
        f"Package: {folder.name}\n{fields}\nMaintainer: Acme <acme@example.com>\n"
        "Description: for tests\n"
    )
    _write(folder / "DEBIAN/control", control)
    # no script of a package is run
    _write(folder / "DEBIAN/postinst", "#!/bin/sh\nexit 1\n", mode=0o755)
    file = mirror / f"{folder.name}_1_all.deb"
    build = ["dpkg-deb", "--root-owner-group", "--build", str(folder), str(file)]
    subprocess.run(build, check=True, capture_output=True)
    content = file.read_bytes()
    with (mirror / "Packages").open("a") as index:
        index.write(
            f"{control}Filename: ./{file.name}\nSize: {len(content)}\n"
            f"SHA256: {hashlib.sha256(content).hexdigest()}\n\n"
        )


def _write(file: Path, text: str, *, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
