"""Secrets that are recognised by their context: an option, a header, a URL, an assignment, prose.

The last group of a pattern is redacted.
"""

from __future__ import annotations

import re2

from mainspring.capabilities.vault.assignments import (
    FOREIGN_NAMES,
    NAMES,
    PASSWORD_NAMES,
    is_assigned_secret,
    is_passphrase,
    is_real_value,
    is_varied_value,
    looks_secret,
)
from mainspring.capabilities.vault.secret_detector import (
    LINE_PREFIX,
    Detector,
    compile_pattern,
    value_detector,
)
from mainspring.capabilities.vault.tokens import START

ASSIGNED = "assigned_secret"
_BETWEEN = r"""[\\"'\]]*\s*(?:=>|:=|\?=|={1,3}|:)\s*[\\"']*"""
_VALUE = r"""[{<&]?[^\s\x1b"'\\,;<>{}()\[\]&|`]{4,}"""
_GAP = rf"(?:\s|\\+[nrt]|{LINE_PREFIX})+"
_WORD = r"""[^\s\x1b"'\\|;&<>()`]"""
_CREDENTIALS = r"[A-Za-z0-9+/=._~%-]"
_OF_PROSE = compile_pattern(
    rb"(?i)(?:.*(?:ed|en|ing|able|ible|ful|less|ly|ory|ive|ent|ant|ect|ous|ary|tion|ment|ness|al)"
    rb"|about|above|after|again|allow\w*|almost|already|also|always|before|being|better|between"
    rb"|blank|both|case|char\w*|clear|default|done|either|else|empty|enough|exactly|fine|going"
    rb"|good|happy|just|known|less|like|long|longer|maybe|more|never|null|okay|once|only|plain"
    rb"|quite|read|really|right|same|safe|secure|set|shared|short|shorter|simply|similar|still"
    rb"|strong|stronger|such|sure|taken|that|their|then|there|these|they|this|those|trivial|true"
    rb"|unique|unknown|until|used|usually|valid|weak|what|when|where|whether|which|whose|within"
    rb"|without|wrong|your)$"
)


_NAME_BEFORE = compile_pattern(rb"(?:^|\\[nrt]|\[[0-9;]*m|[^\w.-])([\w.-]*)$")
_LONGEST_NAME = 40  # bytes of the name before a password
_LINE_END = compile_pattern(rb"$|[\r\n\x1b\"'\\]|[ \t]+(?:[#\r\n]|//|$)")
_PAIR_END = compile_pattern(rb"$|[\s\x1b\"'\\;&]")


def _ends_line(text: bytes, start: int, stop: int) -> bool:
    """Whether a value ends where one in a configuration would: at the end of a line, also in a
    string; before a comment; and for `NAME=VALUE` before the next such pair."""
    is_pair = text[start - 1 : start] == b"=" and text[start - 2 : start - 1].isalnum()
    return (_PAIR_END if is_pair else _LINE_END).match(text[stop : stop + 40]) is not None


def _is_assignment(match: re2.Match[bytes], text: bytes) -> bool:
    start, stop = match.span(2)
    before, after = text[start - 1 : start], text[stop : stop + 1]
    follows = after == before or text[stop : stop + 2] == b"\\" + before
    is_quoted = before in (b'"', b"'") and follows
    if match.group(2)[:1] + after in (b"<>", b"{}"):
        return False  # a placeholder
    if after == b"(" or (before in (b'"', b"'") and not is_quoted and after == b" "):
        return False  # a function call, or a sentence
    ends_line = _ends_line(text, start, stop)
    name = _whole_name(text, match.span(1)[0]) + match.group(1)
    return is_assigned_secret(name, match.group(2), is_quoted=is_quoted, ends_line=ends_line)


def _whole_name(text: bytes, end: int) -> bytes:
    """The part of the name that precedes the match."""
    match = _NAME_BEFORE.search(text[max(0, end - _LONGEST_NAME) : end])
    return b"" if match is None else match.group(1)


