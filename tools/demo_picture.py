"""Write docs/images/demo.svg: a terminal in which `demo/demo.py` runs, with real processes."""

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/demo.svg"
COLUMNS = 100
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts from another host: a picture in a README must not fetch anything."""


def record() -> str:
    """What the demonstration prints, with its colors."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "demo/demo.py")],
        env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"},  # the demo's own
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def stable(output: str) -> str:
    """The output without what differs from run to run: process ids and the place of the log."""
    for number, process_id in enumerate(dict.fromkeys(re.findall(r"process .*?(\d+)", output))):
        output = output.replace(process_id, str(4242 + number))
    return re.sub(r"[^\n]*session sesn_[^\n]*\n", "", output)


def draw(output: str) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print("$ make demo", style="bold green", highlight=False)
    console.print(Text.from_ansi(output))
    svg = console.export_svg(title="mainspring", unique_id="demo")
    return FONT_FACES.sub("", svg)


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(stable(record())), encoding="utf-8")
