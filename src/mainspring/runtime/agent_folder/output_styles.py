"""Output styles: texts that tell an agent how to answer, chosen by name in the settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.frontmatter_fields import (
    Fields,
    read_frontmatter,
    read_text,
)
from mainspring.runtime.definition_files.scopes import (
    PartLocation,
    PartWalk,
    Scopes,
    select_markdown,
)

FOLDER = "output-styles"
DEFAULT_STYLE = "default"
"""The name that means that no style is used."""
_BUILT_IN = {
    "Explanatory": (
        "Explains choices while it works.",
        "While you work, explain why you do what you do: before and after code, add a short"
        " paragraph about the choices in it and about patterns of this codebase. Keep such insights"
        " out of the code itself.",
    ),
    "Learning": (
        "Leaves small pieces of code to the user, to learn by doing.",
        "Help the user to learn by doing. Explain your choices briefly. When a piece of 2 to 10"
        " lines decides something that matters (logic, an algorithm, an error strategy), put a"
        " comment TODO(human) there, say what is wanted and why, and wait for the user's code.",
    ),
}
"""Claude Code's styles that need no file."""


class OutputStyle(Struct, frozen=True, kw_only=True):
    name: str
    description: str
    text: str
    file: str = ""
    """Absolute; empty for a built-in style."""

    @property
    def rendered(self) -> str:
        return f"# Output style: {self.name}\n\n{self.text}"


def find_style(scopes: Scopes, name: str) -> OutputStyle | None:
    """The style with this name; `None` if there is none. Blocks."""
    key = name.lower()
    return next(
        (style for style in output_styles(scopes) if style.name.lower() == key),
        None,
    )


def output_styles(scopes: Scopes) -> Iterator[OutputStyle]:
    """All styles. If two have the same name, the first one is used."""
    walk = PartWalk(scopes)
    for place in _places(scopes):
        for file in walk.files(place, select_markdown, max_depth=1):
            text = read_text(file, scopes.display_path(file))
            if not isinstance(text, Finding):
                fields = Fields(read_frontmatter(text), scopes.display_path(file))
                yield OutputStyle(
                    name=fields.text("name") or file.stem,
                    description=fields.text("description"),
                    text=fields.frontmatter.body.strip(),
                    file=str(file),
                )
    for name, (description, text) in _BUILT_IN.items():
        yield OutputStyle(name=name, description=description, text=text)


def _places(scopes: Scopes) -> Iterator[PartLocation]:
    bases: list[tuple[Path | None, bool]] = [(scopes.home, True), (scopes.folder, False)]
    for base, is_user in bases:
        for name in (".mainspring", ".claude") if base is not None else ():
            yield PartLocation(Path(base or "", name, FOLDER), "user" if is_user else "project")
