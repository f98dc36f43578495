// What the model was given at each of its calls, and why: rebuilt from the log by the server.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "./api";
import { count, words } from "./format";
import { JsonText } from "./payload";
import type { Json, Page, Shot } from "./types";
import { Button, CopyButton, Empty, Failure, Loading } from "./ui";

const PAGE = 50;

function partsOf(shot: Shot): [string, number][] {
  return Object.entries(shot.parts)
    .filter((part): part is [string, number] => typeof part[1] === "number" && part[1] > 0)
    .sort((a, b) => b[1] - a[1]);
}

function TokenMap({ shot }: { shot: Shot }) {
  const parts = partsOf(shot).filter(([name]) => name !== "total");
  const total = parts.reduce((sum, [, value]) => sum + value, 0) || 1;
  return (
    <div class="token-map">
      <svg viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label="Tokens by part">
        {
          parts.reduce<{ x: number; bars: preact.JSX.Element[] }>(
            ({ x, bars }, [name, value], index) => {
              const width = (value / total) * 1000;
              bars.push(
                <rect x={x} y={0} width={Math.max(1, width - 1)} height={24} class={`part part-${index % 6}`}>
                  <title>{`${words(name)}: ${count(value)} tokens`}</title>
                </rect>,
              );
              return { x: x + width, bars };
            },
            { x: 0, bars: [] },
          ).bars
        }
      </svg>
      <ul class="legend">
        {parts.map(([name, value], index) => (
          <li class={`part-${index % 6}`}>{`${words(name)} ${count(value)}`}</li>
        ))}
      </ul>
    </div>
  );
}

export function XrayView({ id }: { id: string }) {
  const shots = useSignal<Shot[]>([]);
  const next = useSignal<string | null>(null);
  const failure = useSignal<unknown>(null);
  const isLoading = useSignal(true);
  const chosen = useSignal<Shot | null>(null);
  const path = `/v1/sessions/${encodeURIComponent(id)}/context`;
  const load = async (): Promise<void> => {
    isLoading.value = true;
    failure.value = null;
    try {
      const page = await get<Page<Shot>>(path, { limit: PAGE, page: next.value });
      shots.value = [...shots.value, ...page.data];
      next.value = page.next_page;
    } catch (error) {
      failure.value = error;
    } finally {
      isLoading.value = false;
    }
  };
  const open = async (call: number): Promise<void> => {
    try {
      chosen.value = (await get<Page<Shot>>(path, { call })).data[0] ?? null;
    } catch (error) {
      failure.value = error;
    }
  };
  useEffect(() => void load(), [id]);
  if (failure.value !== null) return <Failure error={failure.value} onRetry={() => void load()} />;
  if (isLoading.value && shots.value.length === 0) return <Loading what="the requests" />;
  if (shots.value.length === 0) return <Empty title="The model was not asked yet" />;
  return (
    <div class="xray log-list" tabIndex={0} role="region" aria-label="Requests to the model">
      <CopyButton text={`mainspring context xray ${id}`} what="CLI" />
      <ol>
        {shots.value.map((shot) => (
          <li key={shot.call}>
            <header>
              <button type="button" class="button quiet" aria-expanded={chosen.value?.call === shot.call} onClick={() => void open(shot.call)}>
                Call {shot.call}
              </button>
              <span>{shot.model}</span>
              <span class="muted">
                {shot.messages} messages, {shot.kept_messages} as before
                {shot.tokens_are_measured ? "" : ", tokens estimated"}
              </span>
              {shot.cache_break ? <span class="badge failed">cache break: {shot.cache_break}</span> : null}
            </header>
            <TokenMap shot={shot} />
            {chosen.value?.call === shot.call ? (
              <>
                <h4>Sources</h4>
                <JsonText value={chosen.value.sources as unknown as Json} />
                <h4>Request</h4>
                <JsonText value={chosen.value.request as unknown as Json} />
              </>
            ) : null}
          </li>
        ))}
      </ol>
      {next.value !== null ? (
        <Button disabled={isLoading.value} onClick={() => void load()}>
          More calls
        </Button>
      ) : null}
    </div>
  );
}
