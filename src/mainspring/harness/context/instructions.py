"""Instruction files: which there are, what they say, in what order. Placing them is the view's job.

Every file is read once, and nothing here is fatal: what cannot be read becomes a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal, Protocol, TypeAlias, cast
from xml.sax.saxutils import quoteattr

from mainspring.core.errors import InvalidInput
from mainspring.harness.context.globs import expanded, is_match
from mainspring.harness.context.markdown import (
    import_mentions,
    is_only_imports,
    read_frontmatter,
    without_comments,
    without_frontmatter,
)

MAX_IMPORT_DEPTH = 4

Scope: TypeAlias = Literal["managed", "user", "project"]


class Files(Protocol):
    """Where instruction files are. Waiting is the implementer's: call `load` in a worker thread."""

    def real(self, path: PurePosixPath) -> PurePosixPath:
        """Where a path leads when every symbolic link is followed, whether or not it is there."""
        ...

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes | None:
        """The beginning of a regular file, or `None` if there is none.

        Raises:
            OSError: it is there and cannot be read.
        """
        ...

    def names(self, folder: PurePosixPath) -> Sequence[str]:
        """What is in a folder, sorted; nothing if it is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    project: PurePosixPath
    """What the project's own files say is read from here or below, and from nowhere else."""
    cwd: PurePosixPath
    home: PurePosixPath | None = None
    managed: PurePosixPath | None = None
    """The file of whoever runs the machine."""
    shared: tuple[PurePosixPath, ...] = ()
    """Folders outside the project that its files may import from, because the user said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    max_file_chars: int = 40_000
    max_total_chars: int = 200_000
    max_files: int = 200


@dataclass(frozen=True, slots=True)
class Section:
    source: str
    """Relative to the project or to `~`, so that it is the same on every machine."""
    text: str
    scope: Scope = "project"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedRule:
    source: str
    text: str
    folder: str
    """Relative to the project, empty for the project itself; the globs are relative to this."""
    globs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instructions:
    sections: tuple[Section, ...] = ()
    """The most general first, the closest last."""
    scoped: tuple[ScopedRule, ...] = ()
    warnings: tuple[str, ...] = ()


def load(files: Files, places: Places, limits: Limits | None = None) -> Instructions:
    """Read what holds from the start: managed, the user's, then every folder down to the cwd."""
    reader = _Reader.of(files, places, limits or Limits())
    return reader.instructions([*reader.own_candidates(), *reader.folders(reader.to_cwd())])


def load_nested(
    files: Files, places: Places, path: PurePosixPath, limits: Limits | None = None
) -> Instructions:
    """Read what holds only below the cwd, because a file there was read.

    A section whose source is loaded already is the same section: keep the first.
    """
    reader = _Reader.of(files, places, limits or Limits())
    return reader.instructions(list(reader.folders(reader.below_cwd(path))))


def rules_for(instructions: Instructions, paths: Iterable[str]) -> tuple[ScopedRule, ...]:
    """The scoped rules that hold for files, which are named relative to the project."""
    named = tuple(paths)
    return tuple(rule for rule in instructions.scoped if any(_is_for(rule, path) for path in named))


def _is_for(rule: ScopedRule, path: str) -> bool:
    prefix = f"{rule.folder}/" if rule.folder else ""
    inside = path.removeprefix(prefix)
    return path.startswith(prefix) and any(is_match(glob, inside) for glob in rule.globs)


def render(instructions: Instructions) -> str:
    """The sections as one text; the same bytes for the same sections."""
    if not instructions.sections:
        return ""
    intro = (
        "Instruction files, the most general first. "
        "Where two of them disagree, the later one is closer to the work and holds."
    )
    blocks = [
        f"<instructions source={quoteattr(section.source)} scope={quoteattr(section.scope)}>\n"
        f"{_enclosed(section.text)}\n</instructions>"
        for section in instructions.sections
    ]
    return "\n\n".join([intro, *blocks])


