// The live list of sessions: filters, search, saved views, bulk actions, export.

import { computed, signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { explain, get, mayAct, me, post, remove } from "./api";
import { dollars, shortened, tokens } from "./format";
import { onSessions } from "./live";
import { memo } from "./memo";
import { go, link, place, savedViews, setQuery, storePreferences, toast, usePageKeys } from "./state";
import type { FoundSession, ListedSession, Page } from "./types";
import { Activity, Age, Button, CopyButton, Empty, Failure, Icon, Loading, StatusBadge, statusOf } from "./ui";

const PAGE = 50;
/** Sessions that the page holds; older ones are on further pages. */
const MAX_LISTED = 500;
const FLUSH_MS = 250;
/** Made by Mainspring for runs, which have pages of their own; listed if somebody is asked. */
const OF_RUNS = new Set(["workflow", "eval", "grader", "dream", "campaign"]);
const EVERYTHING = "everything";
/** Pages that are read in a row while nothing on them is shown. */
const MAX_PAGES = 6;
const FEW = 20;
const ORIGINS = ["user", "api", "schedule", "trigger", "workflow", "eval", "grader", "dream", "campaign", "gateway", "import"];
const STATES = ["waiting", "running", "late", "failed", "idle", "ended"];
const STATE_TEXTS: Record<string, string> = {
  waiting: "needs you",
  running: "running",
  late: "retrying",
  failed: "failed",
  idle: "done",
  ended: "ended",
};

const listed = signal<ReadonlyMap<string, ListedSession>>(new Map());
const nextPage = signal<string | null>(null);
const error = signal<unknown>(null);
const isLoading = signal(true);
const selected = signal<ReadonlySet<string>>(new Set());
const cursor = signal(0);

const filters = computed(() => {
  const { query } = place.value;
  return {
    state: query.get("state") ?? "",
    origin: query.get("origin") ?? "",
    agent: query.get("agent") ?? "",
    archived: query.get("archived") === "yes",
    text: query.get("q") ?? "",
  };
});

function fits(session: ListedSession): boolean {
  const { state, origin, agent, archived } = filters.value;
  if (session.archived_at !== null && !archived) return false;
  if (state && statusOf(session).name !== state) return false;
  if (!origin && OF_RUNS.has(session.origin) && session.waiting === 0) return false;
  if (origin && origin !== EVERYTHING && session.origin !== origin) return false;
  return !agent || session.agent_name === agent;
}

const shown = computed(() =>
  [...listed.value.values()]
    .filter(fits)
    .sort((a, b) => b.created_at.localeCompare(a.created_at) || b.id.localeCompare(a.id)),
);

async function load(more: boolean, pages = 1): Promise<void> {
  isLoading.value = true;
  error.value = null;
  const { origin, archived, state } = filters.value;
  try {
    const page = await get<Page<ListedSession>>("/v1/mainspring/sessions", {
      limit: state || pages > 1 ? 200 : PAGE,
      page: more ? nextPage.value : null,
      origin: origin === EVERYTHING ? null : origin,
      include_archived: archived || null,
    });
    const all = new Map(more ? listed.value : []);
    for (const session of page.data) {
      const held = listed.value.get(session.id); // a change may have come before this answer
      all.set(session.id, held && held.updated_at > session.updated_at ? held : session);
    }
    listed.value = all;
    nextPage.value = page.next_page;
    if (page.next_page !== null && pages < MAX_PAGES && shown.value.length < FEW) await load(true, pages + 1);
  } catch (failure) {
    error.value = failure;
  } finally {
    isLoading.value = false;
  }
}

let changed: ListedSession[] = [];
let gone: string[] = [];
let timer = 0;

function receive(sessions: readonly ListedSession[], deleted: readonly string[]): void {
  changed.push(...sessions);
  gone.push(...deleted);
  if (!timer) timer = window.setTimeout(flush, FLUSH_MS);
}

function flush(): void {
  timer = 0;
  const all = new Map(listed.value);
  const oldest = nextPage.value === null ? "" : lastCreated();
  for (const session of changed)
    if (all.has(session.id) || session.created_at >= oldest) all.set(session.id, session);
  gone.forEach((id) => all.delete(id));
  changed = [];
  gone = [];
  if (all.size > MAX_LISTED) drop(all);
  listed.value = all;
}

function lastCreated(): string {
  let oldest = "";
  for (const { created_at } of listed.value.values())
    if (oldest === "" || created_at < oldest) oldest = created_at;
  return oldest;
}

function drop(all: Map<string, ListedSession>): void {
  const idle = [...all.values()]
    .filter((session) => session.status !== "running" && session.waiting === 0)
    .sort((a, b) => a.created_at.localeCompare(b.created_at));
  for (const session of idle.slice(0, all.size - MAX_LISTED)) all.delete(session.id);
}

const SessionRow = memo(function SessionRow(props: {
  session: ListedSession;
  isCurrent: boolean;
  isSelected: boolean;
}) {
  const { session } = props;
  return (
    <tr class={props.isCurrent ? "current" : ""} data-session={session.id}>
      <td class="pick">
        <input
          type="checkbox"
          aria-label={`Select ${session.title ?? session.id}`}
          checked={props.isSelected}
          onChange={() => toggle(session.id)}
        />
      </td>
      <td>
        <StatusBadge session={session} />
      </td>
      <td class="main">
        <a href={link("sessions", session.id)} dir="auto">
          {session.title ?? "(no message yet)"}
        </a>
        <Activity session={session} />
      </td>
      <td class="wide">{session.agent_name}</td>
      <td class="number wide">{tokens(session.input_tokens + session.output_tokens)}</td>
      <td class="number wide">{dollars(session.cost_usd)}</td>
      <td class="number">
        <Age time={session.updated_at} />
      </td>
    </tr>
  );
});

function toggle(id: string): void {
  const next = new Set(selected.value);
  if (!next.delete(id)) next.add(id);
  selected.value = next;
}

function Filters() {
  const { state, origin, agent, archived } = filters.value;
  const agents = [...new Set([...listed.value.values()].map((item) => item.agent_name))].sort();
  return (
    <div class="filters" role="group" aria-label="Filters">
      <select aria-label="State" value={state} onChange={(e) => setQuery({ state: e.currentTarget.value })}>
        <option value="">any state</option>
        {STATES.map((name) => (
          <option value={name}>{STATE_TEXTS[name]}</option>
        ))}
      </select>
      <select aria-label="Agent" value={agent} onChange={(e) => setQuery({ agent: e.currentTarget.value })}>
        <option value="">any agent</option>
        {agents.map((name) => (
          <option value={name}>{name}</option>
        ))}
      </select>
      <select aria-label="Origin" value={origin} onChange={(e) => setQuery({ origin: e.currentTarget.value })}>
        <option value="">all but those of runs</option>
        <option value={EVERYTHING}>any origin</option>
        {ORIGINS.map((name) => (
          <option value={name}>{name}</option>
        ))}
      </select>
      <label class="check">
        <input
          type="checkbox"
          checked={archived}
          onChange={(e) => setQuery({ archived: e.currentTarget.checked ? "yes" : null })}
        />
        archived
      </label>
      <SavedViews />
    </div>
  );
}

function SavedViews() {
  const naming = useSignal<string | null>(null);
  const query = place.value.query.toString();
  const save = (): void => {
    const name = (naming.value ?? "").trim();
    if (name) {
      const others = savedViews.value.filter((view) => view.name !== name);
      savedViews.value = [...others, { name, query }];
      storePreferences();
    }
    naming.value = null;
  };
  return (
    <>
      {savedViews.value.map((view) => (
        <span class="view">
          <a href={`#/sessions?${view.query}`}>{view.name}</a>
          <Button
            kind="quiet"
            label={`Remove the view ${view.name}`}
            onClick={() => {
              savedViews.value = savedViews.value.filter((item) => item !== view);
              storePreferences();
            }}
          >
            <Icon name="close" />
          </Button>
        </span>
      ))}
      {query && naming.value === null ? (
        <Button kind="quiet" onClick={() => (naming.value = "")}>
          Save view
        </Button>
      ) : null}
      {naming.value !== null ? (
        <input
          aria-label="Name of the view"
          placeholder="Name, then Enter"
          maxLength={60}
          value={naming.value}
          onInput={(e) => (naming.value = e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === "Enter") save();
            if (e.key === "Escape") naming.value = null;
          }}
        />
      ) : null}
    </>
  );
}