_TO = compile_pattern(rb"(?i)\sto\s")
_SETS = compile_pattern(rb"(?i)\b(?:set|chang|reset|updat|rotat|switch|initiali[sz])\w*\b[^.\n]*$")


def _is_stated_in_prose(match: re2.Match[bytes], text: bytes) -> bool:
    """Whether prose states a password, and does not just describe one."""
    value = match.group(1).rstrip(b".,;:!?")
    start, _ = match.span(1)
    if not is_real_value(value) or len(value) < 5:
        return False
    begin, _ = match.span()
    if _TO.search(match.group()) and not _SETS.search(text[max(begin - 60, 0) : begin]):
        return False  # "the arguments to pass to main" sets none
    return text[start - 1 : start] in (b'"', b"'", b"`") or _OF_PROSE.match(value) is None


def _is_cookie(value: bytes) -> bool:
    values = [part.partition(b"=")[2] for part in value.split(b";")]
    return any(len(item) >= 6 and is_real_value(item) for item in values)


def _is_option_value(value: bytes) -> bool:
    is_word = value.isalpha() and (value.isupper() or _OF_PROSE.match(value) is not None)
    return is_real_value(value) and not is_word and not value.startswith(b"-")


_PROGRAMS: tuple[tuple[str, str, str], ...] = (
    (r"(?:mysql|mariadb)[\w-]*", "-p", rf"[\\\"']*({_WORD}{{3,}})"),
    (r"7z[ar]?", "-p", rf"[\\\"']*({_WORD}{{3,}})"),
    ("sshpass", "-p", rf"\s*[\\\"']*({_WORD}{{3,}})"),
    ("redis-cli", "(?:-a|--pass)", rf"\s+[\\\"']*({_WORD}{{3,}})"),
    (
        r"(?:docker|podman|helm registry|oras|crane auth|buildah|skopeo|az|oc)\s+login",
        "-[pP]",
        rf"[ =][\\\"']*({_WORD}{{6,}})",
    ),
    ("(?:un)?zip", "-P", rf"\s*[\\\"']*({_WORD}{{3,}})"),
    (r"ldap\w+", "-w", rf"\s*[\\\"']*({_WORD}{{3,}})"),
    (
        "(?:curl|wget)",
        "(?:-u|-U|--user|--proxy-user)",
        rf"[ =]?[\\\"']*[^\s:/\"'\\]+:({_WORD}{{3,}})",
    ),
    ("curl", "(?:-b|--cookie)", r"[ =]?[\\\"']*[\w.-]+=([^\s\x1b;\"'\\]{6,})"),
    ("(?:https?|xh)", "(?:-a|--auth)", rf"[ =]?[\\\"']*[^\s:/\"'\\]+:({_WORD}{{3,}})"),
    ("(?:smbclient|rpcclient|smbmap)", "-U", rf"\s*[\\\"']*[^\s%\"']+%({_WORD}{{3,}})"),
    (r"mongo\w*", "-p", rf"\s*[\\\"']*({_WORD}{{3,}})"),
    ("htpasswd", r"-\w*b\w*", rf"\s+(?:\S+\s+)?\S+\s+({_WORD}{{4,}})"),
    ("openssl", r"(?:-pass(?:in|out)?\s+[\\\"']*pass:|-[kK]\s+)", rf"({_WORD}{{3,}})"),
)
"""Programs that take a password as an argument, and the syntax of the option."""


def _program(name: str, option: str, value: str) -> Detector:
    line = r"(?:[^\n\\]|\\.|\\\n)*?"
    return value_detector(
        "password_option",
        rf"{name}\s(?:[^\n]*\s)?{option}",
        rf"{START}{name}\s(?:{line}\s)?{option}{value}",
        _is_option_value,
    )


