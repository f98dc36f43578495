"""Scans a package for what a person should know before trusting it.

A scan is not a proof. It finds what is written plainly or hidden in known ways; only reading a
package tells whether it is honest."""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import cast

from msgspec import Struct

from mainspring.runtime.definition_files.frontmatter_fields import Fields, read_frontmatter
from mainspring.runtime.packages.file_kinds import (
    FileKind,
    is_disguised,
    kind_of,
    language_of,
    text_of,
)
from mainspring.runtime.packages.hidden_text import (
    find_hidden_text,
    has_mixed_letters,
    make_visible,
)
from mainspring.runtime.packages.package_contents import ContentItem, contents_hash, read_contents
from mainspring.runtime.packages.scan_rule import ScanMatch, Severity, Topic
from mainspring.runtime.packages.scan_text import (
    ScannedText,
    find_command_matches,
    find_hosts,
    find_matches,
    scanned_text,
)

_WHOLE_SHELL = re.compile(r"(?:Bash|shell|\*)(?:\(\s*(?:\*|:\*)?\s*\))?", re.IGNORECASE)
_SHELL_EQUIVALENT = re.compile(
    r"Bash\(\s*(?:sudo|su|env|xargs|ssh|(?:ba|z|da|k)?sh|python[\d.]*|node|perl|ruby|php|eval|curl"
    r"|wget|npx|uvx|docker|find|awk)\b[^)]{0,20}\*\s*\)",
    re.IGNORECASE,
)
_STEERING_FILES = {
    **dict.fromkeys(("hooks.json", ".mcp.json", "mcp.json"), "starts programs of its own"),
    **dict.fromkeys(("settings.json", "settings.local.json"), "changes what agents may do"),
    **dict.fromkeys(("claude.md", "agents.md", "soul.md"), "instructs agents without being asked"),
    **dict.fromkeys((".npmrc", ".gitmodules", ".envrc", "conftest.py"), "steers other programs"),
}


def find_permission_requests(text: str) -> Iterator[ScanMatch]:
    """Find what the text of a SKILL.md or of a command asks to be allowed."""
    fields = Fields(read_frontmatter(text), "")

    def match(rule: str, severity: Severity, key: str, value: str, why: str) -> ScanMatch:
        return ScanMatch(rule, "permissions", severity, fields.line(key), make_visible(value), why)

    tools = defaultdict[tuple[str, Severity, str], list[str]](list)
    for tool in fields.words("allowed-tools") or ():
        tools[_judge_tool(tool)].append(tool)
    for (rule, severity, why), names in tools.items():
        yield match(rule, severity, "allowed-tools", ", ".join(names), why)
    if hooks := fields.mapping("hooks"):
        why = "It runs commands by itself while it is in use."
        yield match("hooks", "caution", "hooks", ", ".join(hooks), why)
    if not fields.flag("user-invocable", default=True):
        yield match("model-only", "note", "user-invocable", "", "Only the model can call it.")
    if fields.flag("disable-model-invocation"):
        why = "Only a person can call it; the model does not see it."
        yield match("person-only", "note", "disable-model-invocation", "", why)
    for key in filter(fields.value, ("permissionMode", "permissions", "mcpServers")):
        why = "It tries to change what agents may do or reach; this is ignored."
        yield match("permission-mode", "caution", key, f"{key}: {fields.value(key)}", why)


def hook_commands(text: str) -> list[tuple[int, str]]:
    """Every string in the hooks of the frontmatter, with the line of the hooks."""
    fields = Fields(read_frontmatter(text), "")
    line = fields.line("hooks") or 1
    return [(line, command) for command in _texts(fields.value("hooks"))]


def _texts(value: object) -> Iterator[str]:
    match value:
        case str(text):
            yield text
        case dict():
            for entry in cast("dict[str, object]", value).values():
                yield from _texts(entry)
        case list():
            for item in cast("list[object]", value):
                yield from _texts(item)
        case _:
            pass


