"""A model that plays a script from a file: its messages are scripted, its tool calls are real.

Its answer is a function of the request alone. So concurrent threads each get their own answers, and
a session that was killed continues where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct

from mainspring import error_table
from mainspring.capabilities.providers.scripted import (
    ScriptAnswer,
    Scripted,
    ScriptLine,
    calls,
    fails,
    says,
)
from mainspring.core.content import TextBlock, plain_text
from mainspring.core.errors import InvalidInput
from mainspring.core.lazy_module import LazyModule
from mainspring.core.model import Assistant, Message, Model, Request, ToolResultBlock, ToolUse, User
from mainspring.files.atomic_file import read_bounded

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")  # only scripts need it

OFFLINE_MODEL = "scripted:demo"
_SCRIPTED_PREFIX = "scripted:"
_DEEPEST = 20  # levels of a script's nesting
_SHOWN = 300  # characters of a message in an error
_NOTE = "<system-note>"
_EMPTY_SUMMARY = "The user and the assistant have talked."


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tool: str
    input: dict[str, object] = {}


class ScriptedStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply."""

    says: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    expects: str = ""
    """Text that the results of the last calls must contain. If they do not, the script stops
    instead of claiming what did not happen."""

    @property
    def line(self) -> ScriptLine:
        text = (TextBlock(self.says),) if self.says else ()
        calls = (ToolUse(id="", name=call.tool, input=call.input) for call in self.calls)
        return ScriptLine((*text, *calls))


class ScriptedPart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The replies, step by step, to one kind of prompt."""

    when: str = ""
    """Text in the prompt; the first part whose text is found is played. If empty, it matches every
    prompt."""
    instructions: str = ""
    """Text that the agent's instructions must have, too: the answer to a prompt can depend on what
    the agent was told."""
    steps: tuple[ScriptedStep, ...]


def offline_model(text: str, *, name: str) -> Scripted:
    """The model for a script in YAML or JSON; `name` is its display name.

    Raises:
        InvalidInput: it is not a valid script.
    """
    parts = read_script(text, name=name)
    return Scripted(otherwise=lambda request: _answer(parts, request, name), delta_seconds=0.002)


def read_script(text: str, *, name: str) -> tuple[ScriptedPart, ...]:
    """Parse a script.

    Raises:
        InvalidInput: it is not a valid script.
    """
    try:
        encoded = msgspec.json.encode(_tree(text))  # dates stay strings
        return msgspec.json.decode(encoded, type=tuple[ScriptedPart, ...])
    except (yaml.YAMLError, msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise error_table.with_hints(
            InvalidInput(f"{name}: {error}"), "docs/models.md describes the format"
        ) from error


def _tree(text: str) -> object:
    """Parse YAML that is not deeply nested and has no aliases: a few can expand to millions of
    values."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader is 20 times as fast
    depth = 0
    for event in cast("Iterator[yaml.Event]", yaml.parse(text, Loader=loader)):  # pyright: ignore[reportUnknownMemberType] (its stubs do not say)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
            what = "it has aliases" if depth <= _DEEPEST else "it is too deep"
            raise ValueError(f"line {event.start_mark.line + 1}: {what}")
    return yaml.load(text, Loader=loader)


def _answer(parts: Sequence[ScriptedPart], request: Request, name: str) -> ScriptAnswer:
    prompt, since = _since_last_prompt(request.messages)
    told = "\n".join(request.system)
    part = next((item for item in parts if item.when in prompt and item.instructions in told), None)
    if part is None:
        return fails("exhausted", f"{name} has no part for {_shorten(prompt)!r}")
    answers = sum(isinstance(message, Assistant) for message in since)
    if answers >= len(part.steps):
        return fails("exhausted", f"{name} ends after {answers} steps for {_shorten(prompt)!r}")
    step = part.steps[answers]
    if step.expects and step.expects not in (texts := _results(since)):
        what = f"{name} goes on only where results have {step.expects!r}; they are {_tail(texts)!r}"
        return fails("exhausted", what)
    return step.line


