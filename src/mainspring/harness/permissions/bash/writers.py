"""Which of the words of a shell text name files that it is known to change, or may well change.

For commands that a sandbox holds: what a program opens by itself, the sandbox guards. So the words
of interpreters, build tools and git do not count here: they mostly name what is run or read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from mainspring.harness.permissions.bash.command import Command, Word
from mainspring.harness.permissions.bash.effects import basename
from mainspring.harness.permissions.bash.lookers import only_looks
from mainspring.harness.permissions.bash.names import names
from mainspring.harness.permissions.bash.split import split

_RUNNERS = names(
    """
    python python2 python3 pypy3 node nodejs deno bun ruby perl php lua julia Rscript java swift
    bash sh dash zsh ksh fish source . awk gawk mawk make just cmake ninja npm npx pnpm yarn uv uvx
    pip pip3 pytest tox go cargo rustc gcc g++ clang mvn gradle dotnet docker podman git gh cd pushd
    """
)
_VERSION = "0123456789."
_COPIERS = names("cp install ln scp rsync")
"""They write the last of their words, or what is called like one of the others in it."""


def written_words(text: str) -> tuple[str, ...]:
    """Never raises. Literal words only: what just bash can tell is for the sandbox to hold."""
    found = (word for command in split(text).commands for word in _written(command))
    return tuple(dict.fromkeys(found))


def _written(command: Command) -> Iterator[str]:
    for redirect in command.redirects:
        if redirect.access == "write" and redirect.target.value:
            yield redirect.target.value
    name = basename(command)
    if not command.words or name.rstrip(_VERSION) in _RUNNERS or name in _RUNNERS:
        return
    if only_looks(command):
        return
    words = [value for word in command.words[1:] for value in _values(word)]
    if name not in _COPIERS or any(word.startswith("-t") for word in words) or len(words) < 2:
        yield from words
        return
    *sources, target = words
    yield target
    yield from (posixpath.join(target, posixpath.basename(each.rstrip("/"))) for each in sources)


def _values(word: Word) -> Iterator[str]:
    """A word, and what follows a `=` in it."""
    if word.value:
        yield word.value
        _, _, after = word.value.partition("=")
        if after:
            yield after
