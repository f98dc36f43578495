"""Writes reports of a run: JUnit for build servers, Markdown for pull requests. `html_report`
writes the HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from mainspring.core.events import EvalCaseEnded
from mainspring.improve.evals.gate.comparison import ResultSummary, case_results, summarize
from mainspring.improve.evals.gate.decision import GateResult
from mainspring.improve.evals.runs.run_log import EvalRun
from mainspring.runtime.export_sessions.html_report import strip_control_characters


def failures_of(item: EvalCaseEnded) -> list[str]:
    """The reasons why a trial did not pass: its error, and every failed check."""
    lines = [] if item.error is None else [item.error]
    for grade in item.grades:
        if grade.error is not None and grade.error not in (item.error or ""):
            lines.append(f"{grade.grader}: {grade.error}")
        for check in grade.checks:
            if not check.passed:
                detail = f": {check.detail}" if check.detail else ""
                lines.append(f"{grade.grader}: failed: {check.name}{detail}")
        if grade.note is not None:
            lines.append(f"{grade.grader}: {grade.note}")
    return lines


def junit(run: EvalRun) -> str:
    """One test case for each trial."""
    items = run.sorted_results
    failed = sum(item.outcome == "failed" for item in items)
    errors = sum(item.outcome == "error" for item in items)
    seconds = sum(item.seconds for item in items)
    suite = _attribute(run.created.suite)
    head = (
        f"<testsuite name={suite} tests={_attribute(len(items))} failures={_attribute(failed)}"
        f" errors={_attribute(errors)} time={_attribute(f'{seconds:.3f}')}"
        f" timestamp={_attribute(run.started.isoformat(timespec='seconds'))}>"
    )
    body = "\n".join(_junit_case(item, suite) for item in items)
    first = '<?xml version="1.0" encoding="utf-8"?>'
    return f"{first}\n<testsuites>{head}\n{body}\n</testsuite></testsuites>\n"


def _junit_case(item: EvalCaseEnded, suite: str) -> str:
    name = _attribute(f"{item.case_id} trial {item.trial}")
    head = f"<testcase classname={suite} name={name} time={_attribute(f'{item.seconds:.3f}')}"
    if item.outcome == "passed":
        return f"{head}/>"
    kind = "failure" if item.outcome == "failed" else "error"
    lines = failures_of(item) or [item.outcome]
    text = escape(_xml_text("\n".join([*lines, f"session {item.session_id}"])))
    return f"{head}><{kind} message={_attribute(lines[0])}>{text}</{kind}></testcase>"


def _attribute(value: object) -> str:
    return quoteattr(_xml_text(str(value)).replace("\n", " "))


def _xml_text(text: str) -> str:
    return strip_control_characters(text).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")


def markdown(run: EvalRun, result: GateResult | None) -> str:
    """A comment for a pull request. Texts of agents are in code spans, so that they format
    nothing."""
    summary = summarize(case_results(run.results.values())) if result is None else result.summary
    return "\n".join(_markdown(run, summary, result)) + "\n"


def _markdown(run: EvalRun, summary: ResultSummary, result: GateResult | None) -> Iterator[str]:
    verdict = "" if result is None else " — gate open" if result.is_open else " — **gate closed**"
    yield f"### Evals: {_code(run.created.suite)}{verdict}"
    yield ""
    for reason in () if result is None else result.reasons:
        yield f"- **{_code(reason)}**"
    for note in () if result is None else result.notes:
        yield f"- {_code(note)}"
    yield ""
    yield "| cases | pass rate | 95 % | pass@k | pass^k | k | cost | model |"
    yield "|---|---|---|---|---|---|---|---|"
    yield (
        f"| {summary.cases} | {summary.pass_rate:.1%} | {summary.interval}"
        f" | {share_text(summary.pass_at)} | {share_text(summary.pass_all)} | {summary.trials}"
        f" | ${run.cost_usd:.4f} | {_code(run.created.model)} |"
    )
    failed = [item for item in run.sorted_results if item.outcome != "passed"]
    if failed:
        yield ""
        yield "| case | trial | result | why |"
        yield "|---|---|---|---|"
    for item in failed[:100]:
        why = "<br>".join(_code(line[:300]) for line in failures_of(item)[:5])
        yield f"| {_code(item.case_id)} | {item.trial} | {item.outcome} | {why} |"
    if summary.flaky:
        yield ""
        yield f"Flaky: {', '.join(map(_code, summary.flaky))}"


def share_text(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _code(text: str) -> str:
    clean = strip_control_characters(text).replace("\n", " ").replace("`", "'").replace("|", "\\|")
    return f"`{clean}`" if clean.strip() else ""
