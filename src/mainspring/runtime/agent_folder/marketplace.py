"""Reads `.claude-plugin/marketplace.json`: the plugins that a folder offers, and where each one
is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mainspring.core.errors import InvalidInput
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.json_file import (
    JsonObject,
    as_list,
    as_object,
    is_inside,
    read_object,
)
from mainspring.runtime.packages.source_fetching import REPOSITORY

FILE = ".claude-plugin/marketplace.json"
_CATALOG_KEYS = {"source", "category", "tags"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOffer:
    name: str
    url: str = ""
    """The address of a repository, with `#ref`; empty if the plugin is in the marketplace's own
    folder."""
    path: str = "."
    """The path in the repository or folder."""
    manifest: JsonObject
    """The marketplace's entry: the manifest of a plugin that has none of its own."""


def read_offers(root: Path) -> dict[str, JsonObject]:
    """The entries of a marketplace by name; empty if the folder is not a marketplace.

    Raises: InvalidInput.
    """
    file = read_object(root / FILE, FILE, within=root)
    if isinstance(file, Finding):
        raise InvalidInput(str(file))
    if file is None:
        return {}
    base = (as_object(file.fields.get("metadata")) or {}).get("pluginRoot", ".")
    entries = [as_object(entry) for entry in as_list(file.fields.get("plugins")) or ()]
    return {
        name: {**entry, "pluginRoot": base}
        for entry in entries
        if entry is not None and isinstance(name := entry.get("name"), str)
    }


def find_offer(root: Path, name: str | None) -> PluginOffer:
    """The offer with this name, or the only one.

    Raises: InvalidInput.
    """
    offers = read_offers(root)
    if name is None and len(offers) == 1:
        name = next(iter(offers))
    if name is None or name not in offers:
        what = "no plugin has that name" if name else "it offers several plugins: name one of them"
        listed = ", ".join(sorted(offers)[:50]) or "nothing"
        raise InvalidInput(f"{name or FILE}: {what}; it offers {listed}")
    entry = dict(offers[name])
    base = entry.pop("pluginRoot")
    source = entry.get("source", f"./{name}")
    manifest = {key: value for key, value in entry.items() if key not in _CATALOG_KEYS}
    url, path = _remote(as_object(source) or {}, name) if as_object(source) else ("", source)
    if not url and isinstance(path, str) and isinstance(base, str) and not path.startswith("."):
        path = f"{base}/{path}"
    if not isinstance(path, str) or not path or ".." in PurePosixPath(path).parts:
        raise InvalidInput(f"{name}: the marketplace does not say where it is")
    return PluginOffer(name=name, url=url, path=path, manifest=manifest)


def offer_folder(root: Path, offer: PluginOffer) -> Path:
    """The plugin's folder.

    Raises: InvalidInput.
    """
    path = root / offer.path
    if not is_inside(path, root) or not path.is_dir():
        raise InvalidInput(f"{offer.name}: {offer.path} is not a folder in what was fetched")
    return path


def _remote(source: JsonObject, name: str) -> tuple[str, object]:
    """The repository that an entry names. It is never a local path, since somebody else wrote
    it."""
    kind, path = source.get("source"), source.get("path", ".")
    if kind == "local":
        return "", path
    address = source.get("url")
    if kind == "github":
        address = source.get("repo")
    if kind not in ("github", "url", "git", "git-subdir") or not isinstance(address, str):
        raise InvalidInput(f"{name}: a source of the kind {str(kind)[:50]!r} cannot be fetched")
    if REPOSITORY.fullmatch(address):
        address = f"https://github.com/{address}.git"
    if not address.startswith("https://"):
        raise InvalidInput(f"{name}: a marketplace may only name https:// addresses")
    ref = source.get("sha") or source.get("ref")
    return (f"{address}#{ref}" if isinstance(ref, str) else address), path
