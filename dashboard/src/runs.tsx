// Runs of workflows, campaigns and evals: three lists with the same columns.

import { useLayoutEffect } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { count, dollars } from "./format";
import { useResource } from "./resource";
import { go, link, place, setQuery, usePageKeys } from "./state";
import type { CampaignLine, EvalRunLine, Page, WorkflowRunLine } from "./types";
import { Age, CopyButton, Empty, Failure, Loading, Tabs } from "./ui";

const KINDS = { workflows: "Workflows", evals: "Evals", campaigns: "Campaigns" } as const;
type Kind = keyof typeof KINDS;
const CLI: Record<Kind, string> = {
  workflows: "mainspring workflow runs",
  evals: "mainspring eval ls",
  campaigns: "mainspring evolve history",
};
const PAGE = 50;

const TONES: Record<string, string> = {
  completed: "idle",
  passed: "idle",
  promoted: "idle",
  running: "running",
  pending: "running",
  paused: "waiting",
  waiting: "waiting",
  failed: "failed",
  error: "failed",
  cancelled: "ended",
  skipped: "ended",
  refused: "ended",
};

export function RunBadge({ status }: { status: string }) {
  return <span class={`badge ${TONES[status] ?? "ended"}`}>{status}</span>;
}

/** A page of a list, its states, and a table with a row for each item. */
function RunTable<T extends { id: string }>(props: {
  path: string;
  concerns: (origin: string) => boolean;
  heads: readonly [string, string][];
  href: (item: T) => string;
  cells: (item: T) => ComponentChildren;
  empty: ComponentChildren;
}) {
  const page = place.value.query.get("page");
  const { value, error, load } = useResource<Page<T>>(
    props.path,
    (session) => props.concerns(session.origin),
    { limit: PAGE, page },
  );
  useLayoutEffect(() => usePageKeys(onKey), []);
  if (error.value !== null) return <Failure error={error.value} onRetry={() => void load()} />;
  if (value.value === null) return <Loading what="runs" />;
  const { data, next_page } = value.value;
  if (data.length === 0) return <>{props.empty}</>;
  return (
    <>
      <div class="scroll-x" tabIndex={0} role="region" aria-label="Runs">
        <table class="list">
          <thead>
            <tr>
              {props.heads.map(([text, kind]) => (
                <th class={kind}>{text}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {data.map((item) => (
              <tr key={item.id} data-href={props.href(item)}>
                {props.cells(item)}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="list-end">
        {page !== null ? (
          <button type="button" class="button plain" onClick={() => setQuery({ page: null })}>
            Newest
          </button>
        ) : null}
        {next_page !== null ? (
          <button type="button" class="button plain" onClick={() => setQuery({ page: next_page })}>
            Older
          </button>
        ) : null}
      </p>
    </>
  );
}

/** j and k move, Enter opens: a row has the focus by its link. */
function onKey(event: KeyboardEvent): boolean {
  if (event.key !== "j" && event.key !== "k" && event.key !== "Escape") return false;
  if (event.key === "Escape") {
    go(link("sessions"));
    return true;
  }
  const links = [...document.querySelectorAll<HTMLElement>("table.list tbody tr a:first-of-type")];
  const at = links.findIndex((item) => item === document.activeElement);
  const next = event.key === "j" ? Math.min(links.length - 1, at + 1) : Math.max(0, at - 1);
  links[next]?.focus();
  return true;
}

function progress(run: WorkflowRunLine): string {
  const done = (run.nodes["completed"] ?? 0) + (run.nodes["skipped"] ?? 0);
  const failed = run.nodes["failed"] ?? 0;
  return `${done} of ${Math.max(run.node_count, done)} nodes${failed ? `, ${failed} failed` : ""}`;
}

function Workflows() {
  const href = (run: WorkflowRunLine): string => link("runs", "workflows", run.id);
  return (
    <RunTable<WorkflowRunLine>
      path="/v1/mainspring/workflow_runs"
      concerns={(origin) => origin === "workflow" || origin === "user" || origin === "api"}
      heads={[["State", ""], ["Workflow", ""], ["Progress", "wide"], ["Cost", "number"], ["Changed", "number"]]}
      href={href}
      cells={(run) => (
        <>
          <td>
            <RunBadge status={run.waiting.length > 0 ? "waiting" : run.status} />
          </td>
          <td class="main">
            <a href={href(run)} dir="auto">
              {run.workflow}
            </a>
            <span class="activity" dir="auto">
              {run.error ?? (run.waiting.length > 0 ? `waits at ${run.waiting.join(", ")}` : progress(run))}
            </span>
          </td>
          <td class="wide">
            <Meter parts={run.nodes} total={run.node_count} />
          </td>
          <td class="number">{dollars(Number(run.cost_usd))}</td>
          <td class="number">
            <Age time={run.updated_at ?? run.created_at} />
          </td>
        </>
      )}
      empty={
        <Empty title="No workflow has run yet">
          <p>A workflow runs agents and programs in an order that you write down, with gates at which a person decides.</p>
          <pre tabIndex={0}>mainspring workflow run NAME</pre>
        </Empty>
      }
    />
  );
}

/** How many of all have which state. */
export function Meter({ parts, total }: { parts: { [status: string]: number }; total: number }) {
  const order = ["completed", "passed", "failed", "error", "running", "waiting", "skipped", "cancelled"];
  const sum = Math.max(total, Object.values(parts).reduce((a, b) => a + b, 0), 1);
  let x = 0;
  const text = order.filter((name) => parts[name]).map((name) => `${parts[name]} ${name}`).join(", ");
  return (
    <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label={text || "nothing yet"}>
      <title>{text}</title>
      <rect x={0} y={0} width={100} height={6} class="ground" />
      {order.map((name) => {
        const width = ((parts[name] ?? 0) / sum) * 100;
        if (width === 0) return null;
        x += width;
        return <rect key={name} x={x - width} y={0} width={width} height={6} class={TONES[name] ?? "ended"} />;
      })}
    </svg>
  );
}

function Evals() {
  const href = (run: EvalRunLine): string => link("runs", "evals", run.id);
  return (
    <RunTable<EvalRunLine>
      path="/v1/mainspring/eval_runs"
      concerns={(origin) => origin === "eval" || origin === "grader"}
      heads={[["Verdict", ""], ["Suite", ""], ["Trials", "wide"], ["Cost", "number"], ["Started", "number"]]}
      href={href}
      cells={(run) => (
        <>
          <td>
            <RunBadge status={run.verdict} />
          </td>
          <td class="main">
            <a href={href(run)} dir="auto">
              {run.suite}
            </a>
            <span class="activity" dir="auto">
              {`${count(run.passed)} of ${count(run.trials)} trials passed${run.errors ? `, ${run.errors} errors` : ""} · ${run.model}`}
            </span>
          </td>
          <td class="wide">
            <Meter parts={{ passed: run.passed, failed: run.failed, error: run.errors }} total={run.trials} />
          </td>
          <td class="number">{dollars(Number(run.cost_usd))}</td>
          <td class="number">
            <Age time={run.started_at} />
          </td>
        </>
      )}
      empty={
        <Empty title="No suite has run yet">
          <p>A suite runs your agent on cases, and says whether a change made it better or worse.</p>
          <pre tabIndex={0}>{"mainspring eval init\nmainspring eval run"}</pre>
        </Empty>
      }
    />
  );
}

function Campaigns() {
  const href = (run: CampaignLine): string => link("runs", "campaigns", run.id);
  return (
    <RunTable<CampaignLine>
      path="/v1/mainspring/campaigns"
      concerns={(origin) => origin === "campaign"}
      heads={[["Result", ""], ["Campaign", ""], ["Tried", "wide"], ["Cost", "number"], ["Started", "number"]]}
      href={href}
      cells={(run) => (
        <>
          <td>
            <RunBadge status={run.status} />
          </td>
          <td class="main">
            <a href={href(run)} dir="auto">
              {run.suite}
              {run.track === null ? "" : `: ${run.track}`}
            </a>
            <span class="activity" dir="auto">
              {run.reason || "is looking for a change that helps"}
            </span>
          </td>
          <td class="wide">{`${run.proposals} proposals, ${count(run.trials)} trials`}</td>
          <td class="number">{dollars(Number(run.cost_usd))}</td>
          <td class="number">
            <Age time={run.time} />
          </td>
        </>
      )}
      empty={
        <Empty title="No campaign has run yet">
          <p>A campaign finds out what your agent fails at, tries changes, and proves on sealed cases which of them help.</p>
          <pre tabIndex={0}>mainspring evolve run</pre>
        </Empty>
      }
    />
  );
}

export function RunsPage({ kind }: { kind: string | undefined }) {
  const chosen: Kind = kind !== undefined && kind in KINDS ? (kind as Kind) : "workflows";
  return (
    <main class="page">
      <div class="page-head">
        <h1>Runs</h1>
        <Tabs label="Kinds of runs" names={KINDS} chosen={chosen} onChoose={(name) => go(link("runs", name))} />
        <CopyButton text={CLI[chosen]} what="CLI" />
      </div>
      {chosen === "workflows" ? <Workflows /> : chosen === "evals" ? <Evals /> : <Campaigns />}
    </main>
  );
}
