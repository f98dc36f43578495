// One campaign: what it measured, what it tried, what the sealed cases decided, and the change to approve.

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { explain, mayAct, post } from "./api";
import { count, dollars, words } from "./format";
import { Terminal } from "./payload";
import { Plot, type PlotSeries } from "./plot";
import { useResource } from "./resource";
import { RunBadge } from "./runs";
import { go, link, toast, usePageKeys } from "./state";
import type { CampaignDetail, EvolutionStatus, GateDecision } from "./types";
import { Age, Button, CopyButton, Failure, Loading } from "./ui";

const WIDTH = 260;

function percent(value: number): string {
  return `${Math.round(value * 100)} %`;
}

/** A difference with its 95 % interval, on a scale from -100 to +100 points. */
function Interval({ gate }: { gate: GateDecision }) {
  const { difference = 0, low = -1, high = 1 } = gate;
  const x = (value: number): number => ((Math.max(-1, Math.min(1, value)) + 1) / 2) * (WIDTH - 16) + 8;
  const tone = gate.decision === "promote" ? "good" : gate.decision === "refuse" ? "bad" : "ask";
  const text = `${(difference * 100).toFixed(1)} points, 95 %: ${(low * 100).toFixed(1)} to ${(high * 100).toFixed(1)}`;
  return (
    <svg class={`interval ${tone}`} viewBox={`0 0 ${WIDTH} 22`} role="img" aria-label={text}>
      <title>{text}</title>
      <line x1={x(-1)} x2={x(1)} y1={11} y2={11} class="axis" />
      <line x1={x(0)} x2={x(0)} y1={1} y2={21} class="zero" />
      <line x1={x(low)} x2={x(high)} y1={11} y2={11} class="range" />
      <circle cx={x(difference)} cy={11} r={4.5} />
    </svg>
  );
}

function scoresOf(detail: CampaignDetail): { xs: number[]; series: PlotSeries[] } {
  const points: { x: number; tried: number | null; best: number | null; refused: number | null }[] = [];
  const start = detail.campaign.score;
  let best = start;
  if (start !== null) points.push({ x: 0, tried: null, best: start, refused: null });
  for (const step of [...detail.steps].sort((a, b) => (a.calls ?? 0) - (b.calls ?? 0))) {
    if (step.score === undefined) continue;
    if (step.is_kept && (best === null || step.score > best)) best = step.score;
    points.push({
      x: step.calls ?? 0,
      tried: step.is_kept ? step.score : null,
      best,
      refused: step.is_kept ? null : step.score,
    });
  }
  return {
    xs: points.map((point) => point.x),
    series: [
      { name: "best so far", color: "accent", isLine: true, values: points.map((point) => point.best) },
      { name: "kept for the gate", color: "good", isLine: false, values: points.map((point) => point.tried) },
      { name: "refused before it", color: "bad", isLine: false, values: points.map((point) => point.refused) },
    ],
  };
}

function Promotion({ detail, onDone }: { detail: CampaignDetail; onDone: () => void }) {
  const isSure = useSignal(false);
  const isBusy = useSignal(false);
  if (detail.diff_hash === null) return null;
  const promote = async (): Promise<void> => {
    isBusy.value = true;
    try {
      const path = `/v1/mainspring/campaigns/${encodeURIComponent(detail.campaign.id)}/promote`;
      const version = await post<{ number: number }>(path, { diff_hash: detail.diff_hash });
      toast(`version ${version.number} is in use`);
      onDone();
    } catch (error) {
      toast(explain(error), true);
    } finally {
      isBusy.value = false;
      isSure.value = false;
    }
  };
  return (
    <section aria-label="The change">
      <h2>The change that was proved</h2>
      <Terminal text={detail.diff} />
      {mayAct("operator") ? (
        <div class="actions">
          {isSure.value ? (
            <>
              <Button kind="primary" disabled={isBusy.value} onClick={() => void promote()}>
                Use exactly this change
              </Button>
              <Button onClick={() => (isSure.value = false)}>Not now</Button>
            </>
          ) : (
            <Button kind="primary" onClick={() => (isSure.value = true)}>
              Use it…
            </Button>
          )}
          <CopyButton text={`mainspring evolve promote ${detail.campaign.id}`} what="CLI" />
        </div>
      ) : (
        <p class="muted">Using it needs the role operator.</p>
      )}
    </section>
  );
}

