"""Styles of Markdown and code at a terminal. Slow to import, so it is loaded only when something
is shown there.
"""

from __future__ import annotations

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown
from rich.syntax import Syntax

_CODE_THEMES = {False: "ansi_dark", True: "ansi_light"}


class LeftHeading(Heading):
    """A heading that is not centered."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class TerminalMarkdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": LeftHeading}


def render_markdown(text: str, *, is_light: bool = False) -> TerminalMarkdown:
    return TerminalMarkdown(text, hyperlinks=False, code_theme=_CODE_THEMES[is_light])


def syntax_for(language: str, *, is_light: bool = False) -> Syntax | None:
    syntax = Syntax("", language, theme=_CODE_THEMES[is_light], background_color="default")
    return syntax if language and syntax.lexer is not None else None