PASSWORDS: tuple[Detector, ...] = (
    value_detector(
        "foreign_password",
        rf"(?i)(?:{FOREIGN_NAMES})",
        rf"(?i)(?:{FOREIGN_NAMES})(?: [^\s:=]{{1,30}}){{0,3}}"
        r"""[\\"'\]]*\s*(?:=>|:=|=|:|\xef\xbc\x9a|\xef\xbc\x9d|\\+uff1[ad])\s*"""
        rf"""(?:[\\"'`]|\xe3\x80\x8c|\\+u300c)*([{{<&]?{_WORD}{{6,}})""",
        is_varied_value,
    ),
    value_detector(
        "url_password",
        r"://[^\s/:@]*:[^\s/@]+@",
        r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s:@/"'\\]*:([^\s@/"'\\\[\]]{3,})@""",
        is_real_value,
    ),
    value_detector(
        "authorization",
        "(?i)authorization[\\\\\"']*\\s*[:=]",
        rf"(?i)authorization{_BETWEEN}(?:bearer|basic|token|apikey|negotiate|ntlm|splunk|key)\s+"
        rf"({_CREDENTIALS}{{8,}})",
        is_real_value,
    ),
    value_detector(
        "digest_authorization",
        r"(?i)\bdigest\s+[\w-]+=",
        r"""(?i)\bdigest\s+((?:[a-z-]+=(?:\\?"[^"\\\n]*\\?"|[^\s,"\\]+),?\s*){2,}).{0}""",
    ),
    value_detector(
        "authorization",
        "(?i)authorization[\\\\\"']*\\s*[:=]",
        rf"(?i)authorization{_BETWEEN}({_CREDENTIALS}{{16,}})",
        looks_secret,
    ),
    value_detector(
        "cookie",
        r"(?i)cookie[\\\"']*\s*:",
        r"""(?i)(?:set-)?cookie[\\"']*\s*:\s*[\\"']*("""
        r"""[\w.$-]+=[^\s;"'\\,]*(?:;[ \t]*[\w.$-]+(?:=[^\s;"'\\]*)?)*)""",
        _is_cookie,
    ),
    value_detector(
        "bearer_token", r"(?i)bearer\s", rf"(?i)\bbearer\s+({_CREDENTIALS}{{16,}})", looks_secret
    ),
    value_detector(
        "npmrc_token", "_auth", r"_auth(?:Token)?\s*=\s*([A-Za-z0-9+/=_.-]{8,})", looks_secret
    ),
    value_detector(
        "registry_login", r'auth[\\"]+\s*:', r'\bauth[\\"]+\s*:\s*[\\"]+([A-Za-z0-9+/]{8,}=*)[\\"]'
    ),
    value_detector(
        "netrc_password",
        rf"(?i)(?:machine|login|account){_GAP}[^\s\\]+{_GAP}password",
        rf"(?i)(?:machine|login|account){_GAP}[^\s\\]+{_GAP}password{_GAP}([^\s\x1b\[\"'\\]{{3,}})",
        is_real_value,
    ),
    value_detector(
        "pgpass_password",
        r":(?:5\d{3}|6432|\*):",
        r"""(?m)(?:^|\\[nrt]|\[[0-9;]*m|[\s"']|:\d{1,6}[:-])[\w.*-]+:(?:5\d{3}|6432|\*):[^\s:\\]+:[^\s:\\]+:([^\s\x1b:\\"']{3,})""",
        is_real_value,
    ),
    value_detector(
        "login_option",
        r"\s(?:-u|--user)[ =]",
        r"""\s(?:-u|--user)[ =][\\"']*[^\s:/"'\\\[]+:([^\s/"'\\\[\]]{6,})""",
        is_real_value,
    ),
    *(_program(name, option, value) for name, option, value in _PROGRAMS),
    value_detector(
        "password_option",
        r"\|\s*(?:sudo|docker|podman|passwd|cryptsetup)\s",
        rf"{START}(?:echo|printf)\s+(?:-\w+\s+)*[\\\"']*({_WORD}{{4,}})[\\\"']*\s*"
        r"\|\s*(?:sudo\s+-\w*S|(?:docker|podman) login|passwd|cryptsetup)",
        _is_option_value,
    ),
    value_detector(
        "secret_option",
        rf"(?i)--[a-z-]*(?:{NAMES})\s",
        rf"""(?i)--[a-z-]*(?:{NAMES})\s+[\\"']*({_VALUE})""",
        looks_secret,
    ),
    value_detector(
        "password_option",
        rf"(?i)--?[a-z-]*(?:{PASSWORD_NAMES})[ =]",
        rf"""(?i)(?:^|\s)--?[a-z-]*(?:{PASSWORD_NAMES})[ =][\\"']*({_WORD}{{4,}})""",
        _is_option_value,
    ),
    value_detector(
        "xml_secret",
        rf"(?i)<[\w:.-]*(?:{NAMES})[^<>]{{0,200}}>",
        rf"(?i)<[\w:.-]*(?:{NAMES})(?:\s[^<>]{{0,200}})?>\s*(?:<!\[CDATA\[)?([^<>\s\]]{{4,200}})\s*(?:\]\]>)?</",
        is_real_value,
    ),
    value_detector(
        "sql_password",
        r"(?i)(?:identified\s.{0,40}by|password)\s+[\\\"']",
        r"""(?i)(?:identified\s+(?:with\s+\S+\s+)?by|password)\s+[\\"']+([^\s"'\\]{4,})[\\"']""",
        is_real_value,
    ),
    value_detector(
        "password_argument",
        rf"(?i)(?:{PASSWORD_NAMES})\(\s*[\\\"']",
        rf"""(?i)(?:{PASSWORD_NAMES})\(\s*[\\"']+([^\s"'\\]{{4,}})[\\"']+\s*\)""",
        is_real_value,
    ),
    value_detector(
        "named_secret",
        rf"(?i)(?:{NAMES})[\\\"']*(?:,|{_GAP})+[\\\"']*value",
        rf"""(?i)\b(?:name|key|id)[\\"']*\s*[:=]\s*[\\"']*[\w.-]*(?:{NAMES})[\\"']*(?:,|{_GAP})+"""
        rf"""[\\"']*value[\\"']*\s*[:=]\s*[\\"']*({_VALUE})""",
        is_real_value,
    ),
    value_detector(
        "environment_secret",
        rf"(?:(?:ENV|ARG|setx)\s+(?i:\w*(?:{NAMES}))|requirepass)\s",
        rf"""{START}(?:(?:ENV|ARG|setx)\s+(?i:\w*(?:{NAMES}))|requirepass)\s+[\\"']*({_VALUE})""",
        is_real_value,
    ),
    value_detector(
        "passphrase",
        rf"(?i)(?:{PASSWORD_NAMES})[\\\"'\]]*\s*(?:[:=])",
        rf"(?i)(?:{PASSWORD_NAMES}){_BETWEEN}"
        r"""([a-z]{3,12}(?: [a-z]{3,12}){3,11})(?:[\s\x1b"'\\]|$)""",
        is_passphrase,
    ),
    Detector(
        "spoken_password",
        rf"(?i)(?:{PASSWORD_NAMES})(?:\s+(?:for|of)\s+\S+)?\s+(?:is|was|ist|to)\s",
        compile_pattern(
            (
                rf"(?i)(?:{PASSWORD_NAMES})(?:\s+(?:for|of)\s+\S+)?\s+(?:is|was|ist|to)\s+(?:now\s+)?"
                r"""[\\"'`]*([^\s\x1b"'`\\<>(){}\[\]]{5,})"""
            ).encode()
        ),
        _is_stated_in_prose,
    ),
    Detector(
        ASSIGNED,
        rf"(?i)(?:{NAMES})[\\\"'\]]*\s*(?:[:=?])",
        compile_pattern(rf"(?i)({NAMES}){_BETWEEN}({_VALUE})".encode()),
        _is_assignment,
        2,
    ),
)
