"""The frame of an HTML report: one file, no script, no external resources, light and dark.

Its parts are `Markup`, and text becomes `Markup` only by `escape`. The page itself forbids scripts
and requests, so even a mistake in a report cannot be exploited.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NewType

Markup = NewType("Markup", str)
"""HTML written by a report, with all foreign text escaped."""

_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e001f\ud800-\udfff]"
)
"""Control characters and those that change the text direction."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root{color-scheme:light dark;--page:#fbfbfa;--card:#fff;--ink:#1d1f21;--soft:#63686e;
--line:#dfe1e4;--code:#f3f4f5;--user:#2457c5;--agent:#1b7a4b;--tool:#8a5a00;--error:#b3261e;
--mono:ui-monospace,Menlo,Consolas,monospace}
@media (prefers-color-scheme:dark){:root{--page:#15171a;--card:#1d2024;--ink:#e6e7e9;--soft:#9aa1a9;
--line:#33383f;--code:#262a30;--user:#8ab0ff;--agent:#6fcf97;--tool:#e0b25c;--error:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:56rem;margin:0 auto;padding:2rem 1rem 4rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .5rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 2rem;
font-size:.9rem}
dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
article{background:var(--card);border:1px solid var(--line);border-radius:6px;margin:.75rem 0;
border-left:4px solid var(--edge,var(--line));padding:.6rem 1rem}
article article{margin-left:0}
article>header{display:flex;justify-content:space-between;gap:1rem;font-size:.8rem;
color:var(--soft)}
article>header b{color:var(--edge,var(--soft))}
.user{--edge:var(--user)}
.agent{--edge:var(--agent)}
.tool{--edge:var(--tool)}
.error{--edge:var(--error)}
.note,.thinking{--edge:var(--line);font-size:.9rem;color:var(--soft)}
.note>header b,.thinking>header b{color:var(--soft)}
.text{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}
pre{background:var(--code);color:var(--ink);border-radius:4px;padding:.6rem .8rem;margin:.4rem 0;
overflow:auto;max-height:32rem;white-space:pre-wrap;overflow-wrap:anywhere;
font:.85rem/1.45 var(--mono)}
code{background:var(--code);border-radius:3px;padding:.05rem .25rem;font:.9em var(--mono)}
details>summary{cursor:pointer;overflow-wrap:anywhere}
summary code{font-size:.85rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left}
img{max-width:100%;height:auto}
footer{color:var(--soft);font-size:.8rem;margin-top:3rem}
"""


def strip_control_characters(text: str) -> str:
    """Text without characters that could change how the text around it is displayed."""
    return _CONTROL_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def escape(text: str) -> Markup:
    """Escape text for elements and quoted attributes."""
    return Markup(html.escape(strip_control_characters(text), quote=True))


def join_markup(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def facts_list(facts: Sequence[tuple[str, str]]) -> Markup:
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return Markup(f"<dl>{''.join(rows)}</dl>")


def page_head(title: str) -> Markup:
    """Everything up to the heading; `page_end` closes the elements that this opens."""
    heading = escape(title)
    return Markup(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style></head>\n"
        f'<body><main>\n<h1 dir="auto">{heading}</h1>\n'
    )


def page_end(footer: str) -> Markup:
    return Markup(f"<footer>{escape(footer)}</footer>\n</main></body></html>\n")
