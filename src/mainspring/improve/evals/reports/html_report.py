"""A run as one HTML page, alone or compared with an earlier one: numbers, bars, every trial with
its checks. Without scripts: tags filter by style sheets alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import unified_diff
from itertools import islice
from statistics import fmean
from typing import TypeAlias

from mainspring.core.events import EvalCaseEnded, EvalGrade
from mainspring.improve.evals.gate.comparison import (
    CaseResults,
    Comparison,
    case_results,
    compare,
    summarize,
)
from mainspring.improve.evals.gate.decision import GateResult
from mainspring.improve.evals.reports.report_files import failures_of, share_text
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.runtime.export_sessions.html_report import (
    Markup,
    escape,
    facts_list,
    page_end,
    page_head,
)

_STYLE = """<style>
.bar{display:inline-block;width:12rem;height:.7rem;background:var(--code);border-radius:3px}
.bar i{display:block;height:100%;background:var(--agent);border-radius:3px}
.passed{--edge:var(--agent)}.failed{--edge:var(--error)}.error{--edge:var(--tool)}
.filter{position:absolute;opacity:0}
.filters label{display:inline-block;border:1px solid var(--line);border-radius:1rem;
padding:.1rem .7rem;margin:.15rem;cursor:pointer;font-size:.85rem}
.bad{color:var(--error)}.good{color:var(--agent)}
</style>"""


Logs: TypeAlias = Mapping[str, Sequence[str]]
"""The lines of each session's log."""
_ORDER = ("failed", "error", "passed")
_MAX_LINES, _MAX_LINE = 400, 1_000  # of a transcript, and characters of a line


def html_page(
    run: EvalRun,
    before: EvalRun | None,
    logs: Logs,
    version: str,
    *,
    gate: GateResult | None = None,
) -> str:
    """The page of a run. `logs` has the sessions of both runs."""
    return "".join(_page(run, before, logs, version, gate))


def _page(
    run: EvalRun, before: EvalRun | None, logs: Logs, version: str, gate: GateResult | None
) -> Iterator[str]:
    results = case_results(run.results.values())
    summary = summarize(results)
    yield page_head(f"Evals: {run.created.suite}")
    yield _STYLE
    if gate is not None:
        yield _gate(gate)
    facts = [
        ("run", run.id),
        ("agent", f"{run.created.agent_name} {run.created.agent_version or ''}"),
        ("model", run.created.model),
        ("started", run.started.isoformat(timespec="seconds")),
        ("cases", str(summary.cases)),
        ("pass rate", f"{summary.pass_rate:.1%} (95% confidence: {summary.interval})"),
        (f"pass@{summary.trials}", share_text(summary.pass_at)),
        (f"pass^{summary.trials}", share_text(summary.pass_all)),
        ("mean reward", f"{summary.reward:.3f}"),
        ("cost", f"${run.cost_usd:.4f}"),
        ("flaky", ", ".join(summary.flaky) or "none"),
    ]
    yield facts_list(facts)
    if before is not None:
        yield from _comparison(compare(case_results(before.results.values()), results), before)
    yield _case_table(results)
    yield _tag_table(summary.tags)
    yield from _trials(run, before, logs)
    yield page_end(f"Written by Mainspring {version}")


def _comparison(comparison: Comparison, before: EvalRun) -> Iterator[str]:
    yield f"<h2>Compared with run {escape(before.id)}</h2><p>{escape(comparison.text)}</p>"
    for label, names, style in (
        ("Regressed", comparison.regressed, "bad"),
        ("Improved", comparison.improved, "good"),
    ):
        if names:
            links = ", ".join(
                f'<a class="{style}" href="#{escape(_anchor(name))}">{escape(name)}</a>'
                for name in names
            )
            yield f"<p>{label}: {links}</p>"


def _gate(gate: GateResult) -> Markup:
    verdict, style = ("open", "good") if gate.is_open else ("closed", "bad")
    reasons = "".join(f'<li class="bad">{escape(text)}</li>' for text in gate.reasons)
    notes = "".join(f"<li>{escape(text)}</li>" for text in gate.notes)
    return Markup(f'<h2 class="{style}">The gate is {verdict}</h2><ul>{reasons}{notes}</ul>')


def _case_table(results: CaseResults) -> Markup:
    """One row for each case, those that pass least first."""
    rows = "".join(
        f'<tr><th scope="row"><a href="#{escape(_anchor(name))}">{escape(name)}</a></th>'
        f"<td>{case.passes}</td><td>{case.errors or ''}</td><td>{fmean(case.rewards or (0.0,)):.2f}"
        "</td></tr>"
        for name, case in sorted(results.items(), key=lambda item: item[1].rate)
    )
    head = "<tr><th>case</th><th>trials passed</th><th>without verdict</th><th>reward</th></tr>"
    return Markup(f"<h2>Cases</h2><table>{head}{rows}</table>")


