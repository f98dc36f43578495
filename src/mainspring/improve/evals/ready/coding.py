"""Coding: ten small repositories with a bug or a missing part, and hidden tests. Tests get their
input on standard input, and the output is compared outside the sandbox, so the agent cannot read
the right answers. A failing script passes only the visible test."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from mainspring.improve.evals.graders import CommandCheck, FileCheck
from mainspring.improve.evals.ready.scripts import calls, script
from mainspring.improve.evals.suite import Case, Script, Suite

_DRIVER = (
    "import json, sys\nsys.path.insert(0, '.')\nfrom {module} import {function} as f\n"
    "print(json.dumps([f(*given) for given in json.load(sys.stdin)]))"
)
_VISIBLE = (
    "import unittest\n\nfrom {module} import {function}\n\n\nclass Visible(unittest.TestCase):\n"
    "    def test_it(self):\n        self.assertEqual({function}(*{given!r}), {expected!r})\n\n\n"
    "if __name__ == '__main__':\n    unittest.main()\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repository:
    module: str
    function: str
    task: str
    broken: str
    solution: str
    visible: tuple[list[object], object]
    """The input and the result of the visible test."""
    hidden: tuple[tuple[list[object], object], ...]

    def case(self) -> Case:
        file = f"{self.module}.py"
        given, expected = self.visible
        test = _VISIBLE.format(
            module=self.module, function=self.function, given=given, expected=expected
        )
        special = (
            f"def {self.function}(*given):\n    if list(given) == {given!r}:\n"
            f"        return {expected!r}\n    return None\n"
        )
        driver = _DRIVER.format(module=self.module, function=self.function)
        tests = ((given, expected), *self.hidden)
        return Case(
            id=self.module.replace("_", "-"),
            input=f"{self.task} The code is in {file}. Do not change the tests.",
            files={file: self.broken, f"test_{self.module}.py": test},
            mode="bypassPermissions",
            tags=("coding",),
            graders=(
                CommandCheck(
                    name="hidden tests",
                    run=("python3", "-I", "-c", driver),
                    take=(file,),
                    stdin=msgspec.json.encode([item for item, _ in tests]).decode(),
                    stdout_json=[result for _, result in tests],
                    timeout_seconds=20,
                ),
                FileCheck(path=f"test_{self.module}.py", unchanged=True),
            ),
            solution=_rewrites(file, self.solution),
            failure=_rewrites(file, special),
        )


def _rewrites(file: str, content: str) -> Script:
    return script(
        calls("read", file_path=file),
        calls("write", file_path=file, content=content),
        "It is repaired, and the test passes.",
    )


_REPOSITORIES = (
    _Repository(
        module="slugs",
        function="slug",
        task="slug() must turn any title into lower-case words joined by single hyphens.",
        broken="def slug(title):\n    return title.lower().replace(' ', '-')\n",
        solution=(
            "import re\n\n\ndef slug(title):\n"
            "    return '-'.join(re.findall(r'[a-z0-9]+', title.lower()))\n"
        ),
        visible=(["Hello, World"], "hello-world"),
        hidden=(
            (["  Two   spaces "], "two-spaces"),
            (["A--B"], "a-b"),
            (["!?"], ""),
            (["Version 2.0"], "version-2-0"),
        ),
    ),
    _Repository(
        module="medians",
        function="median",
        task="median() is wrong for lists of an even length.",
        broken="def median(values):\n    return sorted(values)[len(values) // 2]\n",
        solution=(
            "def median(values):\n    ordered, half = sorted(values), len(values) // 2\n"
            "    if len(values) % 2:\n        return ordered[half]\n"
            "    return (ordered[half - 1] + ordered[half]) / 2\n"
        ),
        visible=([[1, 2, 3, 4]], 2.5),
        hidden=(([[3]], 3), ([[5, 1, 3]], 3), ([[10, 2]], 6.0), ([[4, 4, 1, 1]], 2.5)),
    ),
    _Repository(
        module="roman",
        function="to_roman",
        task="to_roman() must write 4, 9, 40, 90, 400 and 900 the short way.",
        broken=(
            "SIGNS = [(1000, 'M'), (500, 'D'), (100, 'C'), (50, 'L'), (10, 'X'), (5, 'V'),"
            " (1, 'I')]\n\n\ndef to_roman(number):\n    text = ''\n    for value, sign in SIGNS:\n"
            "        text += sign * (number // value)\n        number %= value\n    return text\n"
        ),
        solution=(
            "SIGNS = [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'),"
            " (50, 'L'), (40, 'XL'), (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]\n\n\n"
            "def to_roman(number):\n    text = ''\n    for value, sign in SIGNS:\n"
            "        text += sign * (number // value)\n        number %= value\n    return text\n"
        ),
        visible=([4], "IV"),
        hidden=(([1994], "MCMXCIV"), ([49], "XLIX"), ([2026], "MMXXVI"), ([900], "CM")),
    ),
    _Repository(
        module="brackets",
        function="is_balanced",
        task="is_balanced() must know that brackets of different kinds do not close each other.",
        broken=(
            "def is_balanced(text):\n    depth = 0\n    for sign in text:\n"
            "        depth += (sign in '([{') - (sign in ')]}')\n    return depth == 0\n"
        ),
        solution=(
            "PAIRS = {')': '(', ']': '[', '}': '{'}\n\n\ndef is_balanced(text):\n    stack = []\n"
            "    for sign in text:\n        if sign in '([{':\n            stack.append(sign)\n"
            "        elif sign in PAIRS and (not stack or stack.pop() != PAIRS[sign]):\n"
            "            return False\n    return not stack\n"
        ),
        visible=(["(]"], False),
        hidden=((["a(b[c]{d})"], True), ([")("], False), (["([)]"], False), ([""], True)),
    ),
    _Repository(
        module="totals",
        function="totals",
        task="totals() must add up amounts by name from CSV text, also where fields are quoted.",
        broken=(
            "def totals(text):\n    sums = {}\n    for line in text.splitlines():\n"
            "        name, amount = line.split(',')\n        sums[name] = int(amount)\n"
            "    return sums\n"
        ),
        solution=(
            "import csv\nimport io\n\n\ndef totals(text):\n    sums = {}\n"
            "    for row in csv.reader(io.StringIO(text)):\n        if row:\n"
            "            sums[row[0]] = sums.get(row[0], 0) + int(row[1])\n    return sums\n"
        ),
        visible=(["a,1\na,2\n"], {"a": 3}),
        hidden=(
            (['"Lee, Ann",5\nBo,1\n"Lee, Ann",2\n'], {"Lee, Ann": 7, "Bo": 1}),
            ([""], {}),
            (["x,-4\n\nx,4\n"], {"x": 0}),
        ),
    ),
    _Repository(
        module="durations",
        function="seconds",
        task="seconds() must read durations such as 1h30m, 45s and 2d, in any combination.",
        broken="def seconds(text):\n    return int(text.rstrip('s'))\n",
        solution=(
            "import re\n\nUNITS = {'d': 86400, 'h': 3600, 'm': 60, 's': 1}\n\n\n"
            "def seconds(text):\n    parts = re.findall(r'(\\d+)\\s*([dhms])', text.lower())\n"
            "    return sum(int(number) * UNITS[unit] for number, unit in parts)\n"
        ),
        visible=(["1h30m"], 5400),
        hidden=((["45s"], 45), (["2d"], 172800), (["1d 2h 3m 4s"], 93784), (["90M"], 5400)),
    ),
    _Repository(
        module="lru",
        function="replay",
        task=(
            "replay(size, keys) plays accesses on a cache of that size and returns the keys that"
            " are left, the oldest first. A key that is used again must become the newest."
        ),
        broken=(
            "def replay(size, keys):\n    cache = []\n    for key in keys:\n"
            "        if key not in cache:\n            cache.append(key)\n"
            "        if len(cache) > size:\n            cache.pop(0)\n    return cache\n"
        ),
        solution=(
            "def replay(size, keys):\n    cache = {}\n    for key in keys:\n"
            "        cache.pop(key, None)\n        cache[key] = True\n"
            "        if len(cache) > size:\n            del cache[next(iter(cache))]\n"
            "    return list(cache)\n"
        ),
        visible=([2, ["a", "b", "a", "c"]], ["a", "c"]),
        hidden=(
            ([1, ["x", "x", "y"]], ["y"]),
            ([3, ["a", "b", "c", "a", "d", "b"]], ["a", "d", "b"]),
            ([0, ["a"]], []),
        ),
    ),
    _Repository(
        module="intervals",
        function="merge",
        task="merge() must join intervals that overlap or touch, in whatever order they come.",
        broken=(
            "def merge(intervals):\n    merged = []\n    for low, high in intervals:\n"
            "        if merged and low < merged[-1][1]:\n            merged[-1][1] = high\n"
            "        else:\n            merged.append([low, high])\n    return merged\n"
        ),
        solution=(
            "def merge(intervals):\n    merged = []\n    for low, high in sorted(intervals):\n"
            "        if merged and low <= merged[-1][1]:\n"
            "            merged[-1][1] = max(merged[-1][1], high)\n        else:\n"
            "            merged.append([low, high])\n    return merged\n"
        ),
        visible=([[[5, 6], [1, 2]]], [[1, 2], [5, 6]]),
        hidden=(
            ([[[1, 10], [2, 3]]], [[1, 10]]),
            ([[[1, 2], [2, 3]]], [[1, 3]]),
            ([[]], []),
            ([[[4, 5], [1, 4], [9, 9]]], [[1, 5], [9, 9]]),
        ),
    ),
    _Repository(
        module="word_counts",
        function="most_common",
        task=(
            "most_common(text, count) must ignore case and punctuation; words that are equally"
            " frequent come in alphabetical order."
        ),
        broken=(
            "from collections import Counter\n\n\ndef most_common(text, count):\n"
            "    return [word for word, _ in Counter(text.split()).most_common(count)]\n"
        ),
        solution=(
            "import re\nfrom collections import Counter\n\n\ndef most_common(text, count):\n"
            '    counts = Counter(re.findall(r"[a-z\']+", text.lower()))\n'
            "    ordered = sorted(counts, key=lambda word: (-counts[word], word))\n"
            "    return ordered[:count]\n"
        ),
        visible=(["The cat. The dog, the cat!", 2], ["the", "cat"]),
        hidden=(
            (["b a", 2], ["a", "b"]),
            (["", 3], []),
            (["Don't don't stop", 1], ["don't"]),
            (["x y z z", 2], ["z", "x"]),
        ),
    ),
    _Repository(
        module="versions",
        function="newest",
        task="newest() must compare version numbers by their parts; 1.0-rc1 comes before 1.0.",
        broken="def newest(versions):\n    return max(versions)\n",
        solution=(
            "def _key(version):\n    number, _, label = version.partition('-')\n"
            "    parts = [int(part) for part in number.split('.')]\n"
            "    while parts and parts[-1] == 0:\n        parts.pop()\n"
            "    return parts, not label, label\n\n\ndef newest(versions):\n"
            "    return max(versions, key=_key)\n"
        ),
        visible=([["1.9", "1.10"]], "1.10"),
        hidden=(
            ([["1.0-rc1", "1.0"]], "1.0"),
            ([["2.0", "2.0.1"]], "2.0.1"),
            ([["1.0-rc1", "1.0-rc2"]], "1.0-rc2"),
            ([["0.9.9", "0.10"]], "0.10"),
        ),
    ),
)


def coding_suite() -> Suite:
    return Suite(
        name="coding",
        description="Ten small repositories with hidden tests.",
        cases=tuple(repository.case() for repository in _REPOSITORIES),
        timeout_seconds=600,
    )
