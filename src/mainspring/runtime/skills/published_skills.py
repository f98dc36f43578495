"""Catalogues of published skills: a folder of skills, or a JSON list of entries."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.retrieval.bm25 import Bm25Index
from mainspring.runtime.definition_files.json_file import as_list, as_object
from mainspring.runtime.definition_files.scopes import PartLocation, PartWalk, Scopes
from mainspring.runtime.skills.skill_discovery import select_manifests
from mainspring.runtime.skills.skill_file import read_skill


class PublishedSkill(Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    source: str = ""
    """The source for `mainspring skill install`, if the catalogue names it."""


def entries_in(folder: Path) -> list[PublishedSkill]:
    """The skills below a folder. Blocks."""
    place = PartLocation(folder, "project")
    skills = (
        read_skill(file, place, file.name)[0]
        for file in PartWalk(Scopes(folder=folder)).files(place, select_manifests)
    )
    return [
        PublishedSkill(name=skill.name, description=skill.description, source=skill.folder)
        for skill in skills
        if skill is not None
    ]


def entries_of(content: bytes) -> list[PublishedSkill]:
    """The entries of a `marketplace.json`, of a list, or of an object with a list `skills`.

    Raises: InvalidInput.
    """
    try:
        decoded: object = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidInput(f"the catalogue is not JSON: {error}") from error
    fields = as_object(decoded) or {}
    lists = (as_list(decoded), *(as_list(fields.get(key)) for key in ("skills", "plugins")))
    entries = next((items for items in lists if items is not None), None)
    if entries is None:
        raise InvalidInput("the catalogue has no list of skills or plugins")
    objects = [entry for item in entries if (entry := as_object(item)) is not None]
    return [
        PublishedSkill(
            name=name, description=str(entry.get("description", "")), source=_source(entry)
        )
        for entry in objects
        if isinstance(name := entry.get("name"), str) and name
    ]


def best_entries(entries: list[PublishedSkill], query: str, count: int) -> list[PublishedSkill]:
    by_name = {entry.name: entry for entry in entries}
    ranking = Bm25Index({entry.name: entry.description for entry in entries})
    return [by_name[name] for name in ranking.search(query, count)]


def _source(entry: dict[str, object]) -> str:
    for key in ("source", "repo", "repository", "url", "homepage"):
        value = entry.get(key)
        inner = as_object(value) or {}
        text = value if isinstance(value, str) else inner.get("repo") or inner.get("url")
        if isinstance(text, str):
            return text
    return ""
