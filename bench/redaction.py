"""What redaction costs on the worst text that is known for each detector: texts generated from the
detectors' own patterns, and the shapes of `tests/vault/test_hostile_texts.py`, as plain text and
in JSON. A text is first tried small; the worst of each detector is then measured at 1 MB, and the
worst of all at 8 MB.
"""

from __future__ import annotations

import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
from report import Measure, note

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.vault.test_hostile_texts import SHAPES

from mainspring.capabilities.vault.detector_registry import DETECTORS
from mainspring.capabilities.vault.redaction import Scrubber

SECONDS_PER_MB, MAX_GROWTH = 0.2, 9
MB, LARGE = 1_000_000, 8_000_000
_TRIAL, _SAMPLES, _WORST = 10_000, 3, 5
_SEPARATORS = ("", " ", "\n", '"', "'", "\\n", " x ", ": ", "=")
_Tree: TypeAlias = Sequence[tuple[object, Any]]
"""A pattern as the parser of `re` reads it; what a part is depends on its kind."""
_CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n", "\t"]
_CATEGORIES = {
    "CATEGORY_SPACE": " \n\t",
    "CATEGORY_NOT_SPACE": "abZ9-",
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_NOT_DIGIT": "ab",
    "CATEGORY_WORD": "abcXYZ019_",
    "CATEGORY_NOT_WORD": " -",
}
_FORMS: Mapping[str, Callable[[str, int], bytes]] = {
    "text": lambda shape, size: _repeated(shape, size).encode(),
    "one string of JSON": lambda shape, size: msgspec.json.encode({"a": _repeated(shape, size)}),
    "JSON of long strings": lambda shape, size: _strings(_repeated(shape, 1_000), size),
    "JSON of short strings": lambda shape, size: _strings(shape.ljust(12, shape[-1]), size),
}
"""Strings of JSON have at least 12 characters: below that, what each string costs is more than
what is in it."""


async def measure() -> list[Measure]:
    note("trying texts that are made from the patterns of the detectors ...")
    worst: dict[str, list[tuple[float, str, str]]] = {}
    for kind, shape in [
        *_samples(random.Random(31)),
        *(("shape", item) for item in SHAPES.values()),
    ]:
        for form in _FORMS:
            worst.setdefault(kind, []).append((_seconds(form, shape, _TRIAL), form, shape))
    tries = [item for found in worst.values() for item in sorted(found, reverse=True)[:1]]
    note(f"measuring {len(tries)} of them at 1 MB ...")
    costs = sorted(
        ((_seconds(form, shape, MB), form, shape) for _, form, shape in tries), reverse=True
    )
    measures = [
        Measure(
            name=f"redaction of 1 MB of {form}, CPU, worst text of {len(tries)}",
            value=max(seconds for seconds, other, _ in costs if other == form),
            unit="s/MB",
            target=f"<= {SECONDS_PER_MB}",
            detail=next(repr(shape[:40]) for _, other, shape in costs if other == form),
        )
        for form in _FORMS
        if any(other == form for _, other, _ in costs)
    ]
    return [*measures, _growth(costs[:_WORST])]


def _growth(costs: Sequence[tuple[float, str, str]]) -> Measure:
    growths = [(_seconds(form, shape, LARGE) / cost, form, shape) for cost, form, shape in costs]
    growth, form, shape = max(growths)
    return Measure(
        name=f"8 MB, times the CPU of 1 MB, worst of {len(growths)}",
        value=growth,
        unit="x",
        target=f"<= {MAX_GROWTH}",
        detail=f"{form}: {shape[:40]!r}",
    )


def _seconds(form: str, shape: str, size: int) -> float:
    """CPU for a text of this size, the better of two rounds if it is large."""
    content = _FORMS[form](shape, size)
    scrub = Scrubber({})
    rounds: list[float] = []
    for _ in range(1 if size != MB else 2):
        begun = time.process_time()
        scrub(content)
        rounds.append(time.process_time() - begun)
    return min(rounds)


def _repeated(shape: str, size: int) -> str:
    return (shape * (size // len(shape) + 1))[:size]


def _strings(text: str, size: int) -> bytes:
    return msgspec.json.encode({"a": [text] * (size // (len(text) + 3) + 1)})


def _samples(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Texts that match the trigger or the pattern of each detector, whole and cut."""
    for detector in DETECTORS:
        for pattern in (detector.trigger, detector.pattern.source.decode("latin-1")):
            tree = _parsed(pattern)
            for _ in range(_SAMPLES):
                sample = _text_of(tree, rng).encode("latin-1", "replace").decode("utf-8", "replace")
                sample = sample[:2_000] or "x"
                cut = sample[: max(3, rng.randrange(len(sample)))]
                yield detector.kind, sample + rng.choice(_SEPARATORS)
                yield detector.kind, cut + rng.choice(_SEPARATORS)


def _parsed(pattern: str) -> _Tree:
    """The parser is not public, and nothing else reads a pattern as a tree."""
    return cast("_Tree", vars(re)["_parser"].parse(pattern))


def _text_of(tree: _Tree, rng: random.Random) -> str:
    return "".join(_part_of(str(kind), argument, rng) for kind, argument in tree)


def _part_of(kind: str, argument: Any, rng: random.Random) -> str:  # noqa: ANN401 see _Tree
    match kind:
        case "LITERAL":
            return chr(argument)
        case "IN":
            return rng.choice(_class_of(argument))
        case "BRANCH":
            return _text_of(rng.choice(argument[1]), rng)
        case "SUBPATTERN":
            return _text_of(argument[3], rng)
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, tree = argument
            count = rng.choice([least, rng.randint(least, min(int(most), least + 4))])
            return "".join(_text_of(tree, rng) for _ in range(count))
        case "ANY" | "NOT_LITERAL":
            return rng.choice("ab c1")
        case _:
            return ""  # a position


def _class_of(items: _Tree) -> Sequence[str]:
    chars: list[str] = []
    for kind, argument in items:
        match str(kind):
            case "LITERAL":
                chars.append(chr(argument))
            case "RANGE":
                chars += map(chr, range(argument[0], argument[1] + 1))
            case "CATEGORY":
                chars += _CATEGORIES[str(argument)]
            case _:
                pass
    if str(items[0][0]) == "NEGATE":
        return [char for char in _CHARACTERS if char not in chars]
    return chars
