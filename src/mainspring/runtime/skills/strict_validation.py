"""Whether a skill follows the Agent Skills specification exactly, like `agentskills validate`.
Loading is far more lenient (`skill_file`); this check is for skills to be published."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import yaml

from mainspring.harness.context.frontmatter import Events
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.frontmatter_fields import read_text

FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_MAX_NAME = 64  # characters: the specification of SKILL.md, as are the next two
_MAX_DESCRIPTION = 1024  # characters
_MAX_COMPATIBILITY = 500  # characters
_FENCE = "---"

Node: TypeAlias = yaml.nodes.Node
Pair: TypeAlias = tuple[Node, Node]


class _Broken(Exception):
    """The frontmatter cannot be read; `line` counts from 0 at its start."""

    def __init__(self, what: str, line: int = 0, fix: str | None = None) -> None:
        super().__init__(what)
        self.line = line
        self.fix = fix


def check_strict(folder: Path) -> list[Finding]:
    """Return all violations; empty if the skill is valid."""
    name = next((item for item in ("SKILL.md", "skill.md") if (folder / item).exists()), None)
    if name is None:
        what = "has no SKILL.md" if folder.is_dir() else "is not a folder"
        return [Finding(level="error", file=folder.name, what=what)]
    display_path = f"{folder.absolute().name}/{name}"
    text = read_text(folder / name, display_path)
    if isinstance(text, Finding):
        return [text]
    try:
        pairs = _read(text.replace("\r\n", "\n").replace("\r", "\n"))
    except _Broken as broken:
        line, fix = broken.line + 1, broken.fix
        return [Finding(level="error", file=display_path, line=line, what=str(broken), fix=fix)]
    return list(_Check(display_path, folder.absolute().name, pairs).all())


def _read(text: str) -> list[Pair]:
    """Raises: _Broken."""
    if not text.startswith(_FENCE):
        raise _Broken("does not begin with ---")
    # As in the reference implementation: the next three hyphens end it, wherever they are.
    parts = text.split(_FENCE, 2)
    if len(parts) < 3:
        raise _Broken("its frontmatter has no end", 0, "put a line --- after it")
    try:
        _check_events(parts[1])
        root = yaml.SafeLoader(parts[1]).get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line if error.problem_mark else 0
        raise _Broken(f"its frontmatter is not YAML: {error.problem}", line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _Broken("its frontmatter is not YAML") from error
    if not isinstance(root, yaml.MappingNode):
        raise _Broken("its frontmatter is not a mapping")
    _check_mapping(root)
    return root.value


def _check_events(text: str) -> None:
    """Reject what the reference implementation, which reads a subset of YAML, does not accept."""
    events = cast("Events", yaml.SafeLoader(text))
    while events.check_event():
        event = events.get_event()
        line = event.start_mark.line
        if getattr(event, "flow_style", None):
            raise _Broken("lists and mappings in brackets are not allowed", line, "use lines")
        if getattr(event, "anchor", None) is not None:
            raise _Broken("anchors and aliases are not allowed", line, "put the value in quotes")
        if getattr(event, "tag", None) is not None:
            raise _Broken("tags are not allowed", line, "put the value in quotes")


def _check_below(node: Node) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_below(item)
    elif isinstance(node, yaml.MappingNode):
        _check_mapping(node)


def _check_mapping(node: yaml.MappingNode) -> None:
    """Require unique keys and equal indentation within a mapping."""
    keys: set[str] = set()
    columns: set[int] = set()
    for key, value in _pairs(node):
        line = key.start_mark.line
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            raise _Broken("keys must be text", line)
        if key.value in keys:
            raise _Broken(f"`{key.value}` occurs twice", line, "remove one")
        keys.add(key.value)
        if isinstance(value, yaml.MappingNode):
            columns.add(value.start_mark.column)
        if len(columns) > 1:
            raise _Broken(f"`{key.value}` is not indented like the others", line)
        _check_below(value)


def _pairs(node: yaml.MappingNode) -> list[Pair]:
    return node.value


def _text(node: Node) -> str | None:
    """A bare `=` has a special meaning in YAML."""
    is_text = isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":value")
    return str(node.value) if is_text else None


@dataclass(frozen=True, slots=True)
class _Check:
    file: str
    folder: str
    pairs: list[Pair]

    def all(self) -> Iterator[Finding]:
        values: Mapping[str, Node] = {str(key.value): value for key, value in self.pairs}
        for key in sorted(set(values) - set(FIELDS)):
            yield self._wrong(
                values[key], f"`{key}` is not a field of Agent Skills", "put it in `metadata`"
            )
        for key in ("name", "description"):
            if key not in values:
                yield Finding(level="error", file=self.file, line=1, what=f"`{key}` is missing")
        for key, node in values.items():
            for what in self._problems(key, _text(node)):
                yield self._wrong(node, what)

    def _problems(self, key: str, text: str | None) -> Iterator[str]:
        match key:
            case "name" | "description" if text is None or not text.strip():
                yield f"`{key}` must be text"
            case "name":
                yield from self._name(unicodedata.normalize("NFKC", (text or "").strip()))
            case "description" if text is not None and len(text) > _MAX_DESCRIPTION:
                yield f"`description` has more than {_MAX_DESCRIPTION} characters"
            case "compatibility" if text is None:
                yield "`compatibility` must be text"
            case "compatibility" if len(text or "") > _MAX_COMPATIBILITY:
                yield f"`compatibility` has more than {_MAX_COMPATIBILITY} characters"
            case _:
                return

    def _name(self, name: str) -> Iterator[str]:
        if len(name) > _MAX_NAME:
            yield f"the name has more than {_MAX_NAME} characters"
        if name != name.lower():
            yield f"the name {name} must be lowercase"
        if name.startswith("-") or name.endswith("-") or "--" in name:
            yield f"the name {name} must not begin or end with a hyphen or have two in a row"
        if not all(char.isalnum() or char == "-" for char in name):
            yield f"the name {name} may have only letters, digits and hyphens"
        if name != unicodedata.normalize("NFKC", self.folder):
            yield f"the name {name} must match its folder, {self.folder}"

    def _wrong(self, node: Node, what: str, fix: str | None = None) -> Finding:
        line = node.start_mark.line + 1
        return Finding(level="error", file=self.file, line=line, what=what, fix=fix)
