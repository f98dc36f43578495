"""out/summary.json and your words in out/words.md -> two charts (SVG) and a page (PDF) in out/.

Numbers are never typed: words say `{total.passengers}`, and what was computed is put there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from charts import GREY, INK, LINE, Summary, colours, lateness, passengers
from drawing import Dot, Polyline, Rect, Shape, Text, pdf, svg, wrapped

OUT = Path("out")
WIDTH, HEIGHT, MARGIN = 595, 842, 50
INNER = WIDTH - 2 * MARGIN
_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


def filled(text: str, summary: Summary) -> str:
    """The words with numbers in them."""
    typed = re.search(r"\d+", _FIELD.sub("", text))
    if typed:
        sys.exit(f"words.md: {typed[0]} is typed; name a value of summary.json, as {{data.used}}")
    return _FIELD.sub(lambda found: shown(found[1].strip(), found[2], summary), text)


def shown(name: str, style: str | None, summary: Summary) -> str:
    value: Any = summary
    for key in name.split("."):
        try:
            value = value[key]
        except (KeyError, TypeError):
            sys.exit(f"words.md: there is no {name} in summary.json; of it, {key!r} is missing")
    if isinstance(value, (dict, list)):
        sys.exit(f"words.md: {name} is not one value")
    if style is None:
        style = "," if isinstance(value, int) else ""
    return format(value, style)


def page(summary: Summary, words: str) -> tuple[str, list[Shape]]:
    """The title, and all that is on the sheet."""
    title, _, rest = words.strip().partition("\n")
    title = title.lstrip("# ").strip()
    total, data = summary["total"], summary["data"]
    shapes: list[Shape] = [Rect(0, 0, WIDTH, 6, "#0b6e99")]
    shapes.append(Text(MARGIN, 56, title, 19, INK, True))
    span = f"{summary['months'][0]} to {summary['months'][-1]}, {len(summary['routes'])} routes"
    shapes.append(Text(MARGIN, 73, span, 10, GREY))
    tiles = [
        (f"{total['passengers']:,}", "passengers"),
        (f"€ {total['revenue_eur']:,.0f}", "revenue"),
        (f"{total['late_percent']} %", "of crossings late"),
        (f"{total['crossings']:,}", "crossings"),
    ]
    for index, (value, name) in enumerate(tiles):
        across = MARGIN + index * (INNER + 10) / 4
        shapes.append(Rect(across, 90, (INNER + 10) / 4 - 10, 50, "#f3f6f8"))
        shapes.append(Text(across + 10, 112, value, 15, INK, True))
        shapes.append(Text(across + 10, 129, name, 8.5, GREY))
    shapes += passengers(summary, MARGIN, 166, INNER, 290)
    down = 474.0
    for paragraph in filter(None, (item.strip() for item in rest.split("\n\n"))):
        for line in wrapped(paragraph, 10, INNER):
            down += 14.5
            shapes.append(Text(MARGIN, down, line, 10, INK))
        down += 7
    down += 20
    shapes += lateness(summary, MARGIN, down, 220, 120)
    shapes += table(summary, MARGIN + 250, down, INNER - 250)
    left_out = f"{data['twice']} reported twice, {data['incomplete']} without numbers"
    source = f"data/crossings.csv: {data['rows']} rows, {data['used']} used ({left_out})."
    shapes.append(Polyline(((MARGIN, HEIGHT - 48), (WIDTH - MARGIN, HEIGHT - 48)), LINE, 0.7))
    shapes.append(Text(MARGIN, HEIGHT - 34, source, 8, GREY))
    if down + 130 > HEIGHT - 50:
        sys.exit("words.md: too long for one page; say less")
    return title, shapes


def table(summary: Summary, x: float, y: float, width: float) -> list[Shape]:
    ends = (x + width * 0.6, x + width)
    shapes: list[Shape] = [Text(x, y + 8, "Route", 10, INK, True)]
    for end, head in ((ends[0], "passengers"), (ends[1], "revenue, €")):
        shapes.append(Text(end, y + 8, head, 8.5, GREY, anchor="end"))
    rows = {**summary["routes"], "all": summary["total"]}
    for index, name in enumerate(rows):
        down, is_last = y + 31 + index * 20, name == "all"
        shapes.append(Polyline(((x, down - 14), (x + width, down - 14)), LINE, 0.7))
        if not is_last:
            shapes.append(Dot(x + 3, down - 3, 3, colours(summary)[name]))
        shapes.append(Text(x + 11, down, name, 9, INK, is_last))
        for end, column in ((ends[0], "passengers"), (ends[1], "revenue_eur")):
            value = f"{rows[name][column]:,.0f}"
            shapes.append(Text(end, down, value, 9, INK, is_last, anchor="end"))
    return shapes


def main() -> None:
    summary = json.loads((OUT / "summary.json").read_text(encoding="utf-8"))
    words = filled((OUT / "words.md").read_text(encoding="utf-8"), summary)
    title, shapes = page(summary, words)
    drawn = {
        "passengers.svg": svg(515, 240, passengers(summary, 10, 10, 495, 220), title=title),
        "late.svg": svg(260, 140, lateness(summary, 10, 10, 240, 120), title=title),
    }
    for name, text in drawn.items():
        (OUT / name).write_text(text, encoding="utf-8")
    (OUT / "report.pdf").write_bytes(pdf(WIDTH, HEIGHT, shapes, title=title))
    print(words)
    print(f"wrote {', '.join(f'{OUT / name}' for name in (*drawn, 'report.pdf'))}")


if __name__ == "__main__":
    main()
