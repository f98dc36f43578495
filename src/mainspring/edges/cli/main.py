"""The entry point of `mainspring`. Prints the version before it imports anything else, and help
without importing the modules that commands call."""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from itertools import takewhile
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from mainspring import __version__
from mainspring.core.lazy_module import LazyModule

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder

    from mainspring.edges.cli import app

    class _Importer(MetaPathFinder, Loader):
        pass
else:
    _Importer = object  # importlib.abc imports 20 modules, and nothing needs its classes
    app = LazyModule("mainspring.edges.cli.app")

_GLOBAL_OPTIONS = ("--store", "--debug")
"""Options of `mainspring` itself that may also follow a command."""


def hoist_global_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The global options, which the parser expects first, and the other arguments."""
    global_options: list[str] = []
    other_arguments: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            return global_options, [*other_arguments, argument, *remaining]
        name, equals, _ = argument.partition("=")
        if name not in _GLOBAL_OPTIONS:
            other_arguments.append(argument)
            continue
        global_options.append(argument)
        if name == "--store" and not equals:
            global_options.extend(value for value in [next(remaining, None)] if value is not None)
    return global_options, other_arguments


class _PlaceholderType(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return Placeholder

    def __call__(cls, *_: object, **__: object) -> type:
        return Placeholder

    def __getitem__(cls, _: object) -> type:
        return Placeholder

    def __iter__(cls) -> NoReturn:
        """Without this, `__getitem__` would make it an endless sequence."""
        raise TypeError("a help text must not depend on a module that is not imported for it")


class Placeholder(metaclass=_PlaceholderType):
    """Replaces every name of a module that is not imported."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__()


class PlaceholderModule(ModuleType):
    def __getattr__(self, name: str) -> type:
        return getattr(Placeholder, name)


class PlaceholderImporter(_Importer):
    """Help and completion need only the signatures of commands, so they run with placeholders for
    the modules that commands call, which take up to a second to import."""

    replaced = frozenset(
        [
            f"mainspring.{layer}"
            for layer in ("wiring", "service", "improve", "runtime", "harness", "log")
        ]
        + ["mainspring.capabilities", "mainspring.core", "mainspring.edges.api"]
        + ["aiohttp", "anyio", "msgspec", "rich"]
    )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        parts = fullname.split(".")
        names = {".".join(parts[: end + 1]) for end in range(len(parts))}
        return ModuleSpec(fullname, self, is_package=True) if names & self.replaced else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def help_arguments(arguments: Sequence[str]) -> list[str] | None:
    """The arguments that make the parser only print help: the words before `--` without other
    options. `None` without `--help`."""
    words = list(takewhile(lambda argument: argument != "--", arguments))
    if not {"-h", "--help"} & {*words}:
        return None
    return [*(word for word in words if not word.startswith("-")), "--help"]


_NAMELESS = "--worktree"
"""An option whose value may be omitted, although the parser requires one."""


def with_optional_values(arguments: Sequence[str]) -> list[str]:
    completed: list[str] = []
    for index, argument in enumerate(arguments):
        if argument == "--":
            return [*completed, *arguments[index:]]
        completed.append(argument)
        following = arguments[index + 1 : index + 2]
        if argument == _NAMELESS and (not following or following[0].startswith("-")):
            completed.append("")
    return completed


_ROOT_OPTIONS = ("-h", "--help", "-V", "--version", "--install-completion", "--show-completion")


def with_command(arguments: Sequence[str]) -> list[str]:
    """Add the command `run` to options without a command: scripts for Claude Code write `mainspring
    -p "..."`."""
    first = arguments[0].partition("=")[0] if arguments else ""
    is_for_run = first.startswith("-") and first not in _ROOT_OPTIONS
    return ["run", *arguments] if is_for_run else [*arguments]


def forbid_core_dumps() -> None:
    """The memory of this process has keys: a crash must not leave it in a folder."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"], ["-v"]):
        sys.stdout.write(f"mainspring {__version__}\n")
        return
    forbid_core_dumps()
    front, arguments = hoist_global_options(arguments)
    arguments = with_optional_values(with_command(arguments))
    help_words = help_arguments(arguments)
    if help_words or os.environ.get("_MAINSPRING_COMPLETE"):  # noqa: TID251 (Typer reads it)
        sys.meta_path.insert(0, PlaceholderImporter())
    gc.disable()  # what the imports create is never freed: collecting takes 5 % of a start
    app.app(help_words or [*front, *arguments], prog_name="mainspring")
