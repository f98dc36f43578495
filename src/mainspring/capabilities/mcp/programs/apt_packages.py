"""Packages of apt: their sources, the commands that download and unpack them, and the variables
with which programs find the unpacked files.

Nothing is installed on the machine, and no script of a package is run: packages are only unpacked.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from mainspring.core.errors import InvalidInput, McpFailed

ROOT = "root"
"""The subfolder that packages are unpacked into."""
PIN = "apt.txt"
_KEYRINGS = ("/etc/apt/trusted.gpg.d", "/etc/apt/keyrings")
_STATUS = "/var/lib/dpkg/status"
_SOURCES = Path("/etc/apt")
_ARCHIVES, _LISTS, _PARTS = "archives", "lists", "sources.d"
_MAX_SOURCES_BYTES = 1 << 20  # of one file of apt's sources; larger ones are left out
_UNPACK = (
    'set -o pipefail; dpkg-deb --fsys-tarfile "$1"'
    ' | tar --extract --directory "$2" --no-same-permissions --no-same-owner'
)
_URL = re.compile(r"\bhttps?://[^\s\]]+")


def read_sources(source: str | None) -> dict[str, bytes]:
    """The source lists of apt, by name: the chosen one, or those of this machine.

    Raises: InvalidInput: the chosen one cannot be read.
    """
    try:
        if source is not None:
            suffix = Path(source).suffix if Path(source).suffix == ".sources" else ".list"
            return {f"chosen{suffix}": Path(source).read_bytes()}
        main, folder = _SOURCES / "sources.list", _SOURCES / "sources.list.d"
        parts = sorted(folder.iterdir()) if folder.is_dir() else []
        files = [main, *(item for item in parts if item.suffix in {".list", ".sources"})]
        contents = {file.name: file.read_bytes() for file in files if file.is_file()}
    except OSError as error:
        raise InvalidInput(f"the sources of apt cannot be read: {error}") from error
    return {name: text for name, text in contents.items() if len(text) <= _MAX_SOURCES_BYTES}


def readable_files() -> list[str]:
    """Files of this machine that apt-get must read: keyrings, and the installed packages."""
    return [path for path in (*_KEYRINGS, _STATUS) if os.path.exists(path)]


def source_urls(sources: Mapping[str, bytes]) -> list[str]:
    lines = (
        line for text in sources.values() for line in text.decode("utf-8", "replace").split("\n")
    )
    return [
        url for line in lines if not line.lstrip().startswith("#") for url in _URL.findall(line)
    ]


def write_sources(folder: Path, sources: Mapping[str, bytes]) -> None:
    for name in (f"{_ARCHIVES}/partial", f"{_LISTS}/partial", _PARTS):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in sources.items():
        (folder / _PARTS / name).write_bytes(text)


def options(folder: Path) -> tuple[str, ...]:
    """Options for apt-get: it writes only to `folder`, and does not need root."""
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": folder / _PARTS,
        "Dir::State::lists": f"{folder / _LISTS}/",
        "Dir::State::status": _STATUS,
        "Dir::Cache": folder,
        "Dir::Cache::archives": f"{folder / _ARCHIVES}/",
        "Dir::Log": folder,
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "false",
        "APT::Get::Assume-Yes": "true",
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
    }
    return ("-q", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")))


def download_command(
    apt: str, folder: Path, packages: Sequence[str], pin: bytes | None
) -> tuple[str, ...]:
    """The command that downloads packages with all missing dependencies, or exactly the pinned
    ones. `apt-get download` ignores the folder for archives and writes to the current one."""
    command = (apt, *options(folder))
    if pin is None:
        return (*command, "install", "--download-only", "--no-remove", *packages)
    inside = ("bash", "-c", 'cd "$1" && shift && exec "$@"', "bash", str(folder / _ARCHIVES))
    return (*inside, *command, "download", *pinned_hashes(pin))


def pinned_hashes(pin: bytes) -> dict[str, str]:
    """The SHA-256 of each pinned package, by name, architecture and version."""
    pairs = (line.split() for line in pin.decode("ascii").splitlines())
    return {name: digest for name, digest in pairs}


def archives(folder: Path) -> list[Path]:
    return sorted((folder / _ARCHIVES).glob("*.deb"))


def hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each downloaded package. Blocks."""
    return {_package(file): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in archives(folder)}  # fmt: skip


def check_pin(loaded: Mapping[str, str], pin: bytes) -> None:
    """Raises: McpFailed: the downloaded packages are not the pinned ones."""
    pinned = pinned_hashes(pin)
    if changed := sorted(
        name for name in {*pinned, *loaded} if pinned.get(name) != loaded.get(name)
    ):
        raise McpFailed(f"its packages differ from the pinned ones: {', '.join(changed)}")


def encode_pin(loaded: Mapping[str, str]) -> bytes:
    return "".join(f"{name} {digest}\n" for name, digest in loaded.items()).encode("ascii")


def unpacking(folder: Path) -> list[tuple[str, ...]]:
    """Commands that unpack the packages; no file keeps its setuid bit."""
    return [("bash", "-c", _UNPACK, "bash", str(file), ROOT) for file in archives(folder)]


def relocate_links(root: Path) -> None:
    """Make absolute symbolic links relative, so that they lead to files in `root`. Blocks."""
    for folder, folders, files in os.walk(root):
        for link in (Path(folder, name) for name in (*folders, *files)):
            if not link.is_symlink() or not (target := os.readlink(link)).startswith("/"):
                continue
            inside = root / target.lstrip("/")
            if os.path.lexists(inside):
                link.unlink()
                link.symlink_to(os.path.relpath(inside, link.parent))


def variables(root: Path, path: str) -> dict[str, str]:
    """Environment variables with which programs search in `root` first, then on the machine."""
    libraries = [item for place in ("usr/lib", "lib") for item in _libraries(root / place)]
    usr = root / "usr"
    folders = {
        "PATH": [*(root / name for name in ("usr/bin", "usr/sbin", "usr/games", "bin", "sbin"))],
        "LD_LIBRARY_PATH": libraries,
        "LIBRARY_PATH": libraries,
        "CPATH": [usr / "include", *(usr / "include").glob("*-linux-gnu*")],
        "PKG_CONFIG_PATH": [*(item / "pkgconfig" for item in libraries), usr / "share/pkgconfig"],
        "PERL5LIB": [usr / "share/perl5", *(usr / "lib").glob("*-linux-gnu*/perl5/*")],
        "XDG_DATA_DIRS": [usr / "share"],
    }
    defaults = {"PATH": path, "XDG_DATA_DIRS": "/usr/local/share:/usr/share"}
    variables_: dict[str, str] = {}
    for name, places in folders.items():
        words = [str(place) for place in places if place.is_dir()]
        if words or name == "PATH":
            variables_[name] = ":".join((*words, *filter(None, [defaults.get(name)])))
    return variables_


def _libraries(folder: Path) -> list[Path]:
    return [*folder.glob("*-linux-gnu*"), *([folder] if folder.is_dir() else [])]


def _package(file: Path) -> str:
    name, version, architecture = file.stem.split("_")
    return f"{name}:{architecture}={unquote(version)}"
