"""Styles of Markdown and code at a terminal. Slow to import, so it is loaded only when something
is shown there.
"""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.syntax import Syntax

CODE_THEME = "ansi_dark"


class LeftHeading(Heading):
    """At the left, where people look."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class TerminalMarkdown(Markdown):
    """Markdown as we show it."""

    elements: ClassVar = {**Markdown.elements, "heading_open": LeftHeading}


def render_markdown(text: str) -> TerminalMarkdown:
    return TerminalMarkdown(text, hyperlinks=False, code_theme=CODE_THEME)


def syntax_for(language: str) -> Syntax | None:
    syntax = Syntax("", language, theme=CODE_THEME, background_color="default")
    return syntax if language and syntax.lexer is not None else None