def _tag_table(tags: Mapping[str, tuple[int, float]]) -> Markup:
    if not tags:
        return Markup("")
    rows = "".join(
        f'<tr><th scope="row">{escape(tag)}</th>' + f"<td>{count}</td><td>{rate:.0%}</td>"
        f'<td><span class="bar"><i style="width:{rate * 100:.0f}%"></i></span></td></tr>'
        for tag, (count, rate) in tags.items()
    )
    head = "<tr><th>tag</th><th>cases</th><th>pass rate</th><th></th></tr>"
    return Markup(f"<h2>Tags</h2><table>{head}{rows}</table>")


def _trials(run: EvalRun, before: EvalRun | None, logs: Logs) -> Iterator[str]:
    tags = sorted({tag for item in run.results.values() for tag in item.tags})
    yield "<h2>Trials</h2>"
    yield '<input class="filter" type="radio" name="t" id="t-all" checked>'
    yield '<input class="filter" type="radio" name="t" id="t-failed">'
    yield from (
        f'<input class="filter" type="radio" name="t" id="t{index}">' for index in range(len(tags))
    )
    # indexes, never names, so that a tag cannot become a selector
    rules = "".join(
        f"#t{index}:checked~.trials article:not(.g{index}){{display:none}}"
        for index in range(len(tags))
    )
    yield f"<style>{rules}#t-failed:checked~.trials .passed{{display:none}}</style>"
    labels = "".join(
        f'<label for="t{index}">{escape(tag)}</label>' for index, tag in enumerate(tags)
    )
    first = '<label for="t-all">all</label><label for="t-failed">not passed</label>'
    yield f'<p class="filters">{first}{labels}</p>'
    yield '<div class="trials">'
    places = {tag: index for index, tag in enumerate(tags)}
    earlier = {} if before is None else before.results
    for item in sorted(run.sorted_results, key=lambda item: _ORDER.index(item.outcome)):
        yield _trial(item, places, earlier.get((item.case_id, item.trial)), logs)
    yield "</div>"


def _trial(
    item: EvalCaseEnded,
    places: Mapping[str, int],
    before: EvalCaseEnded | None,
    logs: Logs,
) -> Markup:
    groups = " ".join(f"g{places[tag]}" for tag in item.tags)
    cost = Decimal(item.cost_usd)
    head = (
        f"<header><b>{item.outcome}</b><span>{item.score:.2f} · {item.turns} turns ·"
        f" {item.tool_calls} calls · {item.seconds:.1f} s · ${cost:.4f}</span></header>"
    )
    name = f"{item.case_id} trial {item.trial}"
    anchor = f' id="{escape(_anchor(item.case_id))}"' if item.trial == 1 else ""
    reasons = "".join(f"<li>{escape(line)}</li>" for line in failures_of(item))
    grades = "".join(_grade(grade) for grade in item.grades)
    comparison = "" if before is None else _compare_trials(item, before, logs)
    lines = _escape_lines(logs.get(item.session_id, ()))
    log = f"<details><summary>log</summary><pre>{lines}</pre></details>" if lines else ""
    return Markup(
        f'<article class="{item.outcome} {groups}"{anchor}>{head}<p><b>{escape(name)}</b></p>'
        f"<ul>{reasons}</ul><details><summary>checks</summary>{grades}</details>{log}{comparison}"
        f"<p><code>mainspring log show {escape(item.session_id)}</code></p></article>"
    )


def _grade(grade: EvalGrade) -> str:
    rows = "".join(
        f'<li class="{"good" if check.passed else "bad"}">{escape(check.name)}'
        f"{': ' if check.detail else ''}{escape(check.detail)}</li>"
        for check in grade.checks
    )
    weight = "" if grade.weight is None else f", weight {grade.weight:g}"
    return f"<p>{escape(grade.grader)}: {grade.score:.2f}{weight}</p><ul>{rows}</ul>"


def _compare_trials(item: EvalCaseEnded, before: EvalCaseEnded, logs: Logs) -> str:
    """The differences between both runs: the calls, their results and the answers."""
    if item.session_id == before.session_id:
        return ""
    verdicts = f"<p>{before.outcome}, {before.score:.2f} before; {item.outcome} now</p>"
    old_log, new_log = (logs.get(result.session_id, ()) for result in (before, item))
    changes = _escape_lines(unified_diff(old_log, new_log, "before", "now", lineterm=""))
    return (
        f"<details><summary>compared with the earlier run</summary>{verdicts}"
        f"<pre>{changes or 'no difference'}</pre></details>"
    )


def _escape_lines(lines: Iterable[str]) -> str:
    return "\n".join(escape(line[:_MAX_LINE]) for line in islice(lines, _MAX_LINES))


def _anchor(case_id: str) -> str:
    return f"case-{case_id}"
