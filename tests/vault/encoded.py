"""Ways in which a server may send a secret back: single encodings, and combinations of them."""

import json
from base64 import b32encode, b32hexencode, b64encode, encodebytes, urlsafe_b64encode
from collections.abc import Callable
from quopri import encodestring
from urllib.parse import quote, quote_plus

Encoding = Callable[[bytes], bytes]


def each_byte(template: str) -> Encoding:
    return lambda value: "".join(template.format(byte) for byte in value).encode()


def each_unit(template: str) -> Encoding:
    def encode(value: bytes) -> bytes:
        units = value.decode().encode("utf-16-be")
        pairs = zip(units[::2], units[1::2], strict=True)
        return "".join(template.format(high << 8 | low) for high, low in pairs).encode()

    return encode


def each_character(template: str) -> Encoding:
    return lambda value: "".join(template.format(ord(char)) for char in value.decode()).encode()


def after(prefix: bytes, encode: Encoding) -> Encoding:
    return lambda value: encode(prefix + value + b"?")


def wrapped(content: bytes, width: int, line_end: bytes) -> bytes:
    return line_end.join(content[at : at + width] for at in range(0, len(content), width))


def json_string(value: bytes) -> bytes:
    return json.dumps(value.decode()).encode()


def mixed(value: bytes) -> bytes:
    ways = ("%{:02x}", "&#{};", "{:c}", "\\u{:04x}", "&#x0000{:X};", "\\x{:02X}", "%25{:02X}")
    codes = enumerate(map(ord, value.decode()))
    return "".join(
        (ways[at % 7] if code < 128 else "{:c}").format(code) for at, code in codes
    ).encode()


SINGLE: dict[str, Encoding] = {
    "JSON": json_string,
    "JSON with escaped slashes": lambda value: json_string(value).replace(b"/", b"\\/"),
    "JSON, all of it escaped": each_unit("\\u{:04x}"),
    "JSON, escaped in upper case": each_unit("\\u{:04X}"),
    "C escapes": each_byte("\\x{:02x}"),
    "octal escapes": each_byte("\\{:03o}"),
    "JavaScript code points": each_character("\\u{{{:x}}}"),
    "Python code points": each_character("\\U{:08x}"),
    "percent": lambda value: quote(value, safe="").encode(),
    "percent, with plus": lambda value: quote_plus(value).encode(),
    "percent, all of it": each_byte("%{:02X}"),
    "percent, in lower case": each_byte("%{:02x}"),
    "decimal entities": each_character("&#{};"),
    "decimal entities with zeros": each_character("&#0000{};"),
    "hexadecimal entities": each_character("&#x{:x};"),
    "hexadecimal entities with zeros": each_character("&#X000{:X};"),
    "named entities": lambda value: (
        value.replace(b"&", b"&amp;")
        .replace(b'"', b"&quot;")
        .replace(b"/", b"&sol;")
        .replace(b"+", b"&plus;")
        .replace(b"=", b"&equals;")
        .replace(b"_", b"&lowbar;")
    ),
    "UTF-16": lambda value: value.decode().encode("utf-16"),
    "UTF-16, big end first": lambda value: value.decode().encode("utf-16-be"),
    "UTF-32": lambda value: value.decode().encode("utf-32"),
    "base64": b64encode,
    "base64 after one byte": after(b"x", b64encode),
    "base64 after two bytes": after(b"me", b64encode),
    "base64 of UTF-16": lambda value: b64encode(value.decode().encode("utf-16-le")),
    "base64 for URLs": urlsafe_b64encode,
    "base64 in lines": encodebytes,
    "base64 in short lines": lambda value: wrapped(b64encode(value), 5, b"\r\n"),
    "base64 in indented lines": lambda value: wrapped(b64encode(value), 11, b"\n    "),
    "base32": b32encode,
    "base32 after three bytes": after(b"abc", b32encode),
    "base32 in lower case": lambda value: b32encode(value).lower(),
    "base32hex": b32hexencode,
    "hexadecimal": lambda value: value.hex().encode(),
    "HEXADECIMAL": lambda value: value.hex().upper().encode(),
    "hexadecimal with colons": lambda value: value.hex(":").encode(),
    "hexadecimal with spaces": lambda value: value.hex(" ", 2).encode(),
    "hexadecimal bytes": each_byte("0x{:02x}, "),
    "an array of bytes": lambda value: json.dumps(list(value)).encode(),
    "quoted-printable": each_byte("={:02X}"),
    "quoted-printable in lines": lambda value: encodestring(b"." * 60 + value),
    "wrapped": lambda value: wrapped(value, 9, b"\n"),
    "continued lines": lambda value: wrapped(value, 9, b"\\\n"),
    "upper case": bytes.upper,
    "backwards": lambda value: value.decode()[::-1].encode(),
    "a mixture": mixed,
}
"""Of a value in UTF-8."""

_OUTER = (
    "JSON", "JSON, all of it escaped", "percent, all of it", "percent", "decimal entities",
    "hexadecimal entities with zeros", "UTF-16", "base64", "base64 after one byte", "hexadecimal",
    "quoted-printable",
)  # fmt: skip
_INNER = (
    "JSON", "JSON with escaped slashes", "percent", "percent, all of it", "base64", "hexadecimal",
)  # fmt: skip


def compose(outer: Encoding, inner: Encoding) -> Encoding:
    return lambda value: outer(inner(value))


ENCODINGS = {
    **SINGLE,
    **{f"{o} of {i}": compose(SINGLE[o], SINGLE[i]) for o in _OUTER for i in _INNER},
}