def find_steering_file(path: str) -> ScanMatch | None:
    name = PurePosixPath(path).name.lower()
    if name not in _STEERING_FILES:
        return None
    why = f"A file that {_STEERING_FILES[name]}."
    return ScanMatch("brings-settings", "permissions", "caution", None, name, why)


def _judge_tool(tool: str) -> tuple[str, Severity, str]:
    if _WHOLE_SHELL.fullmatch(tool):
        return "any-command", "caution", "Once trusted, it may run any command without asking."
    if _SHELL_EQUIVALENT.match(tool):
        return "any-command", "caution", "This command can run any other command without asking."
    return "allowed-tool", "note", "Once trusted, it may use this without asking."


SEVERITIES: tuple[Severity, ...] = ("danger", "caution", "note")
"""Worst first."""
MAX_SCANNED_BYTES = 1_000_000
"""The most bytes of one file that are scanned. The hash covers all of it."""
_MAX_HITS = 300  # of a whole package
_MAX_PER_RULE = 5  # shown of one rule
_MAX_HOSTS = 100  # named in a report
_READABLE: tuple[FileKind, ...] = ("script", "prose", "data")


class ScanHit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    severity: Severity
    rule: str
    topic: Topic
    file: str
    line: int | None = None
    excerpt: str = ""
    """An excerpt that is safe to show: hidden characters made visible, and truncated."""
    why: str
    """Why it matters."""
    more: int = 0
    """How many further hits of the same rule the file has."""


class ScannedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    path: str
    size: int
    kind: FileKind
    language: str = ""
    is_executable: bool = False


class ScanReport(Struct, frozen=True, kw_only=True):
    hash: str
    """The hash of everything that was scanned: this is what a person trusts."""
    files: tuple[ScannedFile, ...]
    hits: tuple[ScanHit, ...]
    """Worst first."""
    left_off: int
    """The number of further hits; none is worse than the last one listed."""
    hosts: tuple[str, ...]
    """The hosts that its text names."""

    @property
    def severity(self) -> Severity | None:
        """The highest severity; `None` if there are no hits, which does not prove it safe."""
        return self.hits[0].severity if self.hits else None

    def of(self, severity: Severity) -> list[ScanHit]:
        return [hit for hit in self.hits if hit.severity == severity]


def scan(place: Path) -> ScanReport:
    """Scan a package's folder, or a single file. Blocks while it reads.

    Raises:
        InvalidInput: it does not exist or cannot be read.
        TooLarge: it exceeds the limits of a package.
    """
    items = read_contents(place)
    files: list[ScannedFile] = []
    hits: list[ScanHit] = []
    hosts: set[str] = set()
    for item in items:
        file = _scanned_file(item)
        files.append(file)
        page = _scanned_text(item, file.kind)
        hosts.update(find_hosts(page) if page else ())
        matches = _file_matches(item, file, page, is_command=len(items) == 1)
        hits.extend(_limit_hits(file.path, matches))
    hits.sort(key=lambda hit: (SEVERITIES.index(hit.severity), hit.file, hit.line or 0))
    return ScanReport(
        hash=contents_hash(items),
        files=tuple(files),
        hits=tuple(hits[:_MAX_HITS]),
        left_off=max(0, len(hits) - _MAX_HITS),
        hosts=tuple(sorted(hosts)[:_MAX_HOSTS]),
    )


def _scanned_file(item: ContentItem) -> ScannedFile:
    kind = kind_of(item.path, item.content, is_executable=item.is_executable)
    return ScannedFile(
        path=make_visible(item.path),
        size=len(item.content),
        kind=kind,
        language=language_of(item.path, item.content) if kind == "script" else "",
        is_executable=item.is_executable,
    )


def _scanned_text(item: ContentItem, kind: FileKind) -> ScannedText | None:
    if kind not in _READABLE:
        return None
    text = text_of(item.content[:MAX_SCANNED_BYTES])
    return scanned_text(item.path, text, is_script=kind == "script", is_prose=kind == "prose")


