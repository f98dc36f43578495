// One run of a workflow: its graph while it runs, its gates, and the output of each node.

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { explain, mayAct, me, post } from "./api";
import { clock, dollars, seconds } from "./format";
import { layout, NODE_HEIGHT, NODE_WIDTH } from "./graph";
import { Terminal } from "./payload";
import { useResource } from "./resource";
import { RunBadge } from "./runs";
import { go, link, toast, usePageKeys } from "./state";
import type { WorkflowGate, WorkflowNode, WorkflowRun } from "./types";
import { Age, Button, CopyButton, Failure, Loading } from "./ui";

const ENDED = ["completed", "failed", "cancelled"];

function took(node: WorkflowNode): string {
  if (node.started_at === null) return "";
  const end = node.ended_at === null ? clock.value : Date.parse(node.ended_at);
  return seconds(Math.max(0, (end - Date.parse(node.started_at)) / 1000));
}

function short(text: string, chars: number): string {
  return text.length <= chars ? text : `${text.slice(0, chars - 1)}…`;
}

function Graph(props: { nodes: readonly WorkflowNode[]; chosen: string | null; onChoose: (node: string) => void }) {
  const { places, edges, width, height } = useMemo(() => layout(props.nodes), [props.nodes]);
  return (
    <div class="scroll-x graph" tabIndex={0} role="region" aria-label="Graph of the run">
      <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="group" aria-label="Nodes">
        {edges.map((edge) => (
          <path key={`${edge.from}>${edge.to}`} d={edge.path} class={`edge ${edge.isDone ? "done" : ""}`} />
        ))}
        {places.map(({ node, x, y }) => (
          <g
            key={node.node}
            class={`node ${node.status}${props.chosen === node.node ? " chosen" : ""}`}
            tabIndex={0}
            role="button"
            aria-label={`${node.node}, ${node.kind}, ${node.status}`}
            transform={`translate(${x} ${y})`}
            onClick={() => props.onChoose(node.node)}
            onKeyDown={(event) => {
              if (event.key === "Enter" || event.key === " ") {
                event.preventDefault();
                props.onChoose(node.node);
              }
            }}
          >
            <title>{`${node.node} (${node.kind}): ${node.status}`}</title>
            <rect width={NODE_WIDTH} height={NODE_HEIGHT} rx={8} />
            <circle cx={16} cy={NODE_HEIGHT / 2} r={5} />
            <text x={30} y={19} class="name">
              {short(node.node, 19)}
            </text>
            <text x={30} y={34} class="about">
              {short(`${node.kind} · ${node.status}${took(node) ? ` · ${took(node)}` : ""}`, 26)}
            </text>
          </g>
        ))}
      </svg>
    </div>
  );
}

function Gate({ runId, gate, onDone }: { runId: string; gate: WorkflowGate; onDone: () => void }) {
  const text = useSignal("");
  const chosen = useSignal<string | null>(null);
  const isBusy = useSignal(false);
  const respond = async (decision: string): Promise<void> => {
    isBusy.value = true;
    const words = text.value.trim();
    try {
      await post(`/v1/mainspring/workflow_runs/${encodeURIComponent(runId)}/respond`, {
        decision,
        node: gate.node,
        ...(words ? { text: words } : {}),
      });
      toast(`answered: ${decision}`);
      onDone();
    } catch (error) {
      toast(explain(error), true);
    } finally {
      isBusy.value = false;
      chosen.value = null;
    }
  };
  return (
    <article class="approval" aria-label={`The gate ${gate.node} waits`}>
      <header>
        <span class="badge waiting">gate</span>
        <strong dir="auto">{gate.question}</strong>
        <span class="muted">{gate.node}</span>
      </header>
      {gate.evidence.map((item) => (
        <details open>
          <summary>{item.title}</summary>
          <Terminal text={item.text ?? ""} />
        </details>
      ))}
      {mayAct("user") ? (
        <div class="actions">
          {chosen.value === null ? (
            gate.choices.map((choice, index) => (
              <Button kind={index === 0 ? "primary" : choice === "reject" ? "danger" : "plain"} onClick={() => (chosen.value = choice)}>
                {choice}
              </Button>
            ))
          ) : (
            <>
              <Button kind="primary" disabled={isBusy.value} onClick={() => void respond(chosen.value ?? "")}>
                Send: {chosen.value}
              </Button>
              <Button onClick={() => (chosen.value = null)}>Not yet</Button>
            </>
          )}
          <input
            class="reason"
            aria-label="What to add to the answer"
            placeholder="What to add to the answer"
            value={text.value}
            onInput={(event) => (text.value = event.currentTarget.value)}
          />
        </div>
      ) : (
        <p class="muted">Answering needs the role user.</p>
      )}
    </article>
  );
}

