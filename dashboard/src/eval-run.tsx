// One eval run: the verdict first, then why, then every case with the sessions of its trials.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { me } from "./api";
import { count, dollars, seconds } from "./format";
import { useResource } from "./resource";
import { Meter, RunBadge } from "./runs";
import { go, link, usePageKeys } from "./state";
import type { EvalCase, EvalRunDetail, EvalTrial } from "./types";
import { Age, CopyButton, Failure, Loading } from "./ui";

const MAX_CASES = 300;

function percent(value: number): string {
  return `${(value * 100).toFixed(value === 0 || value === 1 ? 0 : 1)} %`;
}

function Verdict({ detail }: { detail: EvalRunDetail }) {
  const { run, gate } = detail;
  const isGood = gate === null ? run.verdict === "passed" : gate.is_open;
  const isOpen = run.verdict === "running" || (gate === null && run.verdict === "no verdict");
  const text =
    run.verdict === "running"
      ? "Still running"
      : gate === null
        ? run.verdict === "passed" ? "Every trial passed" : run.verdict === "failed" ? "Some trials failed" : "No verdict"
        : gate.is_open ? "The gate is open" : "The gate is closed";
  return (
    <section class={`verdict ${isOpen ? "" : isGood ? "good" : "bad"}`} aria-label="Verdict">
      <h2>{text}</h2>
      {gate?.reasons.map((reason) => <p>{reason}</p>)}
      <p class="figures">
        <strong>{percent(detail.pass_rate)}</strong> of the cases pass (95 %: {percent(detail.low)} to {percent(detail.high)});{" "}
        {count(run.passed)} of {count(run.trials)} trials passed, {run.failed} failed
        {run.errors ? `, ${run.errors} ended with errors` : ""}
      </p>
      {detail.comparison === null ? null : (
        <p>
          Compared with{" "}
          <a href={link("runs", "evals", detail.compared_with ?? "")}>{gate?.baseline_run_id ? "the baseline" : "the run before"}</a>:{" "}
          {detail.comparison}
        </p>
      )}
      {gate !== null && gate.notes.length > 0 ? (
        <details>
          <summary>What this gate can tell</summary>
          {gate.notes.map((note) => (
            <p class="muted">{note}</p>
          ))}
        </details>
      ) : null}
    </section>
  );
}

function Trial({ trial }: { trial: EvalTrial }) {
  return (
    <li>
      <header>
        <RunBadge status={trial.outcome} />
        <a href={link("sessions", trial.session_id)}>trial {trial.trial}</a>
        <span class="muted">
          {seconds(trial.seconds)}, {trial.turns} turns, {trial.tool_calls} calls, {dollars(Number(trial.cost_usd))}
          {trial.from_run ? ", reused from an earlier run" : ""}
        </span>
        {me.value?.is_local ? null : (
          <CopyButton text={`mainspring log show ${trial.session_id}`} what="CLI" />
        )}
      </header>
      {trial.reasons.map((reason) => (
        <p class="reason" dir="auto">
          {reason}
        </p>
      ))}
    </li>
  );
}

/** A case with one trial needs no list of trials. */
function SingleCase({ item, trial }: { item: EvalCase; trial: EvalTrial }) {
  return (
    <article class={`case single ${trial.outcome === "passed" ? "" : "failed"}`}>
      <CaseHead item={item} status={trial.outcome}>
        <a href={link("sessions", trial.session_id)}>session</a>
        <span class="muted">
          {seconds(trial.seconds)}, {trial.turns} turns, {trial.tool_calls} calls
        </span>
      </CaseHead>
      {trial.reasons.map((reason) => (
        <p class="reason" dir="auto">
          {reason}
        </p>
      ))}
    </article>
  );
}

function CaseHead(props: { item: EvalCase; status: string; children: ComponentChildren }) {
  const { item } = props;
  return (
    <span class="case-head">
      <RunBadge status={props.status} />
      <strong dir="auto">{item.case_id}</strong>
      {item.change ? <span class={`badge ${item.change === "better" ? "idle" : "failed"}`}>{item.change}</span> : null}
      {item.tags.slice(0, 4).map((tag) => (
        <span class="tag">{tag}</span>
      ))}
      {props.children}
    </span>
  );
}

function Case({ item }: { item: EvalCase }) {
  const passed = item.trials.filter((trial) => trial.outcome === "passed").length;
  const isFine = passed === item.trials.length;
  const [first] = item.trials;
  if (first !== undefined && item.trials.length === 1) return <SingleCase item={item} trial={first} />;
  const isError = item.trials.every((trial) => trial.outcome === "error");
  return (
    <details class={`case ${isFine ? "" : "failed"}`} open={!isFine}>
      <summary>
        <CaseHead item={item} status={isFine ? "passed" : isError ? "error" : "failed"}>
          <span class="muted">
            {passed} of {item.trials.length} passed
          </span>
        </CaseHead>
      </summary>
      <ul>
        {item.trials.map((trial) => (
          <Trial key={trial.trial} trial={trial} />
        ))}
      </ul>
    </details>
  );
}

export function EvalRunPage({ id }: { id: string }) {
  const { value, error, load } = useResource<EvalRunDetail>(
    `/v1/mainspring/eval_runs/${encodeURIComponent(id)}`,
    (session) => session.id === id,
  );
  const filter = useSignal("");
  useLayoutEffect(() => usePageKeys(onKey), []);
  const detail = value.value;
  if (error.value !== null) return <main class="page"><Failure error={error.value} onRetry={() => void load()} /></main>;
  if (detail === null) return <main class="page"><Loading what="the run" /></main>;
  const { run } = detail;
  const cases = detail.cases.filter((item) => `${item.case_id} ${item.tags.join(" ")}`.includes(filter.value));
  return (
    <main class="page">
      <p class="crumbs">
        <a href={link("runs", "evals")}>Evals</a>
      </p>
      <div class="page-head column">
        <h1 dir="auto">{run.suite}</h1>
        <p class="facts">
          <RunBadge status={run.verdict} />
          <span>{run.agent_name}</span>
          <span>{run.model}</span>
          <span>{dollars(Number(run.cost_usd))}</span>
          <span>
            started <Age time={run.started_at} isSentence />
          </span>
          <CopyButton text={run.id} what="id" />
          <CopyButton text={`mainspring eval report ${run.id}`} what="CLI" />
        </p>
      </div>
      <Verdict detail={detail} />
      <Meter parts={{ passed: run.passed, failed: run.failed, error: run.errors }} total={run.trials} />
      <div class="bar">
        <h2>Cases</h2>
        <input
          type="search"
          aria-label="Filter cases"
          placeholder="Filter cases ( / )"
          onInput={(event) => (filter.value = event.currentTarget.value.trim())}
        />
        {cases.length > MAX_CASES ? <span class="muted">the first {MAX_CASES} of {cases.length}</span> : null}
      </div>
      {cases.slice(0, MAX_CASES).map((item) => (
        <Case key={item.case_id} item={item} />
      ))}
    </main>
  );
}

function onKey(event: KeyboardEvent): boolean {
  if (event.key === "/") document.querySelector<HTMLInputElement>(".bar input")?.focus();
  else if (event.key === "Escape") go(link("runs", "evals"));
  else return false;
  return true;
}
