"""The cost of 500 skills: the time to find them, and the tokens that the model reads about them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from report import Measure, median

from mainspring.capabilities.providers.token_estimate import text_tokens
from mainspring.runtime.definition_files.scopes import Scopes
from mainspring.runtime.skills.catalogue import render_catalogue
from mainspring.runtime.skills.skill_discovery import DiscoveredSkills, discover

SKILLS = 500
BODY_BYTES = 6500  # the median of 1,402 skills that are public
HEAD = """\
---
name: {name}
description: Extracts text and tables from the files of kind {number}, fills in their forms and \
joins several of them into one. Use when the user mentions such files, asks to read, to convert \
or to compare them, or wants a summary of what one of them says.
license: Apache-2.0
allowed-tools: Bash(git:*) Read, Grep
metadata:
  author: somebody
  version: "1.{number}"
---
"""


async def measure() -> list[Measure]:
    with TemporaryDirectory() as folder:
        scopes = Scopes(folder=Path(folder))
        _fill(scopes.folder / ".claude/skills")
        first, found = _timed(lambda: _found(scopes))
        seconds = median([first, *(_timed(lambda: _found(scopes))[0] for _ in range(4))])
    catalogue = render_catalogue(found.skills)
    detail = f"{len(found.skills)} skills with a body of {BODY_BYTES:,} bytes"
    return [
        Measure(name="skills found", value=seconds, unit="s", target="<= 0.5", detail=detail),
        Measure(
            name="catalogue, a skill",
            value=text_tokens(catalogue) / len(found.skills),
            unit="tokens",
            target="<= 120",
            detail=f"estimated, leaning high; {len(catalogue.encode()):,} bytes for all",
        ),
    ]


def _found(scopes: Scopes) -> DiscoveredSkills:
    return discover(scopes, is_pinned=lambda _: False)


def _fill(place: Path) -> None:
    body = "Read the file first, then do what was asked for.\n"
    for number in range(SKILLS):
        name = f"skill-of-kind-{number}"
        (place / name / "references").mkdir(parents=True)
        text = HEAD.format(name=name, number=number) + body * (BODY_BYTES // len(body))
        (place / name / "SKILL.md").write_text(text, encoding="utf-8")


def _timed(act: Callable[[], DiscoveredSkills]) -> tuple[float, DiscoveredSkills]:
    begun = time.perf_counter()
    found = act()
    return time.perf_counter() - begun, found
