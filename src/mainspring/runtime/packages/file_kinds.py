"""The kind of a file: code, text, or neither, by its name and first bytes."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

FileKind: TypeAlias = Literal[
    "script",  # can be run
    "prose",  # read by the model
    "data",  # can be run or read
    "program",  # can be run, and people cannot read it
    "archive",  # people cannot see its contents
    "binary",
]

_LANGUAGES = {
    **dict.fromkeys((".py", ".pyw", ".pyi"), "Python"),
    **dict.fromkeys((".sh", ".bash", ".zsh", ".ksh", ".fish", ".command"), "shell"),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".jsx"), "JavaScript"),
    **dict.fromkeys((".ts", ".tsx", ".mts", ".cts"), "TypeScript"),
    **dict.fromkeys((".ps1", ".psm1"), "PowerShell"),
    **dict.fromkeys((".bat", ".cmd"), "batch"),
    **dict.fromkeys((".applescript", ".scpt"), "AppleScript"),
    ".rb": "Ruby",
    ".pl": "Perl",
    ".php": "PHP",
    ".lua": "Lua",
    ".r": "R",
    ".go": "Go",
    ".rs": "Rust",
    ".java": "Java",
    ".swift": "Swift",
    ".c": "C",
    ".cpp": "C++",
    ".vbs": "VBScript",
    ".ipynb": "notebook",
}
_BY_NAME = {
    "makefile": "make",
    "justfile": "just",
    "dockerfile": "Dockerfile",
    "package.json": "package.json",
    ".envrc": "shell",
}
_PROSE = {".md", ".mdx", ".markdown", ".txt", ".rst", ".adoc", ""}
_ARCHIVES = {".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".whl", ".jar", ".skill"}
_OFFICE = {".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub"}
_COMPILED = {".pyc", ".pyo", ".so", ".dll", ".dylib", ".exe", ".class", ".wasm", ".o", ".node"}
_PROGRAM_STARTS = (
    b"\x7fELF",
    b"MZ",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    b"\xca\xfe\xba\xbe",
    b"\0asm",
)
_ARCHIVE_STARTS = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!")
_SHEBANG = re.compile(
    rb"#![ \t]{0,9}(?:/\S{0,80}/)?(?:env[ \t]{1,9}(?:-\S{1,9}[ \t]{1,9})?)?(\w{1,20})"
)
_WIDE = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}


def kind_of(path: str, content: bytes, *, is_executable: bool) -> FileKind:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _COMPILED or (content.startswith(_PROGRAM_STARTS) and b"\0" in content):
        return "program"
    if content.startswith(_ARCHIVE_STARTS) or suffix in _ARCHIVES:
        return "binary" if suffix in _OFFICE else "archive"
    if language_of(path, content):
        return "script"
    if b"\0" in content[:8000] and not content.startswith(tuple(_WIDE)):
        return "binary"
    if is_executable and suffix in _PROSE:
        return "script"
    return "prose" if suffix in _PROSE else "data"


def language_of(path: str, content: bytes) -> str:
    """The language of a script; empty if it is not one."""
    if match := _SHEBANG.match(content):
        return match[1].decode()
    name = PurePosixPath(path).name.lower()
    return _LANGUAGES.get(PurePosixPath(name).suffix) or _BY_NAME.get(name, "")


def is_disguised(path: str, content: bytes, kind: FileKind) -> bool:
    """Whether it can be run although its name is that of a text or an image."""
    suffix = PurePosixPath(path).suffix.lower()
    looks_harmless = suffix in (_PROSE - {""}) | _OFFICE | _VIEWED_ENDINGS
    is_run = kind == "program" or _SHEBANG.match(content) is not None
    return looks_harmless and is_run


_VIEWED_ENDINGS = {
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".webp",
    ".svg",
    ".pdf",
    ".csv",
    ".json",
    ".yaml",
    ".yml",
}


def text_of(content: bytes) -> str:
    """Its text with normalized line ends; undecodable bytes are replaced."""
    encoding = next((name for mark, name in _WIDE.items() if content.startswith(mark)), "utf-8")
    text = content.decode(encoding, "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")
