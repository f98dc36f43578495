"""Where foreign rows could take effect: every call site in the source is meant to be one."""

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import mainspring
from mainspring.log.provenance import OwnLog

SOURCE = Path(mainspring.__file__).parent
PROVENANCE = "log/provenance.py"
RECEIVERS = {"runtime/adoption.py", "runtime/move_sessions/session_handover.py"}
"""They hold foreign sessions, to append `session.received`."""
PINNED = {"PinnedPolicy", "AgentDefinition"}
_RELEVANT = re.compile(
    r"OwnLog|_Issuer|_ISSUER|PinnedPolicy|AgentDefinition|\bWriter\(|is_receiving|everything\(|whole\("
    r"|keeps_mac|\binbox\(|_mac\(|is_trusted_file"
)
ONLY_SHOWN = {"runtime/insights/unused_tools.py"}


@dataclass(frozen=True, slots=True)
class Index:
    """What the modules call and name, by file."""

    calls: dict[str, set[str]]
    """Names of functions and methods, with the files that call them."""
    keywords: set[tuple[str, str, str]]
    """File, argument and value of simple arguments that are passed by name."""
    names: dict[str, set[str]]
    functions: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]


@cache
def index() -> Index:
    index = Index({}, set(), {}, [])
    for file in SOURCE.rglob("*.py"):
        name, text = file.relative_to(SOURCE).as_posix(), file.read_text(encoding="utf-8")
        if not _RELEVANT.search(text):
            continue  # parsing all would take seconds
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called) as function):
                    index.calls.setdefault(called, set()).add(name)
                    index.calls.setdefault(".".join(_ends(function)), set()).add(name)
                case ast.keyword(arg=str(argument), value=ast.Constant(value=value)):
                    index.keywords.add((name, argument, str(value)))
                case ast.Name(id=word) | ast.Constant(value=str(word)):
                    index.names.setdefault(word, set()).add(name)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    index.functions.append((name, node))
                case _:
                    pass
    return index


def _ends(function: ast.expr) -> list[str]:
    """The last two names of `log.store.records.whole`."""
    return ast.unparse(function).rsplit(".", 2)[-2:]


def _calls(name: str) -> set[str]:
    """The files that call a function or method with this name."""
    return index().calls.get(name, set())


def _with_keyword(name: str, value: str) -> set[str]:
    """The files with a call that passes this argument by name."""
    return {file for file, *argument in index().keywords if argument == [name, value]}


def test_only_one_module_makes_the_proof_that_a_log_is_our_own():
    assert _calls("OwnLog") == {PROVENANCE}
    for name in ("_Issuer", "_ISSUER"):
        assert index().names[name] == {PROVENANCE}
    with pytest.raises((AssertionError, TypeError)):
        OwnLog("sesn_1", object())  # pyright: ignore[reportArgumentType]


def test_what_is_pinned_in_a_log_is_decoded_only_with_the_proof():
    for file, function in index().functions:
        types = [node for node in ast.walk(function) if isinstance(node, ast.keyword)]
        decoded = {ast.unparse(item.value) for item in types if item.arg == "type"}
        if decoded & PINNED and file not in ONLY_SHOWN:
            annotations = [item.annotation for item in function.args.args]
            proofs = [ast.unparse(item) for item in annotations if item is not None]
            assert "OwnLog" in proofs, f"{file}: {function.name}"


def test_writers_are_made_only_where_sessions_are_held():
    assert _calls("Writer") == {"log/session_log.py"}
    assert _with_keyword("is_receiving", "True") == RECEIVERS


def test_unchecked_records_and_messages_are_read_only_to_copy_show_or_adopt_them():
    unchecked = _calls("records.everything") | _calls("records.whole")
    assert unchecked == {"log/backup.py", "runtime/adoption.py"}
    assert _with_keyword("keeps_mac", "True") == {"log/container.py"}
    assert _calls("store.inbox") == {"log/transfer.py", "runtime/adoption.py"}


def test_macs_are_made_only_where_our_own_process_writes():
    assert _calls("log_mac") == {
        PROVENANCE,
        "log/postgres/store.py",
        "log/session_log.py",
        "log/sqlite/store.py",
        "log/writer.py",
        "runtime/import_sessions/import_store.py",
    }
    assert _calls("ancestor_mac") == {"log/transfer.py"}
    assert _calls("item_mac") == {PROVENANCE, "log/session_log.py", "runtime/adoption.py"}
    assert _calls("record_mac") == {PROVENANCE, "log/sql_rows.py"}
    assert _calls("adopt_everything") == {"edges/cli/run/adopt.py", "testing/replay.py"}
    assert _calls("is_trusted_file") == {"wiring/providers.py"}
