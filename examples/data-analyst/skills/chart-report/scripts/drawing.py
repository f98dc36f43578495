"""Shapes on a sheet, and the two ways to write them down: SVG and PDF. No library is needed.

Lengths are points; x grows to the right and y down. What is drawn is not known here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from html import escape
from typing import Union

_ASCII = (  # how wide Helvetica's characters are, from the space on, in thousandths of their size
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278"
    " 556 556 556 556 556 556 556 556 556 556 278 278 584 584 584 556"
    " 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778"
    " 667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556"
    " 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556"
    " 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584"
)
_WIDTHS = {chr(32 + index): int(width) for index, width in enumerate(_ASCII.split())}
_BOLD = 1.06


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    fill: str
    is_mark: bool = False
    """It stands for a value, and is no ornament."""


@dataclass(frozen=True)
class Polyline:
    points: tuple[tuple[float, float], ...]
    stroke: str
    width: float = 1


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    fill: str
    is_mark: bool = False


@dataclass(frozen=True)
class Text:
    x: float
    y: float
    text: str
    size: float = 9
    fill: str = "#1f2933"
    is_bold: bool = False
    anchor: str = "start"
    """What of it stands at x: start, middle or end."""

    @property
    def left(self) -> float:
        share = {"start": 0, "middle": 0.5, "end": 1}[self.anchor]
        return self.x - share * text_width(self.text, self.size, is_bold=self.is_bold)


Shape = Union[Rect, Polyline, Dot, Text]  # noqa: UP007 (the sandbox may have an older Python)


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    letters = _BOLD if is_bold else 1  # figures are as wide as ever
    units = (_WIDTHS.get(item, 556) * (letters if item.isalpha() else 1) for item in text)
    return sum(units) * size / 1000


def wrapped(text: str, size: float, width: float) -> list[str]:
    """A text in lines that are no wider."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def svg(width: float, height: float, shapes: list[Shape], *, title: str) -> str:
    drawn = "\n".join(_element(shape) for shape in shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width * 1.6:g}" height="{height * 1.6:g}" role="img"'
        f' font-family="Helvetica, Arial, sans-serif">\n<title>{escape(title)}</title>\n'
        f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>\n{drawn}\n</svg>\n'
    )


def _element(shape: Shape) -> str:
    mark = ' class="mark"' if getattr(shape, "is_mark", False) else ""
    if isinstance(shape, Rect):
        place = f'x="{shape.x:.2f}" y="{shape.y:.2f}"'
        size = f'width="{shape.width:.2f}" height="{shape.height:.2f}"'
        return f'<rect{mark} {place} {size} fill="{shape.fill}"/>'
    if isinstance(shape, Dot):
        place = f'cx="{shape.x:.2f}" cy="{shape.y:.2f}"'
        return f'<circle{mark} {place} r="{shape.radius:g}" fill="{shape.fill}"/>'
    if isinstance(shape, Polyline):
        points = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
        line = f'stroke="{shape.stroke}" stroke-width="{shape.width:g}"'
        return f'<polyline points="{points}" fill="none" {line} stroke-linejoin="round"/>'
    weight = ' font-weight="bold"' if shape.is_bold else ""
    place = f'x="{shape.x:.2f}" y="{shape.y:.2f}" text-anchor="{shape.anchor}"'
    look = f'font-size="{shape.size:g}" fill="{shape.fill}"{weight}'
    return f"<text {place} {look}>{escape(shape.text)}</text>"


def pdf(width: float, height: float, shapes: list[Shape], *, title: str) -> bytes:
    """One page."""
    drawn = "\n".join(_operators(shape, height) for shape in shapes).encode("cp1252", "replace")
    packed = zlib.compress(drawn)
    font = "<< /Type /Font /Subtype /Type1 /Encoding /WinAnsiEncoding /BaseFont /%s >>"
    resources = "/Resources << /Font << /F1 4 0 R /F2 5 0 R >> >>"
    box = f"/MediaBox [0 0 {width:g} {height:g}]"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R {box} {resources} /Contents 6 0 R >>".encode(),
        (font % "Helvetica").encode(),
        (font % "Helvetica-Bold").encode(),
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
        f"<< /Title {_string(title)} /Producer (Mainspring example) >>".encode("cp1252", "replace"),
    ]
    return _file(objects)


def _file(objects: list[bytes]) -> bytes:
    written = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"
    places: list[int] = []
    for index, body in enumerate(objects):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (index + 1, body)
    count = len(objects) + 1
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    ends = b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\nstartxref\n%d\n%%%%EOF\n"
    head = b"xref\n0 %d\n0000000000 65535 f \n" % count
    return written + head + table + ends % (count, len(objects), len(written))


def _operators(shape: Shape, page: float) -> str:
    if isinstance(shape, Rect):
        below = page - shape.y - shape.height
        box = f"{shape.x:.2f} {below:.2f} {shape.width:.2f} {shape.height:.2f}"
        return f"{_rgb(shape.fill)} rg {box} re f"
    if isinstance(shape, Polyline):
        points = [f"{x:.2f} {page - y:.2f}" for x, y in shape.points]
        path = f"{points[0]} m " + " ".join(f"{point} l" for point in points[1:])
        return f"{_rgb(shape.stroke)} RG {shape.width:g} w 1 j {path} S"
    if isinstance(shape, Dot):
        return f"{_rgb(shape.fill)} rg {_circle(shape.x, page - shape.y, shape.radius)} f"
    font = "/F2" if shape.is_bold else "/F1"
    place = f"{shape.left:.2f} {page - shape.y:.2f} Td"
    return f"BT {_rgb(shape.fill)} rg {font} {shape.size:g} Tf {place} {_string(shape.text)} Tj ET"


def _circle(x: float, y: float, radius: float) -> str:
    """Four curves, which are a circle as far as anybody can see."""
    bend = 0.5523 * radius
    path = f"{x + radius:.2f} {y:.2f} m"
    for right, up in ((1, 1), (-1, 1), (-1, -1), (1, -1)):
        across, along = (right * radius, bend * up) if right == up else (bend * right, radius * up)
        first = (x + across, y + along)
        across, along = (bend * right, radius * up) if right == up else (right * radius, bend * up)
        second = (x + across, y + along)
        end = (x, y + up * radius) if right == up else (x + right * radius, y)
        path += "".join(f" {a:.2f} {b:.2f}" for a, b in (first, second, end)) + " c"
    return path


def _rgb(colour: str) -> str:
    return " ".join(f"{int(colour[at : at + 2], 16) / 255:.3f}" for at in (1, 3, 5))


def _string(text: str) -> str:
    for special in "\\()":
        text = text.replace(special, f"\\{special}")
    return f"({text})"
