"""The text of a PDF file, page by page. It needs the extra `documents`, so it is imported only
where a PDF file is read.
"""

from __future__ import annotations

import io

import pypdf

_MAX_PAGES = 5_000


def pdf_pages(content: bytes) -> list[str]:
    """Raises errors of many kinds for damaged files."""
    reader = pypdf.PdfReader(io.BytesIO(content))
    return [page.extract_text() for page in reader.pages[:_MAX_PAGES]]