async function forSelected(
  what: string,
  action: (id: string) => Promise<unknown>,
): Promise<void> {
  let done = 0;
  for (const id of selected.value) {
    try {
      await action(id);
      done += 1;
    } catch (failure) {
      toast(`${id}: ${explain(failure)}`, true);
    }
  }
  toast(`${what}: ${done} of ${selected.value.size}`);
  selected.value = new Set();
}

function BulkBar() {
  const isSure = useSignal(false);
  const number = selected.value.size;
  if (number === 0) return null;
  const session = (id: string): string => `/v1/sessions/${encodeURIComponent(id)}`;
  const interrupt = { events: [{ type: "user.interrupt" }] };
  return (
    <div class="bulk" role="group" aria-label="Actions for the selected sessions">
      <strong>{number} selected</strong>
      {number === 2 ? (
        <Button onClick={() => go(link("compare", ...selected.value))}>Side by side</Button>
      ) : null}
      <Button onClick={exportSelected}>Export as JSON</Button>
      {mayAct("user") ? (
        <>
          <Button onClick={() => void forSelected("interrupted", (id) => post(`${session(id)}/events`, interrupt))}>
            Interrupt
          </Button>
          {me.value?.is_local ? null : (
            <Button onClick={() => void forSelected("archived", (id) => post(`${session(id)}/archive`))}>
              Archive
            </Button>
          )}
          {isSure.value ? (
            <Button
              kind="danger"
              onClick={() => {
                isSure.value = false;
                void forSelected("deleted", (id) => remove(session(id)));
              }}
            >
              Delete {number} for good
            </Button>
          ) : (
            <Button onClick={() => (isSure.value = true)}>Delete</Button>
          )}
        </>
      ) : null}
      <Button kind="quiet" onClick={() => (selected.value = new Set())}>
        Clear
      </Button>
    </div>
  );
}

