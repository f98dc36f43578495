"""What a person should know of a skill before they trust it. A scan is not a proof: it finds what
is written plainly or hidden in known ways; whether a skill is honest, only reading it tells."""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

from mainspring.runtime.skills.contents import Item, contents_hash, read_contents
from mainspring.runtime.skills.file_kinds import Kind, is_disguised, kind_of, language_of, text_of
from mainspring.runtime.skills.hidden_text import has_mixed_letters, hidden_in, visible
from mainspring.runtime.skills.scan_asks import asks_of, hook_commands, steering_file
from mainspring.runtime.skills.scan_rule import Found, Severity, Topic
from mainspring.runtime.skills.scan_text import Page, command_hits, hosts_in, page_of, text_hits

SEVERITIES: tuple[Severity, ...] = ("danger", "caution", "note")
"""Worst first."""
MAX_SCANNED_BYTES = 1_000_000
"""Of one file. The hash covers all of it."""
_MAX_HITS = 300
_MAX_ALIKE = 5
_MAX_HOSTS = 100
_READABLE: tuple[Kind, ...] = ("script", "prose", "data")


class Hit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    severity: Severity
    rule: str
    topic: Topic
    file: str
    line: int | None = None
    excerpt: str = ""
    """From the file, made visible and cut: fit to be shown."""
    why: str
    """Why it matters."""
    more: int = 0
    """How often the same is in this file besides."""


class ScannedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    size: int
    kind: Kind
    language: str = ""
    is_executable: bool = False


class Report(Struct, frozen=True, kw_only=True):
    hash: str
    """Of everything that was looked at: what is vouched for, if somebody does."""
    files: tuple[ScannedFile, ...]
    hits: tuple[Hit, ...]
    """Worst first."""
    left_off: int
    """Hits beyond those; none of them is worse than the last one here."""
    hosts: tuple[str, ...]
    """Whom its text names on the network."""

    @property
    def severity(self) -> Severity | None:
        """The worst there is; `None`: nothing was found, which is not to say that it is safe."""
        return self.hits[0].severity if self.hits else None

    def of(self, severity: Severity) -> list[Hit]:
        return [hit for hit in self.hits if hit.severity == severity]


def scan(place: Path) -> Report:
    """Look into a skill's folder, or a single file. Blocks while it reads.

    Raises:
        InvalidInput: it is not there or cannot be read.
        TooLarge: more than a skill may be.
    """
    items = read_contents(place)
    files: list[ScannedFile] = []
    hits: list[Hit] = []
    hosts: set[str] = set()
    for item in items:
        file = _described(item)
        files.append(file)
        page = _page(item, file.kind)
        hosts.update(hosts_in(page) if page else ())
        found = _found(item, file, page, is_command=len(items) == 1)
        hits.extend(_few(file.path, found))
    hits.sort(key=lambda hit: (SEVERITIES.index(hit.severity), hit.file, hit.line or 0))
    return Report(
        hash=contents_hash(items),
        files=tuple(files),
        hits=tuple(hits[:_MAX_HITS]),
        left_off=max(0, len(hits) - _MAX_HITS),
        hosts=tuple(sorted(hosts)[:_MAX_HOSTS]),
    )


def _described(item: Item) -> ScannedFile:
    kind = kind_of(item.path, item.content, is_executable=item.is_executable)
    return ScannedFile(
        path=visible(item.path),
        size=len(item.content),
        kind=kind,
        language=language_of(item.path, item.content) if kind == "script" else "",
        is_executable=item.is_executable,
    )


def _page(item: Item, kind: Kind) -> Page | None:
    if kind not in _READABLE:
        return None
    text = text_of(item.content[:MAX_SCANNED_BYTES])
    return page_of(item.path, text, is_script=kind == "script", is_prose=kind == "prose")


def _found(
    item: Item, file: ScannedFile, page: Page | None, *, is_command: bool
) -> Iterator[Found]:
    yield from _by_name(item)
    if item.link is not None or item.is_special:
        yield from _no_file(item)
        return
    yield from _by_kind(item, file.kind)
    if page is None:
        return
    text = text_of(item.content[:MAX_SCANNED_BYTES])
    yield from text_hits(page)
    yield from hidden_in(text, is_script=page.is_script)
    if is_command or PurePosixPath(item.path).name.lower() == "skill.md":
        yield from asks_of(text)
        yield from command_hits(item.path, hook_commands(text))


def _by_name(item: Item) -> Iterator[Found]:
    shown = visible(item.path)
    if has_mixed_letters(item.path) or not item.path.isprintable():
        why = "Its name is not what it looks like."
        yield Found("deceptive-name", "hidden", "danger", None, shown, why)
    elif any(part.startswith(".") for part in PurePosixPath(item.path).parts):
        yield Found("hidden-file", "hidden", "note", None, shown, "It is not shown by default.")
    if steering := steering_file(item.path):
        yield steering


def _no_file(item: Item) -> Iterator[Found]:
    if item.link is None:
        why = "A pipe, a socket or a device: nothing that a skill needs."
        yield Found("special-file", "links", "danger", None, visible(item.path), why)
        return
    target = posixpath.join(posixpath.dirname(item.path), item.link.replace("\\", "/"))
    leads_out = os.path.isabs(item.link) or posixpath.normpath(target).split("/")[0] == ".."
    excerpt = visible(f"{item.path} -> {item.link}")
    if leads_out:
        why = "A link out of the skill: whoever reads it reads something else of yours."
        yield Found("link-out", "links", "danger", None, excerpt, why)
    else:
        yield Found("link", "links", "note", None, excerpt, "A link inside of the skill.")


def _by_kind(item: Item, kind: Kind) -> Iterator[Found]:
    shown = visible(item.path)
    if is_disguised(item.path, item.content, kind):
        why = "It can be run, and its name says that it is something else."
        yield Found("disguised", "binaries", "danger", None, shown, why)
    if kind == "program":
        why = "A compiled program: nobody can read what it does."
        yield Found("program", "binaries", "danger", None, shown, why)
    elif kind == "archive":
        why = "An archive: what is in it was not looked at."
        yield Found("archive", "binaries", "caution", None, shown, why)
    elif kind == "binary":
        why = "No text: it was not looked into."
        yield Found("binary", "binaries", "note", None, shown, why)
    elif len(item.content) > MAX_SCANNED_BYTES:
        why = f"Only the first {MAX_SCANNED_BYTES:,} bytes of it were looked at."
        yield Found("too-long", "size", "caution", None, shown, why)


def _few(path: str, found: Iterable[Found]) -> Iterator[Hit]:
    """Of what says the same, the first few; with the last one of them, how many there are."""
    kept: dict[tuple[str, Severity], list[Found]] = {}
    beyond: Counter[tuple[str, Severity]] = Counter()
    for each in found:
        alike = kept.setdefault((each.rule, each.severity), [])
        if any(each.line == other.line for other in alike):
            continue
        if len(alike) < _MAX_ALIKE:
            alike.append(each)
        else:
            beyond[each.rule, each.severity] += 1
    for key, alike in kept.items():
        for each in alike:
            yield Hit(
                severity=each.severity,
                rule=each.rule,
                topic=each.topic,
                file=path,
                line=each.line,
                excerpt=each.excerpt,
                why=each.why,
                more=beyond[key] if each is alike[-1] else 0,
            )
