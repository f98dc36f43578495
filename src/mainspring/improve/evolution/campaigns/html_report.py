"""A campaign as one HTML page: what it found out, what it tried, what the gate decided; plots as
SVG, no scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mainspring.core.events import EvolutionScreened
from mainspring.improve.evolution.campaigns.campaign_views import CampaignDetail, DecisionView
from mainspring.runtime.export_sessions.html_report import (
    Markup,
    escape,
    facts_list,
    page_end,
    page_head,
)

_STYLE = """<style>
svg{max-width:40rem;background:var(--code);border-radius:4px}
svg text{font-size:11px;fill:currentColor}
.kept{fill:var(--agent);stroke:var(--agent)}.refused{fill:var(--error);stroke:var(--error)}
.axis{stroke:var(--line)}
</style>"""
_WIDTH, _HEIGHT, _EDGE = 600, 200, 34  # pixels of a plot and its margin
_MAX_DIFF = 20_000  # characters


def html_page(detail: CampaignDetail, version: str) -> str:
    return "".join(_page(detail, version))


def _page(detail: CampaignDetail, version: str) -> Iterator[str]:
    campaign, recommended = detail.campaign, detail.recommended
    yield page_head(f"Campaign on {campaign.suite}")
    yield _STYLE
    calls = ", ".join(f"{count} {kind}" for kind, count in sorted(detail.calls.items()))
    yield facts_list(
        [
            ("campaign", campaign.id),
            ("started", campaign.time.isoformat(timespec="seconds")),
            ("ended", f"{campaign.status}: {campaign.reason}"),
            ("trigger", campaign.trigger),
            ("preset", campaign.preset),
            ("passed at the start", "" if campaign.score is None else f"{campaign.score:.0%}"),
            ("diagnosis", "" if recommended is None else recommended.reason),
            ("calls", calls or str(campaign.trials)),
            ("cost", f"${campaign.cost_usd}"),
        ]
    )
    yield "<h2>Score over calls</h2>"
    yield _score_plot(detail.steps)
    yield "<h2>Front: score by size of the change</h2>"
    yield _front_plot(detail.steps)
    yield "<h2>Decisions on sealed cases, with 95 % intervals</h2>"
    yield _decision_plot(detail.decisions)
    yield "<h2>What was tried</h2><ul>"
    for step in detail.steps:
        kind = "kept" if step.is_kept else "refused"
        yield f"<li><b>{kind}</b> ({escape(step.track)}): {escape(step.reason)}</li>"
    yield "</ul>"
    if detail.diff:
        yield f"<h2>The promoted change</h2><pre>{escape(detail.diff[:_MAX_DIFF])}</pre>"
    yield page_end(version)


def _score_plot(steps: Sequence[EvolutionScreened]) -> Markup:
    scored = [(float(step.calls), step.score, step.is_kept) for step in steps if step.score]
    return _points(scored, "calls")


def _front_plot(steps: Sequence[EvolutionScreened]) -> Markup:
    sized = [(float(_size(step.diff)), step.score, step.is_kept) for step in steps if step.score]
    return _points(sized, "changed lines")


def _size(diff: str) -> int:
    return sum(
        line[:1] in ("+", "-") and line[:3] not in ("+++", "---") for line in diff.splitlines()
    )


def _points(points: Sequence[tuple[float, float, bool]], unit: str) -> Markup:
    if not points:
        return Markup("<p>nothing was tried</p>")
    most = max(at for at, _, _ in points) or 1.0
    marks = "".join(
        f'<circle class="{"kept" if is_kept else "refused"}" r="4"'
        f' cx="{_EDGE + at / most * (_WIDTH - 2 * _EDGE):.1f}" cy="{_y(score):.1f}"/>'
        for at, score, is_kept in points
    )
    label = f'<text x="{_WIDTH - 130}" y="{_HEIGHT - 8}">{most:.0f} {unit}</text>'
    return _svg(marks + label)


def _y(share: float) -> float:
    return _HEIGHT - _EDGE - share * (_HEIGHT - 2 * _EDGE)


def _decision_plot(decisions: Sequence[DecisionView]) -> Markup:
    if not decisions:
        return Markup("<p>the gate was not asked</p>")
    step = (_WIDTH - 2 * _EDGE) / len(decisions)
    marks: list[str] = []
    for number, item in enumerate(decisions):
        x = _EDGE + step * (number + 0.5)
        low, high, middle = (
            _y((value + 1) / 2) for value in (item.gate.low, item.gate.high, item.gate.difference)
        )
        kind = "kept" if item.gate.decision == "promote" else "refused"
        marks.append(f'<line class="{kind}" x1="{x}" x2="{x}" y1="{low:.1f}" y2="{high:.1f}"/>')
        marks.append(f'<circle class="{kind}" r="4" cx="{x}" cy="{middle:.1f}"/>')
    zero = _y(0.5)
    marks.append(f'<line class="axis" x1="{_EDGE}" x2="{_WIDTH}" y1="{zero}" y2="{zero}"/>')
    return _svg("".join(marks), top="+100", bottom="-100 points")


def _svg(marks: str, *, top: str = "100 %", bottom: str = "0 %") -> Markup:
    axis = f'<line class="axis" x1="{_EDGE}" x2="{_EDGE}" y1="{_EDGE}" y2="{_HEIGHT - _EDGE}"/>'
    texts = f'<text x="2" y="{_EDGE}">{top}</text><text x="2" y="{_HEIGHT - _EDGE}">{bottom}</text>'
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
    return Markup(f"<svg {view}>{axis}{texts}{marks}</svg>")
