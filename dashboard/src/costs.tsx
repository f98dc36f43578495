// What a session has cost, by cause.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "./api";
import { count, dollars, tokens, words } from "./format";
import type { SessionModel } from "./model";
import type { Bill, CostReport } from "./types";
import { CopyButton, Empty, Failure, Loading } from "./ui";

const CAUSES = { purpose: "Purpose", model: "Model", outcome: "Outcome" } as const;
type Cause = keyof typeof CAUSES;

function BillRow({ bill, share, by }: { bill: Bill; share: number; by: Cause }) {
  const { usage } = bill;
  const cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
  const name = by === "purpose" ? (bill.key === "turn" ? "the conversation" : words(bill.key)) : bill.key;
  return (
    <tr>
      <td class="main" dir="auto">
        {name}
        <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
          <rect x={0} y={0} width={100} height={6} class="ground" />
          <rect x={0} y={0} width={Math.max(0.5, share * 100)} height={6} class="running" />
        </svg>
      </td>
      <td class="number">
        {count(bill.calls)}
        {bill.failed ? <span class="muted"> ({bill.failed} failed)</span> : null}
      </td>
      <td class="number wide">
        {tokens(usage.input_tokens + cached)}
        {cached > 0 ? <span class="muted"> ({tokens(usage.cache_read_input_tokens)} from the cache)</span> : null}
      </td>
      <td class="number wide">{tokens(usage.output_tokens)}</td>
      <td class="number">{dollars(Number(bill.cost_usd))}</td>
    </tr>
  );
}

function CostTable({ id, by, version }: { id: string; by: Cause; version: number }) {
  const report = useSignal<CostReport | null>(null);
  const failure = useSignal<unknown>(null);
  const load = (): void => {
    failure.value = null;
    get<CostReport>(`/v1/sessions/${encodeURIComponent(id)}/cost`, { by })
      .then((answer) => (report.value = answer))
      .catch((error: unknown) => (failure.value = error));
  };
  useEffect(load, [id, by, version]);
  if (failure.value !== null) return <Failure error={failure.value} onRetry={load} />;
  if (report.value === null) return <Loading what="costs" />;
  const { data, total } = report.value;
  if (data.length === 0) return <Empty title="Nothing was spent yet" />;
  const weight = (bill: Bill): number => Number(bill.cost_usd) || 0;
  const isFree = weight(total) === 0;
  const size = (bill: Bill): number => (isFree ? bill.usage.input_tokens + bill.usage.output_tokens : weight(bill));
  return (
    <section aria-label={`Costs by ${CAUSES[by]}`}>
      <table class="list">
        <thead>
          <tr>
            <th>{CAUSES[by]}</th>
            <th class="number">Calls</th>
            <th class="number wide">Tokens in</th>
            <th class="number wide">Tokens out</th>
            <th class="number">Cost</th>
          </tr>
        </thead>
        <tbody>
          {[...data]
            .sort((a, b) => size(b) - size(a))
            .map((bill) => (
              <BillRow key={bill.key} bill={bill} by={by} share={size(bill) / (size(total) || 1)} />
            ))}
        </tbody>
      </table>
    </section>
  );
}

export function CostView({ model }: { model: SessionModel }) {
  const session = model.session.value;
  const version = Math.round((session?.cost_usd ?? 0) * 1e6) + (session?.output_tokens ?? 0);
  return (
    <div class="log-list costs" tabIndex={0} role="region" aria-label="Costs">
      <p class="bar">
        <span>
          <strong>{dollars(session?.cost_usd ?? 0)}</strong> in all
        </span>
        <CopyButton text={`mainspring cost --session ${model.id} --by purpose`} what="CLI" />
      </p>
      {(Object.keys(CAUSES) as Cause[]).map((by) => (
        <CostTable key={by} id={model.id} by={by} version={version} />
      ))}
    </div>
  );
}
