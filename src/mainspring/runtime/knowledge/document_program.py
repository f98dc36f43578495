"""The program that reads a document from standard input and writes its parts as JSON. It is a
process of its own, with limits, because a malicious file can take forever. PDF files need the
extra `documents`.
"""

from __future__ import annotations

import io
import resource
import sys
from collections.abc import Iterator

import msgspec

from mainspring.core.errors import InvalidInput
from mainspring.runtime.knowledge.documents import document_parts

try:
    import pypdf
except ImportError:
    pypdf = None

_MAX_PAGES = 5_000  # of a PDF
_MAX_MEMORY = 2_000_000_000  # bytes for the program that reads a document


def main(name: str, max_seconds: int) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (max_seconds, max_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    try:
        read_pages = None if pypdf is None else _read_pages
        parts = document_parts(name, sys.stdin.buffer.read(), read_pages)
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(parts))
    return 0


def _read_pages(content: bytes) -> Iterator[str]:
    if pypdf is not None:
        for page in pypdf.PdfReader(io.BytesIO(content)).pages[:_MAX_PAGES]:
            yield page.extract_text()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
