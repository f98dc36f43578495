"""data/crossings.csv -> out/summary.json: every number that a report may say, computed once."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

SOURCE = Path("data/crossings.csv")
SUMMARY = Path("out/summary.json")
Row = dict[str, str]
Numbers = dict[str, Any]  # what goes into a JSON file


def read(source: Path) -> tuple[list[Row], dict[str, int]]:
    """The rows that count, and how many do not and why."""
    with source.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    once = list({tuple(row.values()): row for row in rows}.values())
    whole = [row for row in once if all(row.values())]
    left_out = {"twice": len(rows) - len(once), "incomplete": len(once) - len(whole)}
    return whole, {"rows": len(rows), "used": len(whole), **left_out}


def summarise(rows: list[Row]) -> Numbers:
    months = sorted({row["week"][:7] for row in rows})
    routes = {name: route(rows, name, months) for name in sorted({row["route"] for row in rows})}
    return {
        "year": months[0][:4],
        "months": months,
        "total": totals(rows),
        "routes": routes,
        "largest_fall": largest_fall(routes, months),
        "most_late": max(routes, key=lambda name: routes[name]["late_percent"]),
    }


def route(rows: list[Row], name: str, months: list[str]) -> Numbers:
    own = [row for row in rows if row["route"] == name]
    weeks: dict[str, list[int]] = defaultdict(list)
    for row in own:
        weeks[row["week"][:7]].append(int(row["passengers"]))
    # Months have four weeks or five: what is compared is the mean of a week.
    weekly = [round(sum(weeks[month]) / len(weeks[month]), 1) for month in months]
    return {**totals(own), "weekly_by_month": weekly}


def totals(rows: list[Row]) -> Numbers:
    crossings, late = added(rows, "crossings"), added(rows, "late")
    return {
        "passengers": added(rows, "passengers"),
        "revenue_eur": round(sum(float(row["revenue_eur"]) for row in rows), 2),
        "crossings": crossings,
        "late": late,
        "late_percent": round(100 * late / crossings, 1),
    }


def added(rows: list[Row], column: str) -> int:
    return sum(int(row[column]) for row in rows)


def largest_fall(routes: dict[str, Numbers], months: list[str]) -> Numbers:
    """The route and month with the steepest fall of passengers against the month before."""
    falls = [
        (route["weekly_by_month"][at] / route["weekly_by_month"][at - 1] - 1, name, months[at])
        for name, route in routes.items()
        for at in range(1, len(months))
    ]
    change, name, month = min(falls)
    return {"route": name, "month": month, "percent": round(-100 * change, 1)}


def main() -> None:
    rows, counted = read(SOURCE)
    summary = {"data": counted, **summarise(rows)}
    SUMMARY.parent.mkdir(exist_ok=True)
    SUMMARY.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=2))
    print(f"wrote {SUMMARY}")


if __name__ == "__main__":
    main()
