"""Reads YAML as a tree with line numbers; checks values, and turns problems into findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec import Struct, field

from mainspring.core.lazy_module import LazyModule
from mainspring.runtime.definition_files.finding import Finding, Level

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")  # many folders have none

T = TypeVar("T")
Node: TypeAlias = "yaml.nodes.Node"
FieldReaders: TypeAlias = Mapping[str, Callable[[Node], object]]

_YAML = "tag:yaml.org,2002:"
_MAX_VALUES = 10_000  # of a file, against aliases that multiply
_MAX_DEPTH = 20  # against an exhausted stack
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class YamlValueError(Exception):
    """A value is wrong; the rest of the file can still be used."""

    def __init__(self, node: Node, what: str) -> None:
        super().__init__(what)
        self.node = node


class YamlReader(Struct):
    file: str
    """For display."""
    findings: list[Finding] = field(default_factory=list[Finding])
    values_left: int = _MAX_VALUES
    """How many more values `plain` may read."""

    def root(self, text: str) -> Node | None:
        """The root node of a text; `None` if it is empty or cannot be parsed."""
        if not text:
            return None
        try:
            return yaml.SafeLoader(text).get_single_node()
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            self._add("error", line, f"not YAML: {error.problem}", "correct it there or just above")
        except (yaml.YAMLError, RecursionError) as error:
            self._add("error", None, f"not YAML: {(str(error).splitlines() or ['?'])[0]}", None)
        return None

    def fields(self, node: Node, readers: FieldReaders) -> dict[str, object]:
        """The values of a mapping, each converted by its reader. Wrong and unknown keys become
        findings.

        Raises: YamlValueError.
        """
        values: dict[str, object] = {}
        for key_node, value in self._pairs(node):
            key = self.string(key_node)
            if key not in readers:
                similar = get_close_matches(key, readers, n=1)
                fix = (
                    f"did you mean {similar[0]}?" if similar else f"known are {', '.join(readers)}"
                )
                self.note("warning", key_node, f"{key} is unknown and has no effect", fix)
                continue
            if key in values:
                self.note("warning", key_node, f"{key} occurs twice", "the last one is used")
            try:
                values[key] = readers[key](value)
            except YamlValueError as error:
                self.note("error", error.node, f"{key} {error}")
        return values

    def lines(self, node: Node) -> dict[str, int]:
        """The line of each key of a mapping."""
        return {
            str(key.value): key.start_mark.line + 1
            for key, _ in (node.value if isinstance(node, yaml.MappingNode) else ())
        }

    def chosen(self, node: Node, readers: FieldReaders) -> dict[str, object]:
        """As `fields`, but only for these keys; others are ignored silently."""
        before = len(self.findings)
        values = self.fields(node, readers)
        errors = [finding for finding in self.findings[before:] if finding.level == "error"]
        self.findings[before:] = errors
        return values

    def note(self, level: Level, node: Node, what: str, fix: str | None = None) -> None:
        self._add(level, node.start_mark.line + 1, what, fix)

    def string(self, node: Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == f"{_YAML}null":
            raise YamlValueError(node, "must be text")
        return str(node.value)

    def is_mapping(self, node: Node) -> bool:
        return isinstance(node, yaml.MappingNode)

    def is_list(self, node: Node) -> bool:
        return isinstance(node, yaml.SequenceNode)

    def items(self, node: Node) -> list[Node]:
        if not isinstance(node, yaml.SequenceNode):
            raise YamlValueError(node, "must be a list of texts")
        return node.value

    def strings(self, node: Node) -> tuple[str, ...]:
        return tuple(self.string(item) for item in self.items(node))

    def truth(self, node: Node) -> bool:
        text = self.string(node)
        if text.lower() not in _BOOLEANS:
            raise YamlValueError(node, f"must be true or false, not {text!r}")
        return _BOOLEANS[text.lower()]

    def one_of(self, names: tuple[str, ...]) -> Callable[[Node], str]:
        def read(node: Node) -> str:
            text = self.string(node)
            if text not in names:
                raise YamlValueError(node, f"must be one of {', '.join(names)}, not {text}")
            return text

        return read

    def number(self, kind: Callable[[str], T], what: str) -> Callable[[Node], T]:
        def read(node: Node) -> T:
            text = self.string(node)
            try:
                value = kind(text)
                is_positive = Decimal(text).is_finite() and Decimal(text) > 0
            except (ValueError, InvalidOperation) as error:
                raise YamlValueError(node, f"must be {what}, not {text!r}") from error
            if not is_positive:
                raise YamlValueError(node, f"must be {what} above 0, not {text}")
            return value

        return read

    def plain(self, node: Node, depth: int = 0) -> object:
        """The node as JSON values. Bounded, since a few lines with aliases can expand to millions
        of values."""
        self.values_left -= 1
        if self.values_left < 0 or depth > _MAX_DEPTH:
            raise YamlValueError(node, "is too large or too deeply nested")
        match node:
            case yaml.MappingNode():
                return {self.string(key): self.plain(value, depth + 1) for key, value in node.value}
            case yaml.SequenceNode():
                return [self.plain(item, depth + 1) for item in node.value]
            case _:
                return self._scalar(node)

    def mapping(self, node: Node) -> dict[str, object]:
        return {self.string(key): self.plain(value) for key, value in self._pairs(node)}

    def _scalar(self, node: Node) -> object:
        text = str(node.value)
        match node.tag.removeprefix(_YAML):
            case "null":
                return None
            case "bool":
                return _BOOLEANS.get(text.lower(), text)
            case "int" if text.lstrip("+-").isdecimal():
                return int(text)
            case "float":
                try:
                    return float(text)
                except ValueError:
                    return text
            case _:
                return text

    def _pairs(self, node: Node) -> list[tuple[Node, Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise YamlValueError(node, "must be names with values")
        return node.value

    def _add(self, level: Level, line: int | None, what: str, fix: str | None) -> None:
        self.findings.append(Finding(level=level, file=self.file, line=line, what=what, fix=fix))