export function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
  const element = document.createElement("a");
  element.href = url;
  element.download = name;
  element.click();
  URL.revokeObjectURL(url);
}

function exportSelected(): void {
  const lines = [...selected.value].map((id) => JSON.stringify(listed.value.get(id) ?? { id }));
  download("sessions.jsonl", `${lines.join("\n")}\n`);
}

function SearchResults({ query }: { query: string }) {
  const found = useSignal<FoundSession[] | null>(null);
  const failure = useSignal<unknown>(null);
  useEffect(() => {
    let isOld = false;
    found.value = null;
    failure.value = null;
    get<Page<FoundSession>>("/v1/mainspring/search", { query, limit: 30 })
      .then((page) => {
        if (!isOld) found.value = page.data;
      })
      .catch((reason: unknown) => {
        if (!isOld) failure.value = reason;
      });
    return () => {
      isOld = true;
    };
  }, [query]);
  if (failure.value !== null) return <Failure error={failure.value} />;
  if (found.value === null) return <Loading what="results" />;
  if (found.value.length === 0) return <Empty title="Nothing found">No session has these words.</Empty>;
  return (
    <ul class="results">
      {found.value.map((item) => (
        <li>
          <StatusBadge session={item.session} />{" "}
          <a href={`${link("sessions", item.session.id)}?at=${item.seq}`} dir="auto">
            {item.session.title ?? item.session.id}
          </a>
          <p class="muted" dir="auto">
            event {item.seq}: {shortened(item.snippet, 240)}
          </p>
        </li>
      ))}
    </ul>
  );
}

function FirstRun() {
  return me.value?.is_local ? (
    <Empty title="No sessions yet">
      <p>Start one in this folder. It appears here while it runs.</p>
      <pre tabIndex={0}>mainspring run "What does this project do?"</pre>
    </Empty>
  ) : (
    <Empty title="No sessions yet">
      <p>Create an agent and a session with any client of the Managed Agents API:</p>
      <pre tabIndex={0}>{`client = anthropic.Anthropic(base_url="${window.location.origin}", api_key="msk_...")`}</pre>
    </Empty>
  );
}

