"""Private keys, whole or in part: with or without their first line, and whatever a tool has put
before and behind each line."""

from __future__ import annotations

from base64 import b64decode

from mainspring.capabilities.vault.secret_detector import (
    BytesMatch,
    Detector,
    compile_pattern,
    value_detector,
)

_BEFORE = (
    r"(?:[^\s\\:]{1,200}[:-](?:\d{1,6}[:-])? ?|[-+>|#*] ?"
    r"|\^?[0-9a-f]{7,40} [^\n\\()]{0,80}\([^\n\\()]{1,100}\d\) "
    r"|\d{4}-\d\d-\d\d[T ][\d:.,+Z]+ )?"
)
"""What tools put before a line: the file that it is from and its number, the sign of a diff or a
quotation, the commit and its author, a time."""
_GAP = r"(?:\\+[nrt]|\s|\d{1,6}(?:\t|\\t|→|[:|])|\^M\$|\$(?:\\n|\s)|\^I|\\\$)*"
"""Between the lines of a key: ends of lines, also escaped or shown ones, and numbers of lines."""
_BEGINNING = (
    r"(?:MII[A-Za-z0-9+/]{3}IBA[AD]|MI[GH][A-Za-z0-9+/]AgE[AB]|M[C-H][A-Za-z0-9+/]CAQ[AE]"
    r"|MI[IGH][A-Za-z0-9+/]{2,6}BgkqhkiG9w0BB[QM]|b3BlbnNzaC1rZXktdjE)"
)
"""How the encoded content of a private key begins, in all formats, with and without encryption."""
_BASE64 = r"[A-Za-z0-9+/]"
_LINE = rf"{_BASE64}{{64}}(?:{_BASE64}{{6}})?"
_NEXT = r"(?:\^M)?[^A-Za-z0-9+/\n\\]*(?:\r?\n|\\+[rn])"
_ANY_BEFORE = r"(?:[^\n\\]*[^A-Za-z0-9+/\n\\])?"
_PUBLIC = compile_pattern(
    rb"BEGIN [A-Z0-9 ]*(?:CERTIFICATE|PUBLIC|SIGNATURE|MESSAGE|REQUEST|CRL|PARAMETERS|PKCS7|CMS)"
)
_HEXADECIMAL = compile_pattern(rb"[0-9a-fA-F\s]+")
_LOOK_BEHIND = 400


def _is_private(encoded: bytes) -> bool:
    return b"PRIVATE KEY" in b64decode(encoded[:80])


def _is_private_body(bytes_match: BytesMatch, text: bytes) -> bool:
    """Lines like those of a key, of which nothing says that they are public."""
    start, stop = bytes_match.span(1)
    before = text[max(0, start - _LOOK_BEHIND) : start]
    if _PUBLIC.search(before[before.rfind(b"-----END") + 1 :]) is not None:
        return False
    return _HEXADECIMAL.fullmatch(text[start : min(stop, start + 64)]) is None


PRIVATE_KEYS: tuple[Detector, ...] = (
    value_detector(
        "private_key",
        "PRIVATE KEY",
        r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY[A-Z ]*-----"
        rf"{_GAP}(?:{_BEFORE}(?:Proc-Type|DEK-Info|Version|Comment|Hash):[^\n\\]*{_GAP})*"
        rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{16,}}{_GAP})+"
        rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{0,15}}{_GAP}{_BEFORE}-----END [A-Z0-9 ]+-----)?)",
    ),
    value_detector(
        "private_key",
        _BEGINNING,
        rf"(?:\b|\\n)({_BEGINNING}[A-Za-z0-9+/=]{{20,}}{_GAP}"
        rf"(?:{_BEFORE}[A-Za-z0-9+/=]{{40,}}{_GAP})*"
        rf"(?:{_BEFORE}[A-Za-z0-9+/]{{1,63}}={{1,2}}|-----END [A-Z0-9 ]+-----)?)",
    ),
    Detector(
        "private_key_lines",
        _LINE + _NEXT,
        compile_pattern(
            (
                rf"(?:^|\\[nrt]|[^A-Za-z0-9+/])({_LINE}(?:{_NEXT}{_ANY_BEFORE}{_LINE}){{2,}}"
                rf"(?:{_NEXT}{_ANY_BEFORE}(?:{_BASE64}{{20,63}}={{0,2}}|{_BASE64}{{1,63}}={{1,2}}))?)"
                r"(?:[^A-Za-z0-9+/]|$)"
            ).encode()
        ),
        _is_private_body,
    ),
    value_detector(
        "putty_key",
        "Private-Lines:",
        rf"Private-Lines: \d+{_GAP}((?:{_BEFORE}[A-Za-z0-9+/=]{{16,}}{_GAP})+[A-Za-z0-9+/=]*)",
    ),
    value_detector(
        "encoded_private_key",
        "LS0tLS1CRUdJTi",
        r"(LS0tLS1CRUdJTi[A-Za-z0-9+/=]{80,})",
        _is_private,
    ),
)