def _file_matches(
    item: ContentItem, file: ScannedFile, page: ScannedText | None, *, is_command: bool
) -> Iterator[ScanMatch]:
    yield from _name_matches(item)
    if item.link is not None or item.is_special:
        yield from _special_file_matches(item)
        return
    yield from _kind_matches(item, file.kind)
    if page is None:
        return
    text = text_of(item.content[:MAX_SCANNED_BYTES])
    yield from find_matches(page)
    yield from find_hidden_text(text, is_script=page.is_script)
    if is_command or PurePosixPath(item.path).name.lower() == "skill.md":
        yield from find_permission_requests(text)
        yield from find_command_matches(item.path, hook_commands(text))


def _name_matches(item: ContentItem) -> Iterator[ScanMatch]:
    display_path = make_visible(item.path)
    if has_mixed_letters(item.path) or not item.path.isprintable():
        why = "Its name is not what it looks like."
        yield ScanMatch("deceptive-name", "hidden", "danger", None, display_path, why)
    elif any(part.startswith(".") for part in PurePosixPath(item.path).parts):
        yield ScanMatch(
            "hidden-file", "hidden", "note", None, display_path, "It is not shown by default."
        )
    if steering := find_steering_file(item.path):
        yield steering


def _special_file_matches(item: ContentItem) -> Iterator[ScanMatch]:
    if item.link is None:
        why = "A pipe, a socket or a device: a skill does not need one."
        yield ScanMatch("special-file", "links", "danger", None, make_visible(item.path), why)
        return
    target = posixpath.join(posixpath.dirname(item.path), item.link.replace("\\", "/"))
    leads_out = os.path.isabs(item.link) or posixpath.normpath(target).split("/")[0] == ".."
    excerpt = make_visible(f"{item.path} -> {item.link}")
    if leads_out:
        why = "A link out of the skill: reading it reads other files of yours."
        yield ScanMatch("link-out", "links", "danger", None, excerpt, why)
    else:
        yield ScanMatch("link", "links", "note", None, excerpt, "A link inside the skill.")


def _kind_matches(item: ContentItem, kind: FileKind) -> Iterator[ScanMatch]:
    display_path = make_visible(item.path)
    if is_disguised(item.path, item.content, kind):
        why = "It can be run, although its name says that it is something else."
        yield ScanMatch("disguised", "binaries", "danger", None, display_path, why)
    if kind == "program":
        why = "A compiled program: people cannot read what it does."
        yield ScanMatch("program", "binaries", "danger", None, display_path, why)
    elif kind == "archive":
        why = "An archive: its contents were not scanned."
        yield ScanMatch("archive", "binaries", "caution", None, display_path, why)
    elif kind == "binary":
        why = "Not a text: it was not scanned."
        yield ScanMatch("binary", "binaries", "note", None, display_path, why)
    elif len(item.content) > MAX_SCANNED_BYTES:
        why = f"Only the first {MAX_SCANNED_BYTES:,} bytes were scanned."
        yield ScanMatch("too-long", "size", "caution", None, display_path, why)


def _limit_hits(path: str, matches: Iterable[ScanMatch]) -> Iterator[ScanHit]:
    """Yield the first few hits of each rule; the last one has the number of omitted hits."""
    groups: dict[tuple[str, Severity], list[ScanMatch]] = {}
    omitted: Counter[tuple[str, Severity]] = Counter()
    for match in matches:
        group = groups.setdefault((match.rule, match.severity), [])
        if any(match.line == item.line for item in group):
            continue
        if len(group) < _MAX_PER_RULE:
            group.append(match)
        else:
            omitted[match.rule, match.severity] += 1
    for key, group in groups.items():
        for match in group:
            yield ScanHit(
                severity=match.severity,
                rule=match.rule,
                topic=match.topic,
                file=path,
                line=match.line,
                excerpt=match.excerpt,
                why=match.why,
                more=omitted[key] if match is group[-1] else 0,
            )
