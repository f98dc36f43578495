"""A report in simple Markdown -> one web page with its documents in it. Nothing is fetched."""

from __future__ import annotations

import re
from html import escape

_STYLE = """
:root { color-scheme: light dark;
  --ink: #1f2933; --soft: #5b6672; --line: #dfe4e9; --link: #0b6e99; --paper: #fff }
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6e9ec; --soft: #9aa5b1; --line: #364049; --link: #6cb8dc; --paper: #14181c } }
body { font: 17px/1.6 Georgia, serif; color: var(--ink); background: var(--paper);
  max-width: 44rem; margin: 3rem auto; padding: 0 1.2rem }
h1 { font-size: 1.9rem; line-height: 1.2 }
h2 { font-size: 1.2rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100%; font-size: .95rem }
th, td { text-align: left; padding: .45rem .7rem .45rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line) }
a.cite { font: .72rem ui-monospace, monospace; color: var(--link); text-decoration: none;
  white-space: nowrap; vertical-align: .12em }
a.cite:hover { text-decoration: underline }
details { border-top: 1px solid var(--line); padding: .5rem 0 }
summary { cursor: pointer; font-size: .95rem }
ol.lines { font: .82rem/1.6 ui-monospace, monospace; color: var(--soft); padding-left: 2.4rem }
ol.lines li:target { background: #ffe8a3; color: #1f2933 }
"""
_OPENING = """
function show() {
  const line = document.getElementById(location.hash.slice(1)), folded = line?.closest("details")
  if (folded) { folded.open = true; line.scrollIntoView({block: "center"}) }
}
addEventListener("hashchange", show)
show()
"""
_CITATION = re.compile(r"\[([\w.-]{1,80}):(\d{1,6})\]")


def rendered(text: str, documents: dict[str, list[str]]) -> str:
    title = next((line[2:] for line in text.splitlines() if line.startswith("# ")), "Report")
    blocks = re.split(r"\n[ \t]*\n", text.strip())
    body = "\n".join(block_of(block.strip("\n")) for block in blocks)
    sources = "\n".join(document_of(name, lines) for name, lines in documents.items())
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n<h2>Documents</h2>\n{sources}\n"
        f"<script>{_OPENING}</script>\n</body>\n</html>\n"
    )


def block_of(block: str) -> str:
    lines = block.splitlines()
    heading = re.match(r"(#{1,3}) (.*)", block)
    if heading and len(lines) == 1:
        level = len(heading[1])
        return f"<h{level}>{inline(heading[2])}</h{level}>"
    if lines[0].startswith("- "):
        items = re.split(r"^- ", block, flags=re.MULTILINE)[1:]
        listed = "\n".join(f"<li>{inline(' '.join(item.split()))}</li>" for item in items)
        return f"<ul>\n{listed}\n</ul>"
    if lines[0].startswith("|"):
        return table_of(lines)
    return f"<p>{inline(' '.join(lines))}</p>"


def table_of(lines: list[str]) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    head, *rest = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    written = [row_of(head, "th"), *(row_of(row, "td") for row in rest)]
    return "<table>\n" + "\n".join(written) + "\n</table>"


def row_of(cells: list[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{inline(cell)}</{tag}>" for cell in cells) + "</tr>"


def inline(text: str) -> str:
    text = re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", escape(text, quote=False))
    return _CITATION.sub(r'<a class="cite" href="#\1-\2">[\1:\2]</a>', text)


def document_of(name: str, lines: list[str]) -> str:
    numbered = "\n".join(
        f'<li id="{name}-{number}">{escape(line, quote=False) or "&nbsp;"}</li>'
        for number, line in enumerate(lines, 1)
    )
    lines_of = f'<ol class="lines">\n{numbered}\n</ol>'
    return f"<details>\n<summary>{name}</summary>\n{lines_of}\n</details>"
