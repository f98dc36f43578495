"""Loads instruction files, each once. A file that cannot be read is an `InstructionIssue`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from msgspec import Struct

from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.harness.context.frontmatter import read_frontmatter
from mainspring.harness.context.instruction_files import (
    CandidateFinder,
    InstructionCandidate,
    InstructionFiles,
    InstructionIssue,
    InstructionRoots,
    Scope,
)
from mainspring.harness.context.instruction_parsing import (
    ALWAYS,
    InstructionLimits,
    RuleConditions,
    cut_point,
    file_references,
    import_mentions,
    is_npm_package,
    is_only_imports,
    line_of,
    read_conditions,
    without_comments,
)
from mainspring.retrieval.globs import matches_glob

if TYPE_CHECKING:
    from xml.sax import saxutils
else:
    saxutils = LazyModule("xml.sax.saxutils")  # it imports the HTTP client of the library

MAX_IMPORT_DEPTH = 4  # imports within imports, as in Claude Code
_MAX_FILE_BYTES = 4_000_000  # of one file, before its share of the context
_PUNCTUATION = ".,;:!?)]}>'\"*_"  # what may follow a mention in a sentence
_REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
_CONDITION_KEYS = ("paths", "inclusion", "globs")


@dataclass(frozen=True, slots=True)
class Section:
    source: str
    """Relative to the project or to `~`, so that it is the same on every machine."""
    text: str
    scope: Scope = "project"


class ScopedRule(Struct, frozen=True, kw_only=True):
    source: str
    text: str
    folder: str
    """Relative to the project, empty for the project itself; the globs are relative to this."""
    globs: tuple[str, ...]
    scope: Scope = "project"


class Instructions(Struct, frozen=True, kw_only=True):
    sections: tuple[Section, ...] = ()
    """The most general first, the most specific last."""
    scoped: tuple[ScopedRule, ...] = ()
    issues: tuple[InstructionIssue, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(str(issue) for issue in self.issues if not issue.is_note)


def load(
    files: InstructionFiles,
    roots: InstructionRoots,
    limits: InstructionLimits | None = None,
) -> Instructions:
    """Load the files that apply from the start: managed, user, then each folder down to the cwd."""
    reader = _Reader(files, roots.resolved(files), limits or InstructionLimits())
    if not reader.roots.cwd.is_relative_to(reader.roots.project):
        problem = "the working folder is outside the project: only the project's root is read"
        reader.report(InstructionIssue(file=".", what=problem))
    return reader.instructions(CandidateFinder(files, reader.roots, reader.report).from_start())


def load_nested(
    files: InstructionFiles,
    roots: InstructionRoots,
    path: PurePosixPath,
    limits: InstructionLimits | None = None,
) -> Instructions:
    """Load the files of folders below the cwd once a file there was read.

    A section whose source is already loaded is the same section: keep the first.
    """
    reader = _Reader(files, roots.resolved(files), limits or InstructionLimits())
    folders = reader.roots.below_cwd(files.real(reader.roots.cwd / path))
    finder = CandidateFinder(files, reader.roots, reader.report)
    return reader.instructions(finder.of_folders(folders))


def rules_for(instructions: Instructions, paths: Iterable[str]) -> tuple[ScopedRule, ...]:
    """The scoped rules that apply to files; paths are relative to the project."""
    files = tuple(paths)
    return tuple(rule for rule in instructions.scoped if any(_is_for(rule, path) for path in files))


def _is_for(rule: ScopedRule, path: str) -> bool:
    prefix = f"{rule.folder}/" if rule.folder else ""
    inside = path.removeprefix(prefix)
    return path.startswith(prefix) and any(matches_glob(glob, inside) for glob in rule.globs)


def render(instructions: Instructions) -> str:
    """The sections as one text; the same bytes for the same sections."""
    if not instructions.sections:
        return ""
    intro = (
        "Instruction files, the most general first. "
        "Where two of them disagree, the later one applies: it is closer to the work."
    )
    return "\n\n".join([intro, *map(render_section, instructions.sections)])


def render_section(section: Section) -> str:
    """Escape the end tag of a section, so that a file cannot pretend to be of another scope."""
    text = re.sub(r"<(?=\s*/?\s*instructions)", "&lt;", section.text, flags=re.IGNORECASE)
    source, scope = saxutils.quoteattr(section.source), saxutils.quoteattr(section.scope)
    return f"<instructions source={source} scope={scope}>\n{text}\n</instructions>"


@dataclass(frozen=True, slots=True)
class _Document:
    real: PurePosixPath
    source: str
    text: str
    file_text: str
    """The text with comments and frontmatter, so that line numbers match the file."""
    candidate: InstructionCandidate
    conditions: RuleConditions = ALWAYS

    @property
    def has_only_imports(self) -> bool:
        is_mentioning = self.candidate.imports == "mentions"
        return is_only_imports(self.text) if is_mentioning else not self.text.strip()


@dataclass(slots=True)
class _Reader:
    files: InstructionFiles
    roots: InstructionRoots
    """With all links resolved."""
    limits: InstructionLimits
    sections: list[Section] = field(default_factory=list[Section])
    scoped: list[ScopedRule] = field(default_factory=list[ScopedRule])
    issues: list[InstructionIssue] = field(default_factory=list[InstructionIssue])
    own: dict[PurePosixPath, _Document] = field(default_factory=dict[PurePosixPath, _Document])
    """Files that are loaded by their name; importing one has no further effect."""
    imported: set[PurePosixPath] = field(default_factory=set[PurePosixPath])

    def report(self, issue: InstructionIssue) -> None:
        if issue not in self.issues:
            self.issues.append(issue)

    def instructions(self, candidates: Iterable[InstructionCandidate]) -> Instructions:
        for candidate in candidates:
            document = self._open(candidate.path, candidate)
            if document is not None:
                self._own(self._with_conditions(document))
        scoped = [document for document in self.own.values() if document.conditions.globs]
        for document in self.own.values():
            if not document.conditions.globs:
                self._add(document)
        for document in scoped:  # imports may apply to all files; that is known by now
            self._add_scoped(document)
        return Instructions(
            sections=self._within_budget(), scoped=tuple(self.scoped), issues=tuple(self.issues)
        )

    def _own(self, document: _Document) -> None:
        if not document.conditions.is_read:
            return
        first_document = self.own.setdefault(document.real, document)
        if document.candidate.imports and document.candidate.kind == first_document.candidate.kind:
            # A CLAUDE.md that is a link to AGENTS.md: one file, read as both.
            candidate = replace(first_document.candidate, imports=document.candidate.imports)
            self.own[document.real] = replace(first_document, candidate=candidate)

    def _open(
        self,
        path: PurePosixPath,
        candidate: InstructionCandidate,
        refuse: Callable[[str], None] | None = None,
    ) -> _Document | None:
        real = self.files.real(path)
        refuse = refuse or partial(self._report_file, self.roots.display_path(path))
        if not self.roots.allow(real, candidate.scope):
            return refuse("leads out of the project: not read")
        try:
            content = self.files.read(real, _MAX_FILE_BYTES)
        except OSError as error:
            return refuse(f"cannot be read: {error.strerror}")
        if content is None:
            return None
        if b"\0" in content:
            return refuse("is not text: not read")
        text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        source = self.roots.display_path(real)
        if _REPLACEMENT_CHARACTER in text and _REPLACEMENT_CHARACTER.encode() not in content:
            line = text.partition(_REPLACEMENT_CHARACTER)[0].count("\n") + 1
            what = "is not UTF-8: characters that cannot be read are replaced"
            self.report(InstructionIssue(file=source, line=line, what=what, fix="save it as UTF-8"))
        return _Document(real, source, without_comments(text).strip(), text, candidate)

    def _with_conditions(self, document: _Document) -> _Document:
        """Parse and remove the frontmatter."""
        kind, file = document.candidate.kind, document.source
        if kind == "plain":
            return document
        head = read_frontmatter(document.text)
        if kind == "persona":
            return replace(document, text=head.body.strip()) if head.is_there else document
        # Cursor's frontmatter is not quite YAML
        for issue in head.issues if kind != "cursor" else ():
            self.report(
                InstructionIssue(file=file, line=issue.line, what=issue.what, fix=issue.fix)
            )
        line = next((head.lines[key] for key in _CONDITION_KEYS if key in head.lines), 1)
        try:
            conditions = read_conditions(kind, head.fields, document.candidate.path.stem)
        except InvalidInput as error:
            conditions = ALWAYS  # better to apply a rule too often than never
            self.report(
                InstructionIssue(file=file, line=line, what=f"applies to all files: {error}")
            )
        if conditions.note is not None:
            self.report(InstructionIssue(file=file, line=line, what=conditions.note, is_note=True))
        offer = conditions.offer
        text = f"Read {file} before you work on this: {offer}" if offer else head.body
        return replace(document, text=text.strip(), conditions=conditions)

    def _add_scoped(self, document: _Document) -> None:
        first, imported = len(self.sections), set(self.imported)
        self._add(document)
        added, self.sections = self.sections[first:], self.sections[:first]
        self.imported = imported  # another rule, for other files, may import the same
        self.scoped += [
            ScopedRule(
                source=section.source,
                text=section.text,
                folder=document.candidate.folder,
                globs=document.conditions.globs,
                scope=section.scope,
            )
            for section in added
        ]

    def _add(self, document: _Document) -> None:
        self._add_section(document)
        self._follow(document, 1)

    def _add_section(self, document: _Document) -> None:
        if not document.has_only_imports:
            self.sections.append(Section(document.source, document.text, document.candidate.scope))

    def _follow(self, document: _Document, depth: int) -> None:
        for spelling, paths in self._imports_of(document):
            target = self._imported(document, spelling, paths)
            if target is None or target.real in self.imported or target.real == document.real:
                continue
            if depth > MAX_IMPORT_DEPTH or len(self.sections) >= self.limits.max_files:
                limit = f"{MAX_IMPORT_DEPTH} levels and {self.limits.max_files} files"
                self._report_import(document, spelling, f"not read: imports are limited to {limit}")
                continue
            own = self.own.get(target.real)
            if own is None:
                self.imported.add(target.real)
                self._add_section(target)
            elif own.candidate.imports:
                continue  # it loads its imports itself
            else:
                self.imported.add(target.real)
            self._follow(target, depth + 1)

    def _imports_of(self, document: _Document) -> list[tuple[str, list[PurePosixPath]]]:
        """The imports of a file: the spelling, and the paths that it may refer to."""
        candidate, here = document.candidate, document.real.parent
        match candidate.imports:
            case "mentions":
                names = import_mentions(document.text)
                return [(f"@{mention}", self._mentioned(here, mention)) for mention in names]
            case "references":
                names = file_references(document.text)
                top = self.roots.project / candidate.folder
                return [(f"#[[file:{name}]]", self._referred(top, here, name)) for name in names]
            case None:
                return []

    def _mentioned(self, here: PurePosixPath, mention: str) -> list[PurePosixPath]:
        bare = mention.rstrip(_PUNCTUATION)
        spellings = dict.fromkeys(filter(None, (mention, bare, bare.partition("#")[0])))
        home = self.roots.home
        return [
            home / spelling[2:] if home and spelling.startswith("~/") else here / spelling
            for spelling in spellings
            if home or not spelling.startswith("~/")
        ]

    def _referred(self, top: PurePosixPath, here: PurePosixPath, name: str) -> list[PurePosixPath]:
        both = [top / name, here / name]
        inside = [path for path in both if self.roots.allow(self.files.real(path), "project")]
        return inside or both[:1]

    def _imported(
        self, document: _Document, spelling: str, paths: list[PurePosixPath]
    ) -> _Document | None:
        if document.candidate.imports == "references":
            # It belongs to the project, whatever file imports it.
            candidate = replace(document.candidate, kind="plain", scope="project")
        else:
            candidate = replace(document.candidate, kind="plain", imports="mentions")
        refusals: list[str] = []
        for path in paths:
            imported = self._open(path, candidate, refusals.append)
            if imported is not None:
                return imported
            if refusals:
                return self._report_import(document, spelling, refusals[0])
        bare = spelling.rstrip(_PUNCTUATION)
        # A bare word, as in "ask @alice", is a mention of somebody; `@scope/x` is an npm package.
        is_path = ("/" in bare or "." in bare) and "/*" not in spelling
        if (is_path and not is_npm_package(bare)) or spelling.startswith("#"):
            fix = "correct the path, or put it in backticks if it is not a path"
            self._report_import(document, spelling, "is not a file that can be imported", fix)
        return None

    def _report_file(self, file: str, what: str, fix: str | None = None) -> None:
        self.report(InstructionIssue(file=file, what=what, fix=fix))

    def _report_import(
        self, document: _Document, spelling: str, what: str, fix: str | None = None
    ) -> None:
        line = line_of(document.file_text, spelling)
        spelling = spelling.rstrip(_PUNCTUATION) if spelling.startswith("@") else spelling
        self.report(
            InstructionIssue(file=document.source, line=line, what=f"{spelling} {what}", fix=fix)
        )

    def _within_budget(self) -> tuple[Section, ...]:
        """Shorten files above the limit: specific ones last, without displacing a wider scope."""
        chars_left = self.limits.max_chars
        shortened = dict[int, Section]()
        closest_first = list(enumerate(self.sections))[::-1]
        ranks: tuple[Scope, ...] = ("managed", "user", "project")
        for rank in ranks:
            for at, section in closest_first:
                if section.scope == rank:
                    text = self._cut(section.source, section.text, chars_left)
                    chars_left = max(0, chars_left - len(section.text))
                    shortened[at] = replace(section, text=text)
        return tuple(shortened[at] for at in sorted(shortened))

    def _cut(self, source: str, text: str, max_chars: int) -> str:
        if len(text) <= max_chars:
            return text
        beginning = text[: cut_point(text, max_chars)].rstrip()
        what = (
            f"is too long: its first {len(beginning):,} of {len(text):,} characters are used; all"
            f" instruction files together may have {self.limits.max_chars:,}"
        )
        self._report_file(source, what, "shorten it, or move parts of it into rules with `paths`")
        notice = f"[{source} is too long and was cut here; the rest is in the file]"
        return f"{beginning}\n{notice}".lstrip()
