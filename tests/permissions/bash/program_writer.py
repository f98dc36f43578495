"""Random command lines of real programs: options in every spelling, files in every disguise."""

import random
from collections import Counter
from collections.abc import Sequence

from tests.permissions.bash.program_grammar import (
    ALIKE,
    DENIED,
    EARLIER,
    FOLDERS,
    GIT_WORDS,
    ODD_FILES,
    OPERANDS,
    PLAIN_FILES,
    REDIRECTS,
    SHAPES,
    VALUES,
    WRAPPERS,
    options,
    spellings,
)


class ProgramWriter:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.used: set[str] = set()
        """Productions of the last text."""
        self.before = ""
        """An earlier call of the last text, if there was one."""
        self.reached: set[str] = set()
        self._tries: Counter[str] = Counter()
        self._executed: Counter[str] = Counter()

    def text(self) -> str:
        self.used = set()
        self.before = self._pick("earlier", EARLIER) if self._chance.random() < 0.08 else ""
        shape = "{one}" if self._chance.random() < 0.55 else self._pick("shape", SHAPES)
        text = shape.format(
            one=self._command(),
            two=self._command(),
            word=self._file(),
            word2=self._file(),
            folder=self._pick("folder", FOLDERS),
        )
        self.reached |= self.used
        return text

    def learn(self, *, is_executed: bool) -> None:
        """Whether the last text was allowed: programs that hardly ever are come more seldom."""
        programs = [item for item in self.used if item.startswith("program ")]
        self._tries.update(programs)
        self._executed.update(programs if is_executed else ())

    def _program(self) -> str:
        some = self._chance.choices(tuple(options()), k=3)
        best = max(some, key=lambda name: self._share(f"program {name}"))
        self.used.add(f"program {best}")
        return best

    def _share(self, production: str) -> float:
        return (self._executed[production] + 1) / (self._tries[production] + 1)

    def _pick(self, kind: str, among: Sequence[str]) -> str:
        """Rather what was not reached yet."""
        chosen = self._chance.choice(among)
        for _ in range(3):
            if f"{kind} {chosen}" not in self.reached:
                break
            chosen = self._chance.choice(among)
        self.used.add(f"{kind} {chosen}")
        return chosen

    def _command(self) -> str:
        program = self._program()
        kind = ALIKE.get(program, program)
        before: list[str] = []
        after: list[str] = []
        for _ in range(self._chance.choice((0, 0, 1, 1, 1, 2, 3))):
            place = before if self._chance.random() < 0.8 else after
            place.append(self._option(program))
        operands = [self._operand(program) for _ in range(self._chance.choice((0, 1, 1, 1, 2, 2)))]
        if kind in OPERANDS and self._chance.random() < 0.8:
            operands.insert(0, self._pick(f"operand {kind}", OPERANDS[kind]))
        if self._chance.random() < 0.06:
            operands.insert(self._chance.randint(0, len(operands)), "--")
        text = " ".join([self._named(program, before), *operands, *after])
        if self._chance.random() < 0.12:
            text = f"{self._pick('wrapper', WRAPPERS)} {text}"
        if self._chance.random() < 0.12:
            redirect = self._pick("redirect", REDIRECTS)
            text = f"{text} {redirect.replace('{word}', self._file())}"
        return text

    def _named(self, program: str, before: list[str]) -> str:
        if program.startswith("git ") and self._chance.random() < 0.1:
            program = f"git {self._option('git')} {program[4:]}"
        if self._chance.random() < 0.03:
            program = f"/usr/bin/{program}"
        if program == "[":
            return " ".join(["[", *before, "a", "]"])
        return " ".join([program, *before])

    def _operand(self, program: str) -> str:
        if program.startswith("git") and self._chance.random() < 0.4:
            return self._pick("git", GIT_WORDS)
        return self._file()

    def _file(self) -> str:
        kind, among = self._chance.choice(
            (
                ("plain", PLAIN_FILES),
                ("plain", PLAIN_FILES),
                ("odd", ODD_FILES),
                ("denied", DENIED),
                ("denied", DENIED),
            )
        )
        return self._pick(kind, among)

    def _value(self) -> str:
        return self._file() if self._chance.random() < 0.5 else self._pick("value", VALUES)

    def _option(self, program: str) -> str:
        known = options().get(program, ())
        if not known:
            return "-x"
        option = self._chance.choice(known)
        spelling = self._chance.choice(spellings(option))
        for _ in range(3):
            if f"option {program} {option} {spelling}" not in self.reached:
                break
            option = self._chance.choice(known)
            spelling = self._chance.choice(spellings(option))
        self.used.add(f"option {program} {option} {spelling}")
        return self._spelled(program, option, spelling)

    def _spelled(self, program: str, option: str, spelling: str) -> str:
        name = option.rstrip("=?")
        match spelling:
            case "abbreviated":
                name = name[: self._chance.randint(3, max(3, len(name) - 1))]
                return f"{name}={self._value()}" if option != option.rstrip("=?") else name
            case "equals":
                return f"{name}={self._value()}"
            case "apart":
                return f"{name} {self._value()}"
            case "attached":
                return f"{name}{self._value()}"
            case "bundled":
                other = self._flag(program)
                value = self._value() if option.endswith(("=", "?")) else ""
                return f"-{other}{name[1:]}{self._chance.choice(('', ' ')) if value else ''}{value}"
            case _:
                return name

    def _flag(self, program: str) -> str:
        flags = [o[1] for o in options()[program] if len(o) == 2 and o[0] == "-"]
        return self._chance.choice(flags) if flags else "n"