function Versions() {
  const { value, load } = useResource<EvolutionStatus>("/v1/mainspring/evolution", (session) => session.origin === "campaign");
  const chosen = useSignal<number | null>(null);
  const status = value.value;
  if (status === null || status.versions.length === 0) return null;
  const rollBack = async (version: number): Promise<void> => {
    try {
      await post("/v1/mainspring/evolution/rollback", { version });
      toast(`version ${version} is in use`);
    } catch (error) {
      toast(explain(error), true);
    }
    chosen.value = null;
    void load();
  };
  return (
    <section aria-label="Versions">
      <h2>Versions of the agent</h2>
      {status.is_paused ? <p class="warning">Campaigns are paused: {status.pause_reason}</p> : null}
      <table class="list">
        <tbody>
          {status.versions.slice(0, 20).map((version) => (
            <tr key={version.number}>
              <td>
                <strong>{version.number}</strong>
              </td>
              <td>{version.is_active ? <span class="badge idle">in use</span> : version.number === status.canary ? <span class="badge running">canary</span> : ""}</td>
              <td class="main" dir="auto">
                {words(version.trigger)} by {version.author.replace(/^cli:/, "")}
              </td>
              <td class="number">
                <Age time={version.time} />
              </td>
              <td class="number">
                {version.is_active || !mayAct("operator") ? null : chosen.value === version.number ? (
                  <Button kind="danger" onClick={() => void rollBack(version.number)}>
                    Restore {version.number}
                  </Button>
                ) : (
                  <Button kind="quiet" onClick={() => (chosen.value = version.number)}>
                    Restore…
                  </Button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function CampaignPage({ id }: { id: string }) {
  const { value, error, load } = useResource<CampaignDetail>(
    `/v1/mainspring/campaigns/${encodeURIComponent(id)}`,
    (session) => session.origin === "campaign",
  );
  useLayoutEffect(() => usePageKeys(onKey), []);
  const detail = value.value;
  const scores = useMemo(() => (detail === null ? null : scoresOf(detail)), [detail]);
  if (error.value !== null) return <main class="page"><Failure error={error.value} onRetry={() => void load()} /></main>;
  if (detail === null || scores === null) return <main class="page"><Loading what="the campaign" /></main>;
  const { campaign, recommended } = detail;
  return (
    <main class="page">
      <p class="crumbs">
        <a href={link("runs", "campaigns")}>Campaigns</a>
      </p>
      <div class="page-head column">
        <h1 dir="auto">
          {campaign.suite}
          {campaign.track === null ? "" : `: ${campaign.track}`}
        </h1>
        <p class="facts">
          <RunBadge status={campaign.status} />
          <span>{campaign.preset}</span>
          <span>
            {campaign.proposals} proposals, {count(campaign.trials)} trials
          </span>
          <span>{dollars(Number(campaign.cost_usd))}</span>
          <span>
            started <Age time={campaign.time} isSentence />
          </span>
          <a href={link("sessions", campaign.session_id)}>its log</a>
          <CopyButton text={campaign.id} what="id" />
          <CopyButton text={`mainspring evolve show ${campaign.id}`} what="CLI" />
        </p>
      </div>
      <section class={`verdict ${campaign.status === "promoted" ? "good" : campaign.status === "running" ? "" : "bad"}`} aria-label="Result">
        <h2>{campaign.status === "promoted" ? "A change was proved" : campaign.status === "running" ? "Looking for a change" : words(campaign.status)}</h2>
        {campaign.reason ? <p>{campaign.reason}</p> : null}
        {recommended?.reason ? <p class="muted" dir="auto">Why this track: {recommended.reason}</p> : null}
      </section>
      {scores.xs.length > 1 ? (
        <section aria-label="Scores">
          <h2>Share of cases that pass, over metric calls</h2>
          <Plot xs={scores.xs} xName="metric calls" series={scores.series} label="Scores over metric calls" />
        </section>
      ) : null}
      {detail.decisions.length > 0 ? (
        <section aria-label="Decisions on sealed cases">
          <h2>What the sealed cases decided</h2>
          {detail.decisions.map((item) => (
            <div class="decision">
              <RunBadge status={item.gate.decision === "promote" ? "promoted" : item.gate.decision === "refuse" ? "refused" : "undecided"} />
              <Interval gate={item.gate} />
              <span dir="auto">{item.gate.reason}</span>
            </div>
          ))}
        </section>
      ) : null}
      {detail.steps.length > 0 ? (
        <section aria-label="What was tried">
          <h2>What was tried</h2>
          {detail.steps.map((step) => (
            <details class={`case ${step.is_kept ? "" : "failed"}`}>
              <summary>
                <RunBadge status={step.is_kept ? "kept" : "refused"} />
                <strong>{step.track}</strong>
                <span dir="auto">{step.reason}</span>
                {step.score === undefined ? null : <span class="muted">{percent(step.score)} pass</span>}
              </summary>
              {step.diff ? <Terminal text={step.diff} /> : <p class="muted">no change to show</p>}
            </details>
          ))}
        </section>
      ) : null}
      <Promotion detail={detail} onDone={() => void load()} />
      <Versions />
      {detail.signals.length > 0 ? (
        <details class="case">
          <summary>
            <strong>What was measured</strong> <span class="muted">{detail.signals.length} signals</span>
          </summary>
          <dl class="payload">
            {detail.signals.map((item) => (
              <>
                <dt>{words(item.name)}</dt>
                <dd>
                  {item.value.toFixed(2)}
                  {item.threshold !== undefined && item.value > item.threshold ? <span class="badge failed">above {item.threshold}</span> : null}
                </dd>
              </>
            ))}
          </dl>
        </details>
      ) : null}
    </main>
  );
}

function onKey(event: KeyboardEvent): boolean {
  if (event.key !== "Escape") return false;
  go(link("runs", "campaigns"));
  return true;
}
