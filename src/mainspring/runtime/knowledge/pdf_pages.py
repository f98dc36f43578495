"""The program that reads a PDF file from standard input and writes the text of each page as JSON.
It is a process of its own, with limits, because a malicious file can take forever. It needs the
extra `documents`.
"""

from __future__ import annotations

import io
import resource
import sys

import msgspec
import pypdf

_MAX_PAGES = 5_000
_MAX_MEMORY = 2_000_000_000


def main(max_seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (max_seconds, max_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    reader = pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read()))
    pages = [page.extract_text() for page in reader.pages[:_MAX_PAGES]]
    sys.stdout.buffer.write(msgspec.json.encode(pages))


if __name__ == "__main__":
    main(int(sys.argv[1]))