def _since_last_prompt(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The last prompt, and all messages since."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, Assistant):
            continue
        texts = [part.text for part in message.content if isinstance(part, TextBlock)]
        if prompts := [text for text in texts if not text.startswith(_NOTE)]:
            return "\n".join(prompts), messages[index + 1 :]
    return "", messages


def _results(since: Sequence[Message]) -> str:
    last = since[-1].content if since else ()
    return "\n".join(plain_text(part.content) for part in last if isinstance(part, ToolResultBlock))


def _tail(text: str) -> str:
    """The end of the text: of several results, the last most likely shows what went wrong."""
    return text if len(text) <= _SHOWN else f"...{text[-_SHOWN:]}"


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def scripted_models(name: str, folder: Path) -> dict[str, Model]:
    """The scripts in an agent's folder among the models that it runs with.

    Only the person who runs the agent may name one: otherwise any file could be read.

    Raises:
        InvalidInput: there is no such file inside the folder, or it is not a valid script.
    """
    names = [item.strip() for item in name.split(",")]
    files = [item for item in names if item.startswith(_SCRIPTED_PREFIX) and item != OFFLINE_MODEL]
    return {file: _read_script(file.removeprefix(_SCRIPTED_PREFIX), folder) for file in files}


def scripts_hash(names: Sequence[str], folder: Path) -> str:
    """A hash of the script files, because replies depend on the file, not on its name. Blocks."""
    files = (folder / name.partition(":")[2] for name in names)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def scripted_conversation(
    steps: Sequence[Mapping[str, object]], name: str, *, summary_prompt: str
) -> Scripted:
    """A model that replies with these steps. Its summaries are nearly empty: information
    that is needed later must survive compaction without them."""
    parts = [{"when": summary_prompt, "steps": [{"says": _EMPTY_SUMMARY}]}, {"steps": steps}]
    return offline_model(msgspec.json.encode(parts).decode(), name=name)


def _read_script(path: str, folder: Path) -> Model:
    file = (folder / path).resolve()
    if not file.is_relative_to(folder.resolve()):
        raise InvalidInput(f"{path}: a script is inside the agent's folder, {folder}")
    content = read_bounded(file)
    if content is None:
        raise error_table.NO_SCRIPT.error(InvalidInput, path=path, folder=folder)
    return offline_model(content.decode(errors="replace"), name=path)


LABEL = "[offline demonstration model]"
REPAIR_TOOLS = frozenset({"list_files", "read_file", "write_file", "run_tests"})


def demo_model() -> Scripted:
    return Scripted(otherwise=demo_answer, chunk_chars=8, delta_seconds=0.01)


def demo_answer(request: Request) -> ScriptLine:
    if {tool.name for tool in request.tools} >= REPAIR_TOOLS:
        return _repair(request)
    return says(
        f"{LABEL} You said: {_last_user_text(request)!r}. I only repeat what I am told; set"
        " ANTHROPIC_API_KEY or OPENAI_API_KEY, or give --model, for one that thinks."
    )


def _repair(request: Request) -> ScriptLine:
    """List, test, read, repair, test again, report: one step for each result so far."""
    texts = _tool_results(request)
    match len(texts):
        case 0:
            return says(f"{LABEL} I look at what is there.") + calls("list_files")
        case 1:
            return says("The tests first.") + calls("run_tests")
        case 2:
            return says("One fails. I read what it tests.") + calls("read_file", path="prices.py")
        case 3:
            repaired = texts[-1].replace(
                "return price + price * rebate", "return price - price * rebate"
            )
            return says("A rebate must lower the price, not raise it.") + calls(
                "write_file", path="prices.py", content=repaired
            )
        case 4:
            return says("I check it.") + calls("run_tests")
        case _:
            verdict = "pass" if "passed" in texts[-1] and "failed" not in texts[-1] else "fail"
            return says(
                f"{LABEL} `prices.py` added the rebate instead of taking it off. I changed the"
                f" sign and ran the tests again: they {verdict}."
            )


def _tool_results(request: Request) -> list[str]:
    """Texts of the tool results since the user's last message."""
    texts: list[str] = []
    for message in request.messages:
        if isinstance(message, Assistant):
            continue
        if not any(isinstance(part, ToolResultBlock) for part in message.content):
            texts = []
        texts += [
            plain_text(part.content)
            for part in message.content
            if isinstance(part, ToolResultBlock)
        ]
    return texts


def _last_user_text(request: Request) -> str:
    for message in reversed(request.messages):
        if isinstance(message, User):
            for part in reversed(message.content):
                if isinstance(part, TextBlock) and not part.text.startswith("<system-note>"):
                    return part.text
    return ""
