"""Reads `agent.yaml`: everything about an agent except its instructions. Every key is optional."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from msgspec import Struct, convert

from mainspring import error_table
from mainspring.core.errors import InvalidInput
from mainspring.core.events import Permission
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Effort
from mainspring.files.atomic_file import read_bounded
from mainspring.harness.answer_checks import AnswerCheck
from mainspring.harness.limits import Limits
from mainspring.harness.permissions.policy import parse_mode
from mainspring.harness.permissions.rule import parse_rule
from mainspring.harness.permissions.tool_names import canonical_name
from mainspring.harness.state.outcome_state import MAX_ITERATIONS
from mainspring.runtime.agent_folder.production_settings import (
    ManifestGrade,
    ServiceObjectives,
    read_grade,
    read_objectives,
    trusted_fields,
)
from mainspring.runtime.definition_files.finding import Finding
from mainspring.runtime.definition_files.yaml_reader import (
    FieldReaders,
    Node,
    YamlReader,
    YamlValueError,
)
from mainspring.runtime.memory.memory_mode import (
    LEARN_MODES,
    MEMORY_MODES,
    MemoryLearning,
    MemoryMode,
)

if TYPE_CHECKING:
    import zoneinfo
else:
    zoneinfo = LazyModule("zoneinfo")  # most agents have no schedule

FILE = "agent.yaml"
_MAX_BYTES = 100_000
"""Parsing a megabyte of YAML takes many seconds, and no manifest is that long."""
_EFFORTS: tuple[str, ...] = get_args(Effort)
_CRON_FIELDS = 5  # minute, hour, day, month, weekday
_MIN_SHARE, _MAX_SHARE = 0.1, 0.95  # of the context for compaction's threshold
_FIELDS = {"agents": "subagents", "coordinator": "is_coordinator"}
"""Keys whose field has another name."""
_LEARNING = {"learn": "by", "max_cost_usd": "max_usd"}
SERVICE_KEYS = ("schedule", "grade")
"""Keys for work that the service starts by itself: they need trust, and sessions do not read
them."""
_FOREIGN_KEYS = ("spec_version", "schema_version", "apiVersion", "kind")
"""Keys that mark an `agent.yaml` of another tool; ours has no version."""


class Permissions(Struct, frozen=True, kw_only=True):
    """Permissions as in a settings file; they need the same trust."""

    mode: str | None = None
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class SubagentRules(Struct, frozen=True, kw_only=True):
    """Which subagents may be called, and how many; `None`: no restriction."""

    names: tuple[str, ...] | None = None
    max_depth: int = 2
    max_parallel: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSchedule:
    cron: str = ""
    timezone: str = "UTC"
    message: str = ""


class ManifestMemory(Struct, frozen=True, kw_only=True):
    mode: MemoryMode = "on"
    learning: MemoryLearning = MemoryLearning()


class ManifestOutcome(Struct, frozen=True, kw_only=True):
    description: str = ""
    rubric: str = ""
    max_iterations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentManifest:
    name: str = ""
    description: str = ""
    model: str = ""
    effort: Effort = "none"
    instructions: str = ""
    """They follow the instructions from files."""
    rules: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("*",)
    limits: Limits = field(default_factory=Limits)
    permissions: Permissions | None = None
    environment: dict[str, object] | None = None
    """The same as `sandbox` in a settings file."""
    subagents: SubagentRules = field(default_factory=SubagentRules)
    is_coordinator: bool = False
    checks: tuple[AnswerCheck, ...] = ()
    require_evidence: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    """Resources of MCP servers, as `server:uri`."""
    input_schema: dict[str, object] | None = None
    schedule: ManifestSchedule | None = None
    outcome: ManifestOutcome | None = None
    slo: ServiceObjectives | None = None
    grade: ManifestGrade | None = None
    memory: ManifestMemory = ManifestMemory()  # noqa: RUF009 (immutable)
    findings: tuple[Finding, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    """The line of each key."""

    @property
    def error(self) -> Finding | None:
        """The first error. An agent whose limits could not be read must not run."""
        return next((finding for finding in self.findings if finding.level == "error"), None)


def read_manifest(file: Path) -> AgentManifest:
    """Read a manifest; an empty one if the file does not exist."""
    reader = YamlReader(FILE)
    try:
        text = _text(file)
    except InvalidInput as error:
        reader.findings.append(
            Finding(level="error", file=FILE, what=str(error).removeprefix(f"{file}: "))
        )
        text = ""
    node = _own_root(reader, text)
    values: dict[str, object] = {}
    if node is not None:
        try:
            values = reader.fields(node, _readers(reader))
        except YamlValueError as error:
            reader.note("error", error.node, str(error), "write it as `name: value`")
    fields = {_FIELDS.get(key, key): value for key, value in values.items()}
    lines = {} if node is None else reader.lines(node)
    return AgentManifest(**fields, findings=tuple(reader.findings), lines=lines)  # pyright: ignore[reportArgumentType] (each reader gives what its field holds)


def agent_name(folder: Path) -> str:
    """The name of the agent in a folder."""
    return read_manifest(folder / FILE).name or folder.resolve().name


def settings_in(file: Path) -> dict[str, object]:
    """The keys of a manifest that correspond to a settings file, in the shape of one; empty if
    there are none.

    Raises:
        InvalidInput: one of them is not valid. Ignoring it would permit what it forbids.
    """
    reader = YamlReader(str(file))
    node = _own_root(reader, _text(file))
    values: dict[str, object] = {}
    if node is not None and reader.is_mapping(node):
        readers = _readers(reader)
        keys = ("permissions", "environment", *SERVICE_KEYS)
        values = reader.chosen(node, {key: readers[key] for key in keys})
    if errors := [finding for finding in reader.findings if finding.level == "error"]:
        raise error_table.BAD_AGENT_FILE.error(InvalidInput, finding=errors[0])
    settings: dict[str, object] = {}
    if isinstance(permissions := values.get("permissions"), Permissions):
        rules = {"allow": permissions.allow, "ask": permissions.ask, "deny": permissions.deny}
        mode = {} if permissions.mode is None else {"defaultMode": permissions.mode}
        settings["permissions"] = {**rules, **mode}
    if values.get("environment"):
        settings["sandbox"] = values["environment"]
    if isinstance(schedule := values.get("schedule"), ManifestSchedule):
        settings["schedule"] = asdict(schedule)
    if isinstance(grade := values.get("grade"), ManifestGrade):
        settings["grade"] = trusted_fields(grade, file.parent)
    return settings


def _own_root(reader: YamlReader, text: str) -> Node | None:
    """The root of the file, unless the file belongs to another tool, which is reported and
    ignored."""
    node = reader.root(text)
    if node is None:
        return None
    foreign = next((key for key in _FOREIGN_KEYS if key in reader.lines(node)), None)
    if foreign is None:
        return node
    what = f"has the key {foreign}, so it is another tool's file: it is ignored"
    reader.note("warning", node, what, f"remove {foreign} if the file is meant for Mainspring")
    return None


def _text(file: Path) -> str:
    try:
        return (read_bounded(file, max_bytes=_MAX_BYTES) or b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{file}: not UTF-8") from error


def _readers(reader: YamlReader) -> FieldReaders:
    subagents = _subagent_rules(reader)
    return {
        "name": reader.string,
        "description": reader.string,
        "model": reader.string,
        "effort": reader.one_of(_EFFORTS),
        "instructions": lambda node: reader.string(node).strip(),
        "rules": reader.strings,
        "tools": lambda node: tuple(canonical_name(name) for name in reader.strings(node)),
        "limits": _limits(reader),
        "permissions": _permissions(reader),
        "environment": reader.mapping,
        "subagents": subagents,
        "agents": subagents,
        "coordinator": reader.truth,
        "checks": _checks(reader),
        "require_evidence": reader.strings,
        "resources": _resources(reader),
        "input_schema": _input_schema(reader),
        "schedule": _schedule(reader),
        "outcome": _outcome(reader),
        "slo": read_objectives(reader),
        "grade": read_grade(reader),
        "memory": _memory(reader),
    }


def _memory(reader: YamlReader) -> Callable[[Node], ManifestMemory]:
    mode = reader.one_of(MEMORY_MODES)
    readers: FieldReaders = {
        "mode": mode,
        "learn": reader.one_of(LEARN_MODES),
        "max_cost_usd": reader.number(Decimal, "an amount in US dollars"),
    }

    def read(node: Node) -> ManifestMemory:
        if not reader.is_mapping(node):
            return convert({"mode": mode(node)}, ManifestMemory)
        fields = reader.fields(node, readers)
        learning = {_LEARNING[key]: value for key, value in fields.items() if key in _LEARNING}
        return convert({"mode": fields.get("mode", "on"), "learning": learning}, ManifestMemory)

    return read


def _resources(reader: YamlReader) -> Callable[[Node], tuple[str, ...]]:
    def read(node: Node) -> tuple[str, ...]:
        names = reader.strings(node)
        for name in names:
            server, _, uri = name.partition(":")
            if not server or not uri or len(name.split()) != 1:
                raise YamlValueError(node, f"must be server:uri, as in notes:note://1, not {name}")
        return names

    return read


def _input_schema(reader: YamlReader) -> Callable[[Node], dict[str, object]]:
    def read(node: Node) -> dict[str, object]:
        schema = reader.mapping(node)
        properties = schema.get("properties")
        if schema.get("type") != "object" or not isinstance(properties, dict) or not properties:
            raise YamlValueError(node, "must be a JSON Schema of an object with properties")
        if "session_id" in properties:
            raise YamlValueError(node, "must not have the property session_id, which is reserved")
        return schema

    return read


def _limits(reader: YamlReader) -> Callable[[Node], Limits]:
    counts = ("max_turns", "max_input_tokens", "max_output_tokens", "max_tool_calls")
    readers: FieldReaders = {
        **dict.fromkeys((*counts, "target_tokens"), reader.number(int, "a whole number")),
        "max_seconds": reader.number(float, "a number of seconds"),
        "max_cost_usd": reader.number(Decimal, "an amount in US dollars"),
        "max_context": reader.number(int, "a whole number"),
        "compact_at": _window_share(reader),
    }
    return lambda node: Limits(**reader.fields(node, readers))  # pyright: ignore[reportArgumentType] (as above)


def _window_share(reader: YamlReader) -> Callable[[Node], float]:
    what = "a share of the context window, from 0.1 to 0.95"

    def read(node: Node) -> float:
        share = reader.number(float, what)(node)
        if not _MIN_SHARE <= share <= _MAX_SHARE:
            raise YamlValueError(node, f"must be {what}, not {share}")
        return share

    return read


def _permissions(reader: YamlReader) -> Callable[[Node], Permissions]:
    def mode(node: Node) -> str:
        try:
            return parse_mode(reader.string(node))
        except InvalidInput as error:
            raise YamlValueError(node, f"is wrong: {error}") from error

    def rules(behavior: Permission) -> Callable[[Node], tuple[str, ...]]:
        return lambda node: tuple(_rules(reader, node, behavior))

    readers: FieldReaders = {
        "mode": mode,
        "defaultMode": mode,
        "allow": rules("allow"),
        "ask": rules("ask"),
        "deny": rules("deny"),
    }

    def read(node: Node) -> Permissions:
        values = reader.fields(node, readers)
        claude_mode = values.pop("defaultMode", None)
        return Permissions(**{"mode": claude_mode, **values})  # pyright: ignore[reportArgumentType] (as above)

    return read


def _rules(reader: YamlReader, node: Node, behavior: Permission) -> list[str]:
    rules: list[str] = []
    for item in reader.items(node):
        text = reader.string(item)
        try:
            parse_rule(text, behavior=behavior)
        except InvalidInput as error:
            if behavior != "allow":  # ignoring it would permit what it forbids
                raise YamlValueError(item, f"has an invalid rule: {error}") from error
            reader.note("warning", item, f"allow: {error}; it allows nothing")
            continue
        rules.append(text)
    return rules


def _subagent_rules(reader: YamlReader) -> Callable[[Node], SubagentRules]:
    count = reader.number(int, "a whole number")
    readers: FieldReaders = {
        "names": reader.strings,
        "max_depth": count,
        "max_parallel": count,
    }

    def read(node: Node) -> SubagentRules:
        if reader.is_list(node):
            return SubagentRules(names=reader.strings(node))
        return SubagentRules(**reader.fields(node, readers))  # pyright: ignore[reportArgumentType] (as above)

    return read


def _checks(reader: YamlReader) -> Callable[[Node], tuple[AnswerCheck, ...]]:
    readers: FieldReaders = {
        "max_chars": reader.number(int, "a whole number"),
        "banned": reader.strings,
        "must_mention": reader.strings,
        "citations": reader.truth,
    }
    return lambda node: (AnswerCheck(**reader.fields(node, readers)),)  # pyright: ignore[reportArgumentType] (as above)


def _schedule(reader: YamlReader) -> Callable[[Node], ManifestSchedule]:
    def cron(node: Node) -> str:
        text = reader.string(node)
        if len(text.split()) != _CRON_FIELDS:
            raise YamlValueError(
                node, f"must have {_CRON_FIELDS} fields, as in '0 9 * * 1-5', not {text!r}"
            )
        return text

    def timezone(node: Node) -> str:
        name = reader.string(node)
        try:
            return zoneinfo.ZoneInfo(name).key
        except (KeyError, ValueError, OSError) as error:
            raise YamlValueError(
                node, f"must be a time zone such as Europe/Vienna, not {name!r}"
            ) from error

    readers: FieldReaders = {"cron": cron, "timezone": timezone, "message": reader.string}
    return lambda node: ManifestSchedule(**reader.fields(node, readers))  # pyright: ignore[reportArgumentType] (as above)


def _outcome(reader: YamlReader) -> Callable[[Node], ManifestOutcome]:
    count = reader.number(int, "a whole number")

    def iterations(node: Node) -> int:
        number = count(node)
        if not 1 <= number <= MAX_ITERATIONS:
            raise YamlValueError(node, f"must be from 1 to {MAX_ITERATIONS}, not {number}")
        return number

    readers: FieldReaders = {
        "description": reader.string,
        "rubric": reader.string,
        "max_iterations": iterations,
    }
    return lambda node: ManifestOutcome(**reader.fields(node, readers))  # pyright: ignore[reportArgumentType] (as above)
