"""Build the documentation as one static site: `make docs`, then open build/site/index.html.

The pages are the repository's own Markdown files, README.md first, in the order of the list under
its "Documentation", and two references made from the code. A broken link fails the build. Search
works without a server.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import anyio
from docs_reference import Json, write_api_pages, write_python_page
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

import mainspring
from mainspring.config import read_settings
from mainspring.edges.api.openapi import document
from mainspring.edges.api.route_table import all_routes
from mainspring.wiring.service_assembly import open_service

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SETTINGS: dict[str, object] = {
    "project": "Mainspring",
    "version": mainspring.__version__,
    "root_doc": "README",
    "extensions": ["myst_parser", "sphinx.ext.autodoc"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_title": "Mainspring",
    "html_copy_source": False,
    "default_role": "code",
    "autodoc_member_order": "bysource",
    "autodoc_typehints_format": "short",
    "python_use_unqualified_type_names": True,
    "add_module_names": False,
}


def build(output: Path) -> int:
    """Write the site; 0, or 1 after a warning, which Sphinx has printed."""
    work = ROOT / "build/docs"
    for folder in (work, output):
        shutil.rmtree(folder, ignore_errors=True)
    source = work / "source"
    copy_pages(source)
    api_pages = write_api_pages(source / "docs/reference", anyio.run(openapi_document))
    write_python_page(source / "docs/reference/python.md")
    add_contents(source, api_pages)
    with patch_docutils(), docutils_namespace():
        site = Sphinx(
            srcdir=source,
            confdir=None,
            outdir=output,
            doctreedir=work / "doctrees",
            buildername="html",
            confoverrides=SETTINGS,
            status=None,
            warningiserror=True,
        )
        site.build(force_all=True)
    shutil.copy(output / "README.html", output / "index.html")
    return site.statuscode


async def openapi_document() -> Json:
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(store=f"{folder}/docs.db", environ={}, folder=Path(folder))
        async with open_service(settings) as service:
            return document(all_routes(service), version=mainspring.__version__)


def copy_pages(source: Path) -> None:
    shutil.copytree(ROOT / "docs", source / "docs")
    for name in PAGES:
        shutil.copy(ROOT / name, source / name)
    for page in source.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        page.write_text(without_code_links(text, page, source), encoding="utf-8")


def without_code_links(text: str, page: Path, source: Path) -> str:
    """The site has no source files: a link to one becomes its text."""

    def text_or_link(link: re.Match[str]) -> str:
        place = link[2].partition("#")[0]
        is_code = (ROOT / page.parent.relative_to(source) / place).exists()
        return link[1] if is_code and not (page.parent / place).exists() else link[0]

    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)", text_or_link, text)


def add_contents(source: Path, api_pages: Iterable[str]) -> None:
    """The tree of pages that the sidebar shows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    groups = {
        caption: re.findall(r"\]\((\S+?)\.md\)", links)
        for caption, links in re.findall(r"^- \*\*([^:*]+):\*\* (.+)$", readme, re.MULTILINE)
    }
    groups["Reference"] = ["docs/reference/api", "docs/reference/python"]
    groups["Project"] = ["SECURITY", "CHANGELOG"]
    append(source / "README.md", *(toctree(pages, caption) for caption, pages in groups.items()))
    commands = sorted(page.stem for page in (ROOT / "docs/cli").glob("*.md"))
    append(source / "docs/cli.md", toctree(f"cli/{name}" for name in commands))
    append(source / "docs/reference/api.md", toctree(f"api/{name}" for name in api_pages))


def toctree(pages: Iterable[str], caption: str = "") -> str:
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def append(page: Path, *parts: str) -> None:
    with page.open("a", encoding="utf-8") as file:
        file.writelines(parts)


if __name__ == "__main__":
    status = build(ROOT / "build/site")
    print("build/site/index.html")
    sys.exit(status)
