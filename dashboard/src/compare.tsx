// Two sessions side by side: two attempts at one task, a session and its fork, two trials of a case.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo } from "preact/hooks";
import { RowBuilder } from "./conversation";
import { EventDialog } from "./event-dialog";
import { dollars, seconds, shortened, tokens } from "./format";
import { onSessions } from "./live";
import { SessionModel } from "./model";
import { RowView, type RowActions } from "./rows";
import { go, link, usePageKeys } from "./state";
import type { LogEvent } from "./types";
import { Button, Failure, Loading, StatusBadge } from "./ui";

const MAX_ROWS = 150;

function useSession(id: string): SessionModel {
  const model = useMemo(() => new SessionModel(id), [id]);
  useEffect(() => {
    void model.open(null);
    const stop = onSessions(
      (sessions) => {
        const own = sessions.find((item) => item.id === id);
        if (own) model.changed(own);
      },
      () => void model.refresh(),
    );
    return () => {
      stop();
      model.close();
    };
  }, [model]);
  return model;
}

function Column({ model }: { model: SessionModel }) {
  const builder = useMemo(() => new RowBuilder(), [model]);
  const rows = useComputed(() => builder.build(model.events.value, null, false).slice(-MAX_ROWS));
  const dialog = useSignal<LogEvent | null>(null);
  const actions = useMemo<RowActions>(
    () => ({ sessionId: model.id, onEvent: (event) => (dialog.value = event), onEdit: null }),
    [model],
  );
  const session = model.session.value;
  if (model.error.value !== null) return <Failure error={model.error.value} />;
  if (session === null) return <Loading what="the session" />;
  return (
    <section class="compare-column" aria-label={session.title ?? session.id}>
      <h2 dir="auto">
        <a href={link("sessions", session.id)}>{shortened(session.title ?? session.id, 90)}</a>
      </h2>
      <p class="facts">
        <StatusBadge session={session} />
        <span>{session.agent_name}</span>
        <span>{dollars(session.cost_usd)}</span>
        <span>
          {tokens(session.input_tokens)} in, {tokens(session.output_tokens)} out
        </span>
      </p>
      <div class="conversation" tabIndex={0} role="log" aria-live="off" aria-label="Conversation">
        {model.hasBefore.value ? <p class="muted">The newest part; the session's own page has all of it.</p> : null}
        {rows.value.map((row) => (
          <RowView key={row.key} row={row} actions={actions} />
        ))}
      </div>
      {dialog.value !== null ? <EventDialog sessionId={model.id} event={dialog.value} onClose={() => (dialog.value = null)} /> : null}
    </section>
  );
}

interface Facts {
  turns: number;
  calls: number;
  failed: number;
  seconds: number;
}

function factsOf(events: readonly LogEvent[]): Facts {
  const is = (event: LogEvent, type: string): boolean => event.type === type;
  const first = events[0];
  const last = events[events.length - 1];
  return {
    turns: events.filter((event) => is(event, "span.model_request_end")).length,
    calls: events.filter((event) => event.type.endsWith("tool_use")).length,
    failed: events.filter((event) => event.type.endsWith("tool_result") && event.payload["is_error"] === true).length,
    seconds: first && last ? (Date.parse(last.time) - Date.parse(first.time)) / 1000 : 0,
  };
}

function Difference({ models }: { models: readonly SessionModel[] }) {
  const facts = models.map((model) => factsOf(model.events.value));
  const rows: [string, (item: Facts) => string][] = [
    ["model calls", (item) => String(item.turns)],
    ["tool calls", (item) => String(item.calls)],
    ["failed", (item) => String(item.failed)],
    ["time", (item) => seconds(item.seconds)],
  ];
  return (
    <dl class="difference">
      {rows.map(([name, text]) => (
        <div>
          <dt>{name}</dt>
          <dd>{facts.map(text).join(" and ")}</dd>
        </div>
      ))}
    </dl>
  );
}

export function ComparePage({ first, second }: { first: string; second: string }) {
  const left = useSession(first);
  const right = useSession(second);
  useLayoutEffect(
    () =>
      usePageKeys((event) => {
        if (event.key !== "Escape") return false;
        go(link("sessions"));
        return true;
      }),
    [],
  );
  const isWhole = !left.hasBefore.value && !right.hasBefore.value;
  return (
    <main class="page session wide-page">
      <div class="page-head">
        <h1>Side by side</h1>
        <Button kind="quiet" onClick={() => go(link("compare", second, first))}>
          Swap
        </Button>
        {isWhole ? <Difference models={[left, right]} /> : <p class="muted">Figures of long sessions are on their own pages.</p>}
      </div>
      <div class="compare">
        <Column key={first} model={left} />
        <Column key={second} model={right} />
      </div>
    </main>
  );
}
