"""Two charts of a summary: passengers by month and route, and how often each route is late."""

from __future__ import annotations

import calendar
import math
from typing import Any

from drawing import Dot, Polyline, Rect, Shape, Text, text_width

COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0")
INK, GREY, LINE = "#1f2933", "#6b7280", "#e5e7eb"
Summary = dict[str, Any]  # out/summary.json


def colours(summary: Summary) -> dict[str, str]:
    """One for each route, the same in every chart."""
    return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(summary["routes"])}


def passengers(summary: Summary, x: float, y: float, width: float, height: float) -> list[Shape]:
    """A line for each route, a dot for each month, and the largest fall in figures."""
    routes, months = summary["routes"], summary["months"]
    top = ceiling(max(max(route["weekly_by_month"]) for route in routes.values()))
    left, right, above, below = x + 34, x + width - 82, y + 24, y + height - 16

    def place(month: int, value: float) -> tuple[float, float]:
        across = month / max(1, len(months) - 1)
        return left + across * (right - left), below - value / top * (below - above)

    shapes: list[Shape] = [Text(x, y + 8, "Passengers a week, mean of each month", 10, INK, True)]
    for step in range(5):
        _, height_of = place(0, top * step / 4)
        shapes.append(Polyline(((left, height_of), (right, height_of)), LINE, 0.7))
        label = f"{top * step / 4:,.0f}"
        shapes.append(Text(left - 6, height_of + 3, label, 8, GREY, anchor="end"))
    for index, month in enumerate(months):
        across, _ = place(index, 0)
        name = calendar.month_abbr[int(month[5:7])]
        shapes.append(Text(across, below + 13, name, 8, GREY, anchor="middle"))
    ends: list[tuple[float, str]] = []
    for name, colour in colours(summary).items():
        points = tuple(place(*item) for item in enumerate(routes[name]["weekly_by_month"]))
        shapes.append(Polyline(points, colour, 1.6))
        shapes += [Dot(*point, 2.2, colour, is_mark=True) for point in points]
        ends.append((points[-1][1], name))
    for height_of, name in apart(ends, 11):
        shapes.append(Text(right + 8, height_of + 3, name, 8.5, colours(summary)[name], True))
    fall = summary["largest_fall"]
    at = months.index(fall["month"])
    across, down = place(at, routes[fall["route"]]["weekly_by_month"][at])
    label = f"-{fall['percent']} %"
    shapes.append(Text(across - 8, down + 3, label, 8.5, INK, True, anchor="end"))
    return shapes


def lateness(summary: Summary, x: float, y: float, width: float, height: float) -> list[Shape]:
    """A bar for each route, the worst first."""
    routes = summary["routes"]
    worst = sorted(routes, key=lambda name: -routes[name]["late_percent"])
    longest = max(text_width(name, 8.5) for name in worst)
    left, room = x + longest + 8, width - longest - 50
    most = max(1, *(routes[name]["late_percent"] for name in worst))
    step = (height - 24) / len(worst)
    shapes: list[Shape] = [Text(x, y + 8, "Late crossings, % of all", 10, INK, True)]
    for index, name in enumerate(worst):
        percent, down = routes[name]["late_percent"], y + 24 + index * step
        bar = max(0.5, percent / most * room)
        fill = colours(summary)[name]
        shapes.append(Rect(left, down, bar, step * 0.62, fill, is_mark=True))
        middle = down + step * 0.31 + 3
        shapes.append(Text(left - 8, middle, name, 8.5, INK, anchor="end"))
        shapes.append(Text(left + bar + 6, middle, f"{percent} %", 8.5, INK, True))
    return shapes


def ceiling(value: float) -> float:
    """The next round number that four steps lead to."""
    unit = 10 ** math.floor(math.log10(max(value, 1)))
    steps = (unit * item for item in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10))
    return next(step for step in steps if step >= value)


def apart(ends: list[tuple[float, str]], least: float) -> list[tuple[float, str]]:
    """Labels from the top down, none nearer to the last than that."""
    placed: list[tuple[float, str]] = []
    for height, name in sorted(ends):
        lowest = placed[-1][0] + least if placed else height
        placed.append((max(height, lowest), name))
    return placed
