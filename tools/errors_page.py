"""Write docs/errors.md from the table in the code; `--check` only says whether it is up to date."""

import sys
from pathlib import Path

from mainspring import error_table

PAGE = Path(__file__).parents[1] / "docs/errors.md"
HEAD = """\
# Errors

What you may meet, why it happens, and what to do. Words in `{braces}` are filled in. This page is
made from [one table in the code](../src/mainspring/error_table.py) by `make errors-page`; edit
the table, not this page.

At the command line an error is one line, followed by what to do: `error: ...`, `hint: ...`;
`--debug` shows the traceback as well. In Python it is an exception below `MainspringError`, and
what to do is in its notes, which a traceback shows. If you see something else, `mainspring doctor`
shows what this machine can do.
"""


def page() -> str:
    named = vars(error_table).items()
    entries = [(name, entry) for name, entry in named if isinstance(entry, error_table.ErrorEntry)]
    return HEAD + "".join(_section(name, entry) for name, entry in entries)


def _section(name: str, entry: error_table.ErrorEntry) -> str:
    lines = ["", f"## {name.replace('_', ' ').capitalize()}", "", f"> {_shown(entry.message)}", ""]
    lines += [entry.cause, "", *(f"- {_shown(item)}" for item in entry.fix)]
    lines += [f"- In Python: {_shown(item)}" for item in entry.in_python]
    return "\n".join(lines) + "\n"


def _shown(template: str) -> str:
    """Fields without how they are formatted."""
    for how in ("!r", ":.1f", ":.0f"):
        template = template.replace(how + "}", "}")
    return template


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