def _enclosed(text: str) -> str:
    """A file cannot end its own section, and so cannot pass for a file of another scope."""
    return re.sub(r"<(?=\s*/?\s*instructions)", "&lt;", text, flags=re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Candidate:
    path: PurePosixPath
    scope: Scope = "project"
    imports: bool = True
    """False of AGENTS.md, which is plain Markdown."""
    rules_of: str | None = None
    """For a rule: the folder its globs are relative to."""


@dataclass(frozen=True, slots=True)
class _Document:
    real: PurePosixPath
    source: str
    text: str
    candidate: _Candidate


@dataclass(slots=True)
class _Reader:
    files: Files
    places: Places
    """With every link followed."""
    limits: Limits
    sections: list[Section] = field(default_factory=list[Section])
    scoped: list[ScopedRule] = field(default_factory=list[ScopedRule])
    warnings: list[str] = field(default_factory=list[str])
    own: dict[PurePosixPath, _Document] = field(default_factory=dict[PurePosixPath, _Document])
    """Files that are instructions by their name; an import of one adds nothing."""
    imported: set[PurePosixPath] = field(default_factory=set[PurePosixPath])

    @classmethod
    def of(cls, files: Files, places: Places, limits: Limits) -> _Reader:
        real = Places(
            project=files.real(places.project),
            cwd=files.real(places.cwd),
            home=None if places.home is None else files.real(places.home),
            managed=places.managed,
            shared=tuple(files.real(folder) for folder in places.shared),
        )
        return cls(files, real, limits)

    def instructions(self, candidates: Iterable[_Candidate]) -> Instructions:
        for candidate in candidates:
            document = self._open(candidate.path, candidate)
            if document is not None:
                self._own(document)
        for document in self.own.values():
            if document.candidate.rules_of is None:
                self._add(document)
            else:
                self._add_rule(document, document.candidate.rules_of)
        return Instructions(
            sections=self._within_budget(),
            scoped=tuple(self.scoped),
            warnings=tuple(dict.fromkeys(self.warnings)),
        )

    def _own(self, document: _Document) -> None:
        known = self.own.setdefault(document.real, document)
        if document.candidate.imports and known.candidate.rules_of is None:
            # A CLAUDE.md that is a link to AGENTS.md: one file, read as both.
            candidate = replace(known.candidate, imports=True)
            self.own[document.real] = replace(known, candidate=candidate)

    def own_candidates(self) -> Iterator[_Candidate]:
        if self.places.managed is not None:
            yield _Candidate(self.places.managed, "managed")
        if self.places.home is not None:
            yield _Candidate(self.places.home / ".claude/CLAUDE.md", "user")
            yield from self._rules(self.places.home, "", "user")

    def folders(self, folders: Iterable[PurePosixPath]) -> Iterator[_Candidate]:
        for folder in folders:
            yield _Candidate(folder / "AGENTS.md", imports=False)
            yield _Candidate(folder / "CLAUDE.md")
            yield _Candidate(folder / ".claude/CLAUDE.md")
            relative = folder.relative_to(self.places.project).as_posix()
            yield from self._rules(folder, "" if relative == "." else relative, "project")
            yield _Candidate(folder / "CLAUDE.local.md")

    def to_cwd(self) -> tuple[PurePosixPath, ...]:
        project, cwd = self.places.project, self.places.cwd
        if cwd.is_relative_to(project):
            return _chain(project, cwd)
        self.warnings.append("the working folder is outside the project: only its root is read")
        return (project,)

    def below_cwd(self, path: PurePosixPath) -> tuple[PurePosixPath, ...]:
        cwd = self.places.cwd
        folder = self.files.real(cwd / path).parent
        inside = folder.is_relative_to(cwd) and cwd.is_relative_to(self.places.project)
        return _chain(cwd, folder)[1:] if inside else ()

    def _rules(self, folder: PurePosixPath, relative: str, scope: Scope) -> Iterator[_Candidate]:
        rules = folder / ".claude/rules"
        try:
            names = [name for name in self.files.names(rules) if name.endswith(".md")]
        except OSError as error:
            self.warnings.append(f"{self._shown(rules)} cannot be read: {error.strerror}")
            return
        for name in names:
            yield _Candidate(rules / name, scope, rules_of=relative)

    def _open(self, path: PurePosixPath, candidate: _Candidate) -> _Document | None:
        real = self.files.real(path)
        source = self._shown(real)
        max_bytes = 4 * self.limits.max_file_chars + 4  # UTF-8 at its longest
        if not self._is_allowed(real, candidate.scope):
            self.warnings.append(f"{self._shown(path)} leads out of the project: not read")
            return None
        try:
            content = self.files.read(real, max_bytes)
        except OSError as error:
            self.warnings.append(f"{source} cannot be read: {error.strerror}")
            return None
        if content is None:
            return None
        if b"\0" in content:
            self.warnings.append(f"{source} is not text: not read")
            return None
        text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        return _Document(real, source, without_comments(text).strip(), candidate)

    def _is_allowed(self, real: PurePosixPath, scope: Scope) -> bool:
        allowed = (self.places.project, *self.places.shared)
        return scope != "project" or any(real.is_relative_to(folder) for folder in allowed)

    def _shown(self, path: PurePosixPath) -> str:
        project, home = self.places.project, self.places.home
        if path.is_relative_to(project):
            return path.relative_to(project).as_posix()
        if home is not None and path.is_relative_to(home):
            return f"~/{path.relative_to(home).as_posix()}"
        return path.as_posix()

    def _add(self, document: _Document) -> None:
        if not is_only_imports(document.text):
            self._add_section(document)
        if document.candidate.imports:
            self._follow(document, 1)

    def _add_section(self, document: _Document) -> None:
        text = self._cut(document.source, document.text, self.limits.max_file_chars)
        self.sections.append(Section(document.source, text, document.candidate.scope))

    def _follow(self, document: _Document, depth: int) -> None:
        for mention in import_mentions(document.text):
            target = self._imported(document, mention)
            if target is None or target.real in self.imported or target.real == document.real:
                continue
            if depth > MAX_IMPORT_DEPTH or len(self.sections) >= self.limits.max_files:
                limit = f"more than {MAX_IMPORT_DEPTH} deep or {self.limits.max_files} files"
                self.warnings.append(f"{document.source}: @{mention} not read: imports go {limit}")
                continue
            own = self.own.get(target.real)
            if own is None:
                self.imported.add(target.real)
                if not is_only_imports(target.text):
                    self._add_section(target)
            elif own.candidate.imports:
                continue  # it follows its imports itself, in its own place
            else:
                self.imported.add(target.real)
            self._follow(target, depth + 1)

    def _imported(self, document: _Document, mention: str) -> _Document | None:
        bare = mention.rstrip(".,;:!?)]}>'\"*_")
        candidate = replace(document.candidate, imports=True, rules_of=None)
        warnings = len(self.warnings)
        for spelling in dict.fromkeys((mention, bare, bare.partition("#")[0])):
            path = self._path(document, spelling)
            found = None if path is None else self._open(path, candidate)
            if found is not None or len(self.warnings) > warnings:
                return found
        # A bare word, as in "ask @alice", is a mention of somebody.
        if "/" in bare or "." in bare:
            self.warnings.append(f"{document.source}: there is no @{bare} to import")
        return None

    def _path(self, document: _Document, mention: str) -> PurePosixPath | None:
        if not mention:
            return None
        if not mention.startswith("~/"):
            return document.real.parent / mention
        return None if self.places.home is None else self.places.home / mention[2:]

    def _add_rule(self, document: _Document, folder: str) -> None:
        try:
            head, body = read_frontmatter(document.text)
            globs = tuple(part for glob in _globs(head.get("paths")) for part in expanded(glob))
        except InvalidInput as error:
            # Better a rule too often than never.
            self.warnings.append(f"{document.source} is read for all files: {error}")
            body, globs = without_frontmatter(document.text), ()
        document = replace(document, text=body.strip())
        if not globs:
            self._add(document)
        elif document.text:
            text = self._cut(document.source, document.text, self.limits.max_file_chars)
            rule = ScopedRule(source=document.source, text=text, folder=folder, globs=globs)
            self.scoped.append(rule)

    def _within_budget(self) -> tuple[Section, ...]:
        """When all is too much, the closest files stay whole; but none displaces a wider scope."""
        left = self.limits.max_total_chars
        kept = dict[int, Section]()
        closest_first = list(enumerate(self.sections))[::-1]
        ranks: tuple[Scope, ...] = ("managed", "user", "project")
        for rank in ranks:
            for at, section in closest_first:
                if section.scope == rank:
                    text = self._cut(section.source, section.text, left)
                    left = max(0, left - len(section.text))
                    kept[at] = replace(section, text=text)
        return tuple(kept[at] for at in sorted(kept))

    def _cut(self, source: str, text: str, max_chars: int) -> str:
        if len(text) <= max_chars:
            return text
        self.warnings.append(f"{source} is too long: only its first {max_chars} characters hold")
        head = text[:max_chars]
        whole_lines = head.rpartition("\n")[0] or head
        notice = f"[{source} is too long and was cut here; the rest is in the file]"
        return f"{whole_lines}\n{notice}".lstrip()


def _chain(top: PurePosixPath, bottom: PurePosixPath) -> tuple[PurePosixPath, ...]:
    steps = bottom.relative_to(top).parts
    return tuple(top.joinpath(*steps[:count]) for count in range(len(steps) + 1))


def _globs(written: object) -> tuple[str, ...]:
    """The `paths` of a rule: a list, or one string with commas."""
    if written is None:
        return ()
    if isinstance(written, str):
        return tuple(filter(None, (part.strip() for part in _outside_braces(written))))
    items = cast("list[object]", written) if isinstance(written, list) else [None]
    globs = [item for item in items if isinstance(item, str)]
    if len(globs) < len(items):
        raise InvalidInput("its `paths` is not a list of globs")
    return tuple(globs)


def _outside_braces(globs: str) -> list[str]:
    return re.split(r",(?![^{}]*\})", globs)