export function SessionsPage() {
  const search = useRef<HTMLInputElement>(null);
  const { text, origin, archived, state } = filters.value;
  useEffect(() => onSessions(receive, () => void load(false)), []);
  useEffect(() => {
    void load(false);
  }, [origin, archived, state]);
  useLayoutEffect(() => usePageKeys((event) => onKey(event, search.current)), []);
  const rows = shown.value;
  const current = Math.min(cursor.value, Math.max(0, rows.length - 1));
  const totals = useMemo(() => rows.reduce((sum, item) => sum + item.cost_usd, 0), [rows]);
  return (
    <main class="page">
      <div class="page-head">
        <h1>Sessions</h1>
        <input
          ref={search}
          type="search"
          class="search"
          placeholder="Search all texts ( / )"
          aria-label="Search the texts of all sessions"
          defaultValue={text}
          onKeyDown={(event) => {
            if (event.key === "Enter") setQuery({ q: event.currentTarget.value.trim() });
            if (event.key === "Escape") event.currentTarget.blur();
          }}
          onInput={(event) => {
            if (event.currentTarget.value === "") setQuery({ q: null });
          }}
        />
        <CopyButton text="mainspring sessions ls" what="CLI" />
      </div>
      {text ? (
        <SearchResults query={text} />
      ) : (
        <>
          <Filters />
          <BulkBar />
          {error.value !== null ? <Failure error={error.value} onRetry={() => void load(false)} /> : null}
          {rows.length === 0 && !isLoading.value && error.value === null ? (
            state || origin || filters.value.agent || listed.value.size > 0 ? (
              <Empty title="No session fits">Change the filters above.</Empty>
            ) : (
              <FirstRun />
            )
          ) : null}
          {rows.length > 0 ? (
            <div class="scroll-x" tabIndex={0} role="region" aria-label="Sessions">
              <table class="sessions">
                <thead>
                  <tr>
                    <th>
                      <span class="hidden">Select</span>
                    </th>
                    <th>State</th>
                    <th>Session, and what it does</th>
                    <th class="wide">Agent</th>
                    <th class="number wide">Tokens</th>
                    <th class="number wide">Cost</th>
                    <th class="number">Changed</th>
                  </tr>
                </thead>
                <tbody>
                  {rows.slice(0, 300).map((session, index) => (
                    <SessionRow
                      key={session.id}
                      session={session}
                      isCurrent={index === current}
                      isSelected={selected.value.has(session.id)}
                    />
                  ))}
                </tbody>
              </table>
            </div>
          ) : null}
          <p class="muted list-end">
            {rows.length > 0 ? `${rows.length} shown, ${dollars(totals)} in all. ` : ""}
            {rows.length > 300 ? "The newest 300 are drawn; filter to see others. " : ""}
            {nextPage.value !== null && listed.value.size < MAX_LISTED ? (
              <Button disabled={isLoading.value} onClick={() => void load(true)}>
                Older sessions
              </Button>
            ) : null}
          </p>
          {isLoading.value && rows.length === 0 ? <Loading what="sessions" /> : null}
        </>
      )}
    </main>
  );
}

function onKey(event: KeyboardEvent, search: HTMLInputElement | null): boolean {
  const rows = shown.value;
  const current = rows[Math.min(cursor.value, rows.length - 1)];
  switch (event.key) {
    case "j":
    case "k":
      move(event.key === "j" ? 1 : -1);
      return true;
    case "/":
      search?.focus();
      return true;
    case "x":
      if (current) toggle(current.id);
      return true;
    case "Enter":
    case "o":
      if (event.target instanceof HTMLElement && event.target.closest("a, button, input, summary")) return false;
      if (current) go(link("sessions", current.id));
      return true;
    default:
      return false;
  }
}

function move(by: number): void {
  cursor.value = Math.max(0, Math.min(shown.value.length - 1, cursor.value + by));
  const session = shown.value[cursor.value];
  if (session === undefined) return;
  document.querySelector(`[data-session="${CSS.escape(session.id)}"]`)?.scrollIntoView({ block: "nearest" });
}