function Steering({ run, onDone }: { run: WorkflowRun; onDone: () => void }) {
  if (!mayAct("user") || (ENDED.includes(run.status) && run.status !== "failed")) return null;
  const steer = async (action: string): Promise<void> => {
    try {
      await post(`/v1/mainspring/workflow_runs/${encodeURIComponent(run.id)}/steer`, { action });
      toast(`${action} was sent`);
    } catch (error) {
      toast(explain(error), true);
    }
    onDone();
  };
  return (
    <>
      {run.status === "running" || run.status === "pending" ? <Button onClick={() => void steer("pause")}>Pause</Button> : run.gates.length > 0 ? null : <Button onClick={() => void steer("resume")}>Resume</Button>}
      {run.status === "failed" ? null : (
        <Button kind="danger" onClick={() => void steer("cancel")}>
          Cancel the run
        </Button>
      )}
    </>
  );
}

function NodeDetail({ run, node, onDone }: { run: WorkflowRun; node: WorkflowNode; onDone: () => void }) {
  const retry = async (action: "retry" | "skip"): Promise<void> => {
    try {
      await post(`/v1/mainspring/workflow_runs/${encodeURIComponent(run.id)}/steer`, { action, node: node.node });
      toast(`${action}: ${node.node}`);
    } catch (error) {
      toast(explain(error), true);
    }
    onDone();
  };
  return (
    <section class="node-detail" aria-label={`The node ${node.node}`}>
      <header>
        <h2 dir="auto">{node.node}</h2>
        <RunBadge status={node.status} />
        <span class="muted">
          {node.kind}
          {node.attempt > 1 ? `, attempt ${node.attempt}` : ""}
          {took(node) ? `, ${took(node)}` : ""}, {dollars(Number(node.cost_usd))}
        </span>
        {node.session_id !== null ? <a href={link("sessions", node.session_id)}>its session</a> : null}
        {mayAct("user") && node.status === "failed" ? (
          <>
            <Button onClick={() => void retry("retry")}>Run it again</Button>
            <Button onClick={() => void retry("skip")}>Skip it</Button>
          </>
        ) : null}
      </header>
      {node.reason ? <p class="muted" dir="auto">{node.reason}</p> : null}
      {node.error ? <Terminal text={node.error} /> : null}
      {node.output ? (
        <>
          <h4>Output</h4>
          <Terminal text={node.output} />
        </>
      ) : (
        <p class="muted">{node.status === "pending" ? "It has not started." : "No output yet."}</p>
      )}
    </section>
  );
}

export function WorkflowRunPage({ id }: { id: string }) {
  const { value, error, load } = useResource<WorkflowRun>(
    `/v1/mainspring/workflow_runs/${encodeURIComponent(id)}`,
    (session) => session.id === id || session.origin === "workflow",
  );
  const chosen = useSignal<string | null>(null);
  useLayoutEffect(() => usePageKeys(onKey), []);
  const run = value.value;
  if (error.value !== null) return <main class="page"><Failure error={error.value} onRetry={() => void load()} /></main>;
  if (run === null) return <main class="page"><Loading what="the run" /></main>;
  const current =
    run.nodes.find((node) => node.node === chosen.value) ??
    run.nodes.find((node) => node.status === "failed") ??
    run.nodes.find((node) => node.status === "waiting") ??
    run.nodes.find((node) => node.status === "running") ??
    run.nodes.filter((node) => node.status === "completed").pop() ??
    run.nodes[0];
  const reload = (): void => void load();
  const status = run.gates.length > 0 ? "waiting" : run.status;
  return (
    <main class="page">
      <p class="crumbs">
        <a href={link("runs", "workflows")}>Workflows</a>
      </p>
      <div class="page-head column">
        <h1 dir="auto">
          {run.workflow}
          {run.arguments ? <span class="muted"> {short(run.arguments, 120)}</span> : null}
        </h1>
        <p class="facts">
          <RunBadge status={status} />
          <span>{dollars(Number(run.cost_usd))}</span>
          <span>
            changed <Age time={run.updated_at ?? run.created_at} isSentence />
          </span>
          <a href={link("sessions", run.id)}>its log</a>
          <CopyButton text={run.id} what="id" />
          <CopyButton text={`mainspring workflow show ${run.id}`} what="CLI" />
          <Steering run={run} onDone={reload} />
        </p>
        {run.changed_since ? <p class="muted">The workflow's files have changed since; this run uses them as they were.</p> : null}
        {run.error ? <p class="failure-text" dir="auto">{run.error}</p> : null}
      </div>
      {run.gates.map((gate) => (
        <Gate key={gate.approval_id} runId={run.id} gate={gate} onDone={reload} />
      ))}
      <Graph nodes={run.nodes} chosen={current?.node ?? null} onChoose={(node) => (chosen.value = node)} />
      {me.value?.is_local && run.status === "paused" && run.gates.length === 0 ? (
        <p class="muted">It waits for a person in one of its sessions, or to be resumed: see the inbox.</p>
      ) : null}
      {current === undefined ? null : <NodeDetail run={run} node={current} onDone={reload} />}
    </main>
  );
}

function onKey(event: KeyboardEvent): boolean {
  if (event.key === "Escape") go(link("runs", "workflows"));
  else if (event.key === "j" || event.key === "k") {
    const nodes = [...document.querySelectorAll<SVGGElement>(".graph .node")];
    const at = nodes.findIndex((item) => item === document.activeElement);
    nodes[Math.max(0, Math.min(nodes.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  } else return false;
  return true;
}
