// Model requests and tool calls over time: a lane for each thread. Time in which nothing happened is
// drawn short. Failures and questions have marks of their own, whatever the scale.

import { useMemo } from "preact/hooks";
import { callState } from "./rows";
import { RowBuilder } from "./conversation";
import { clockTime, seconds } from "./format";
import type { SessionModel } from "./model";
import type { LogEvent } from "./types";
import { Empty } from "./ui";

interface Span {
  lane: number;
  from: number;
  to: number;
  kind: string;
  text: string;
  event: LogEvent;
}

/** A longer gap is drawn as one of this length. */
const GAP_SECONDS = 5;
const MAX_SPANS = 250;
const WIDTH = 1000;
const LANE = 26;

function time(event: LogEvent): number {
  return Date.parse(event.time) / 1000;
}

function spansOf(events: readonly LogEvent[], lanes: string[]): Span[] {
  const spans: Span[] = [];
  const started = new Map<string, LogEvent>();
  const last = events[events.length - 1];
  const end = last === undefined ? 0 : time(last);
  for (const event of events) {
    if (event.type === "span.model_request_start") started.set(event.id, event);
    if (event.type === "span.model_request_end") {
      const start = started.get(String(event.payload["model_request_start_id"]));
      if (start === undefined) continue;
      started.delete(start.id);
      const failed = event.payload["is_error"] === true;
      const text = `${String(start.payload["model"] ?? "model")}, ${seconds(time(event) - time(start))}`;
      spans.push({ lane: lanes.indexOf(event.thread_id), from: time(start), to: time(event), kind: failed ? "failed" : "model", text, event: start });
    }
  }
  for (const start of started.values())
    spans.push({ lane: lanes.indexOf(start.thread_id), from: time(start), to: end, kind: "model", text: "the model works", event: start });
  for (const row of new RowBuilder().build(events, null, false)) {
    if (row.kind === "call") {
      const from = time(row.started ?? row.event);
      const to = row.result === null ? end : time(row.result);
      const state = callState(row);
      const kind = state.name === "failed" || state.name === "waiting" ? state.name : "tool";
      spans.push({ lane: lanes.indexOf(row.event.thread_id), from, to, kind, text: `${String(row.event.payload["name"])}, ${state.text}, ${seconds(to - from)}`, event: row.event });
    } else if (row.kind === "note" && (row.tone === "bad" || row.tone === "money"))
      spans.push({ lane: lanes.indexOf(row.event.thread_id), from: time(row.event), to: time(row.event), kind: "failed", text: row.text, event: row.event });
  }
  return spans.sort((a, b) => a.from - b.from).slice(-MAX_SPANS);
}

/** Positions of moments when gaps are compressed. */
function scale(spans: readonly Span[]): { at: (moment: number) => number; length: number; gaps: { from: number; seconds: number }[] } {
  const edges: { from: number; to: number; start: number }[] = [];
  const gaps: { from: number; seconds: number }[] = [];
  let length = 0;
  for (const span of spans) {
    const last = edges[edges.length - 1];
    if (last !== undefined && span.from - last.to <= GAP_SECONDS) {
      length += Math.max(0, span.to - last.to);
      last.to = Math.max(last.to, span.to);
      continue;
    }
    if (last !== undefined) {
      gaps.push({ from: length, seconds: span.from - last.to });
      length += GAP_SECONDS;
    }
    edges.push({ from: span.from, to: span.to, start: length });
    length += span.to - span.from;
  }
  const at = (moment: number): number => {
    let found = edges[0];
    for (const edge of edges) if (edge.from <= moment) found = edge;
    return found === undefined ? 0 : found.start + Math.min(moment, found.to) - found.from;
  };
  return { at, length: Math.max(length, 0.001), gaps };
}

export function Timeline(props: { model: SessionModel; onEvent: (event: LogEvent) => void }) {
  const { model } = props;
  const events = model.events.value;
  const lanes = useMemo(() => [...new Set(events.map((event) => event.thread_id))], [events]);
  const spans = useMemo(() => spansOf(events, lanes), [events, lanes]);
  const { at, length, gaps } = useMemo(() => scale(spans), [spans]);
  if (spans.length === 0) return <Empty title="Nothing to draw yet" />;
  const x = (value: number): number => (value / length) * (WIDTH - 20) + 10;
  const names = agentNames(events);
  const first = spans[0];
  const last = events[events.length - 1];
  return (
    <div class="timeline">
      <p class="muted">
        {model.hasBefore.value ? "The newest part of a long session. " : ""}
        {gaps.length > 0 ? `${gaps.length} gaps are drawn short. ` : ""}
        A bar opens its event.
      </p>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Timeline">
        <svg viewBox={`0 0 ${WIDTH} ${lanes.length * LANE * 2 + 24}`} role="group" aria-label="Model requests and tool calls">
          {lanes.map((lane, index) => (
            <text x={10} y={index * LANE * 2 + 12} class="lane">
              {lane === model.mainThread ? "main" : (names.get(lane) ?? `thread ${lane.slice(-6)}`)}
            </text>
          ))}
          {first === undefined || last === undefined ? null : (
            <>
              <text x={10} y={lanes.length * LANE * 2 + 16} class="lane">
                {clockTime(first.event.time)}
              </text>
              <text x={WIDTH - 10} y={lanes.length * LANE * 2 + 16} class="lane" text-anchor="end">
                {clockTime(last.time)}
              </text>
            </>
          )}
          {gaps.map((gap) => (
            <g>
              <rect x={x(gap.from)} y={0} width={Math.max(2, x(gap.from + GAP_SECONDS) - x(gap.from))} height={lanes.length * LANE * 2} class="gap" />
              <title>{`${seconds(gap.seconds)} in which nothing happened`}</title>
            </g>
          ))}
          {spans.map((span) => (
            <rect
              key={`${span.event.seq}-${span.kind}`}
              class={`span ${span.kind}`}
              x={x(at(span.from))}
              y={span.lane * LANE * 2 + (span.kind === "model" ? 18 : 32)}
              width={Math.max(4, x(at(span.to)) - x(at(span.from)))}
              height={12}
              rx={2}
              tabIndex={0}
              role="button"
              aria-label={`${span.text} at ${clockTime(span.event.time)}`}
              onClick={() => props.onEvent(span.event)}
              onKeyDown={(event) => {
                if (event.key === "Enter") props.onEvent(span.event);
              }}
            >
              <title>{`${span.text}\n${clockTime(span.event.time)}`}</title>
            </rect>
          ))}
        </svg>
      </div>
      <ul class="legend">
        <li class="model">model</li>
        <li class="tool">tool</li>
        <li class="waiting">asks</li>
        <li class="failed">failed</li>
      </ul>
    </div>
  );
}

function agentNames(events: readonly LogEvent[]): Map<string, string> {
  const created = events.filter((event) => event.type === "session.thread_created");
  return new Map(created.map((event) => [String(event.payload["session_thread_id"]), String(event.payload["agent_name"])]));
}
