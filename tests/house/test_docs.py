"""The documents tell of everything there is, and link to what exists."""

import re
from pathlib import Path

import msgspec
import pytest

from mainspring.core.envelope import PAYLOAD_TYPES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rows() -> dict[str, str]:
    """The line of docs/events.md about each type."""
    text = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    return {row[1]: row[0] for row in re.finditer(r"^\| `([a-z_.]+)` \|.*$", text, re.MULTILINE)}


def test_every_event_type_is_documented_and_no_other():
    assert set(rows()) == set(PAYLOAD_TYPES)


@pytest.mark.parametrize("kind", PAYLOAD_TYPES)
def test_every_field_of_an_event_is_documented(kind: str):
    fields = msgspec.structs.fields(PAYLOAD_TYPES[kind])
    expected = [f"`{each.encode_name}`{'' if each.required else '?'} " for each in fields]
    assert [field for field in expected if field not in rows()[kind]] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_link_between_documents_leads_somewhere(document: Path):
    text = document.read_text(encoding="utf-8")
    broken: list[str] = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        place, _, section = link.partition("#")
        target = (document.parent / place) if place else document
        if not target.exists() or (section and section not in sections(target)):
            broken.append(link)
    assert broken == []


def sections(document: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
