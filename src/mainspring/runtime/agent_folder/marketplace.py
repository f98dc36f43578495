"""`.claude-plugin/marketplace.json`: which plugins a folder offers, and where each of them is."""

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
    """A repository's, with `#ref`; empty if the plugin is in the marketplace's own folder."""
    path: str = "."
    """Where it is in the repository, or in the folder."""
    manifest: JsonObject
    """What the marketplace says of it: its manifest, if it has none."""


def read_offers(root: Path) -> dict[str, JsonObject]:
    """The entries of a marketplace, by name; nothing if the folder is none.

    Raises: InvalidInput.
    """
    found = read_object(root / FILE, FILE, within=root)
    if isinstance(found, Finding):
        raise InvalidInput(str(found))
    if found is None:
        return {}
    base = (as_object(found.fields.get("metadata")) or {}).get("pluginRoot", ".")
    entries = [as_object(entry) for entry in as_list(found.fields.get("plugins")) or ()]
    return {
        name: {**entry, "pluginRoot": base}
        for entry in entries
        if entry is not None and isinstance(name := entry.get("name"), str)
    }


def find_offer(root: Path, name: str | None) -> PluginOffer:
    """The plugin of that name, or the only one.

    Raises: InvalidInput.
    """
    found = read_offers(root)
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None or name not in found:
        what = (
            "none is called that" if name else "it offers several plugins, and one has to be named"
        )
        listed = ", ".join(sorted(found)[:50]) or "nothing"
        raise InvalidInput(f"{name or FILE}: {what}; there is {listed}")
    entry = dict(found[name])
    base = entry.pop("pluginRoot")
    said = entry.get("source", f"./{name}")
    manifest = {key: value for key, value in entry.items() if key not in _CATALOG_KEYS}
    url, path = _remote(as_object(said) or {}, name) if as_object(said) else ("", said)
    if not url and isinstance(path, str) and isinstance(base, str) and not path.startswith("."):
        path = f"{base}/{path}"
    if not isinstance(path, str) or not path or ".." in PurePosixPath(path).parts:
        raise InvalidInput(f"{name}: the marketplace does not say where it is")
    return PluginOffer(name=name, url=url, path=path, manifest=manifest)


def offer_folder(root: Path, plugin_offer: PluginOffer) -> Path:
    """The plugin's folder.

    Raises: InvalidInput.
    """
    path = root / plugin_offer.path
    if not is_inside(path, root) or not path.is_dir():
        raise InvalidInput(
            f"{plugin_offer.name}: {plugin_offer.path} is no folder of what was fetched"
        )
    return path


def _remote(source: JsonObject, name: str) -> tuple[str, object]:
    """A repository that an entry names. Somebody else wrote it, so it is never a path of ours."""
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
