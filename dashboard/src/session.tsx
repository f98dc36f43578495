// One session: its conversation while it runs, its timeline, its log, what its model was given.

import { computed, useComputed, useSignal, type ReadonlySignal, type Signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { ApprovalCard } from "./approval";
import { explain, get, mayAct, post } from "./api";
import { RowBuilder, type Row } from "./conversation";
import { dollars, shortened, tokens } from "./format";
import { CostView } from "./costs";
import { EditDialog } from "./edit-dialog";
import { EventDialog } from "./event-dialog";
import { FilesView } from "./files";
import { approvals } from "./inbox";
import { onSessions } from "./live";
import { LogView } from "./log-view";
import { Markdown } from "./markdown";
import { SessionModel } from "./model";
import { RowView, type RowActions } from "./rows";
import { SessionActions } from "./session-actions";
import { go, link, place, setQuery, toast, usePageKeys } from "./state";
import { Timeline } from "./timeline";
import type { LogEvent, Page } from "./types";
import { Activity, Age, Button, CopyButton, Empty, Failure, Guard, Loading, StatusBadge, Tabs } from "./ui";
import { XrayView } from "./xray";

/** Rows that are drawn: the newest, or those around the place that was opened. */
const MAX_ROWS = 300;
const TABS = {
  conversation: "Conversation",
  timeline: "Timeline",
  files: "Files",
  log: "Log",
  context: "Context",
  cost: "Cost",
} as const;
type Tab = keyof typeof TABS;
const TAB_NAMES = Object.keys(TABS) as Tab[];

function showTab(name: Tab): void {
  setQuery({ tab: name === "conversation" ? null : name });
}

function Head({ model }: { model: SessionModel }) {
  const session = model.session.value;
  if (session === null) return <h1>Session</h1>;
  return (
    <>
      <h1 dir="auto">{shortened(session.title ?? session.id, 120)}</h1>
      <p class="facts">
        <StatusBadge session={session} />
        <Activity session={session} />
        <span>
          {session.agent_name}
          {session.agent_version ? ` v${session.agent_version}` : ""}
        </span>
        <span title="tokens in and out">
          {tokens(session.input_tokens)} in, {tokens(session.output_tokens)} out
        </span>
        <span>{dollars(session.cost_usd)}</span>
        <span>
          changed <Age time={session.updated_at} isSentence />
        </span>
        {session.parent_id ? (
          <>
            <a href={link("sessions", session.parent_id)}>forked from</a>
            <a href={link("compare", session.parent_id, session.id)}>side by side</a>
          </>
        ) : null}
        <CopyButton text={session.id} what="id" />
        <CopyButton text={`mainspring sessions show ${session.id}`} what="CLI" />
        <SessionActions session={session} />
      </p>
    </>
  );
}

function Compose({ model }: { model: SessionModel }) {
  const text = useSignal("");
  const isSending = useSignal(false);
  const session = model.session.value;
  if (!mayAct("user") || session === null || session.archived_at !== null) return null;
  const path = `/v1/sessions/${encodeURIComponent(model.id)}/events`;
  const send = async (events: object[]): Promise<boolean> => {
    isSending.value = true;
    try {
      await post(path, { events });
      await model.refresh();
      return true;
    } catch (error) {
      toast(explain(error), true);
      return false;
    } finally {
      isSending.value = false;
    }
  };
  const message = async (): Promise<void> => {
    const words = text.value.trim();
    if (!words) return;
    const sent = await send([{ type: "user.message", content: [{ type: "text", text: words }] }]);
    if (sent) text.value = "";
  };
  const isRunning = session.status === "running" || session.status === "rescheduling";
  return (
    <form
      class="compose"
      onSubmit={(event) => {
        event.preventDefault();
        void message();
      }}
    >
      <textarea
        rows={2}
        aria-label="Message to the agent"
        placeholder={isRunning ? "Send a message while it works (Ctrl+Enter)" : "Send a message (Ctrl+Enter)"}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void message();
        }}
      />
      <div class="compose-actions">
        <button type="submit" class="button primary" disabled={isSending.value || text.value.trim() === ""}>
          Send
        </button>
        {isRunning ? (
          <Button kind="danger" onClick={() => void send([{ type: "user.interrupt" }])}>
            Stop
          </Button>
        ) : null}
      </div>
    </form>
  );
}

function Find({ model }: { model: SessionModel }) {
  const found = useSignal<{ seq: number; snippet: string }[] | null>(null);
  const find = async (query: string): Promise<void> => {
    if (!query.trim()) {
      found.value = null;
      return;
    }
    try {
      const path = `/v1/sessions/${encodeURIComponent(model.id)}/log/search`;
      found.value = (await get<Page<{ seq: number; snippet: string }>>(path, { query })).data;
    } catch (error) {
      toast(explain(error), true);
    }
  };
  return (
    <div class="find">
      <input
        type="search"
        placeholder="Find in this session ( / )"
        aria-label="Find in this session"
        onKeyDown={(event) => {
          if (event.key === "Enter") void find(event.currentTarget.value);
        }}
        onInput={(event) => {
          if (event.currentTarget.value === "") found.value = null;
        }}
      />
      {found.value === null ? null : (
        <ul class="results" aria-label="Events found">
          {found.value.length === 0 ? <li>nothing found</li> : null}
          {found.value.map((item) => (
            <li>
              <button type="button" class="button quiet" onClick={() => setQuery({ at: String(item.seq), tab: null })}>
                {item.seq}: <span dir="auto">{shortened(item.snippet, 160)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Waiting({ model }: { model: SessionModel }) {
  return (
    <>
      {model.previews.value.map((item) =>
        item.text ? (
          <article class="row message agent streaming" key={item.id} aria-label="The answer as it is written">
            <header>
              <strong>{item.type === "agent.thinking" ? "Thinking" : "Agent"}</strong>
            </header>
            <Markdown text={item.text.slice(-20_000)} />
          </article>
        ) : null,
      )}
      {model.waiting.value
        .filter((item) => item.type === "user.message" || item.type === "user.interrupt")
        .map((item) => (
          <div class="row note plain" key={item.id}>
            {item.type === "user.message" ? "Your message waits to be read." : "Your interrupt waits to be read."}
          </div>
        ))}
    </>
  );
}

function Conversation(props: {
  model: SessionModel;
  rows: ReadonlySignal<Row[]>;
  details: Signal<boolean>;
  actions: RowActions;
}) {
  const { model } = props;
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const anchor = useRef<{ element: Element; top: number } | null>(null);
  const at = place.value.query.get("at");
  const rows = props.rows.value.slice(model.hasAfter.value ? 0 : -MAX_ROWS);
  const shown = rows.slice(0, MAX_ROWS);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const before = anchor.current;
    anchor.current = null;
    if (before !== null && before.element.isConnected)
      element.scrollTop += before.element.getBoundingClientRect().top - before.top;
    else if (isAtEnd.current && !model.hasAfter.value) element.scrollTop = element.scrollHeight;
  });
  useEffect(() => {
    if (at === null || model.isLoading.value) return;
    const target = [...(box.current?.querySelectorAll<HTMLElement>("[data-seq]") ?? [])]
      .filter((item) => Number(item.dataset["seq"]) <= Number(at))
      .pop();
    if (target === undefined) return;
    isAtEnd.current = false;
    target.scrollIntoView({ block: "center" });
    target.classList.add("found");
  }, [at, model.isLoading.value]);
  const hold = (): void => {
    const edge = box.current?.getBoundingClientRect().top ?? 0;
    const element = [...(box.current?.querySelectorAll("[data-seq]") ?? [])].find(
      (item) => item.getBoundingClientRect().bottom > edge,
    );
    if (element) anchor.current = { element, top: element.getBoundingClientRect().top };
  };
  const onScroll = (): void => {
    const element = box.current;
    if (element === null) return;
    isAtEnd.current = element.scrollTop + element.clientHeight > element.scrollHeight - 40;
    if (element.scrollTop < 300 && model.hasBefore.value && !model.isLoading.value) {
      hold();
      void model.older();
    } else if (isAtEnd.current && model.hasAfter.value && !model.isLoading.value) {
      hold();
      void model.newer();
    }
  };
  const asked = approvals.value.filter((item) => item.session_id === model.id);
  return (
    <div class="conversation" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-live="off" aria-label="Conversation">
      {model.hasBefore.value ? (
        <p class="state">
          <Button disabled={model.isLoading.value} onClick={() => { hold(); void model.older(); }}>
            Earlier events
          </Button>
        </p>
      ) : null}
      {shown.length === 0 && !model.isLoading.value ? <Empty title="No message yet" /> : null}
      {shown.map((row) => (
        <RowView key={row.key} row={row} actions={props.actions} />
      ))}
      {model.hasAfter.value ? (
        <p class="state">
          <Button onClick={() => { setQuery({ at: null }); isAtEnd.current = true; void model.open(null); }}>
            To the newest events{model.unread.value ? ` (${model.unread.value} new)` : ""}
          </Button>
        </p>
      ) : (
        <>
          <Waiting model={model} />
          {asked.map((item) => (
            <ApprovalCard key={item.id} approval={item} inSession />
          ))}
        </>
      )}
    </div>
  );
}

export function SessionPage({ id }: { id: string }) {
  const model = useMemo(() => new SessionModel(id), [id]);
  const builder = useMemo(() => new RowBuilder(), [id]);
  const details = useSignal(false);
  const thread = useSignal<string | null>(null);
  const dialog = useSignal<LogEvent | null>(null);
  const edited = useSignal<LogEvent | null>(null);
  const at = place.value.query.get("at");
  const tab = TAB_NAMES.find((name) => name === place.value.query.get("tab")) ?? "conversation";
  const rows = useMemo(
    () => computed(() => builder.build(model.events.value, thread.value ?? null, details.value)),
    [model],
  );
  const threads = useComputed(() => [...new Set(model.events.value.map((event) => event.thread_id))]);
  const actions = useMemo<RowActions>(
    () => ({
      sessionId: id,
      onEvent: (event) => (dialog.value = event),
      onEdit: (event) => (edited.value = event),
    }),
    [id],
  );
  useEffect(() => () => model.close(), [model]);
  useEffect(() => {
    const seq = Number(at);
    const { value } = model.events;
    const isHere = value.some((event) => event.seq === seq);
    if (value.length === 0 || (at !== null && !isHere)) void model.open(at === null ? null : seq);
  }, [model, at]);
  useEffect(
    () =>
      onSessions(
        (sessions, deleted) => {
          const own = sessions.find((item) => item.id === id);
          if (own) model.changed(own);
          if (deleted.includes(id)) model.isDeleted.value = true;
        },
        () => void model.refresh(),
      ),
    [model],
  );
  useLayoutEffect(() => usePageKeys(onKey), []);
  if (model.isDeleted.value)
    return (
      <main class="page">
        <Empty title="There is no such session">
          <p>It was deleted, or belongs to somebody else.</p>
          <a href={link("sessions")}>All sessions</a>
        </Empty>
      </main>
    );
  return (
    <main class="page session">
      <div class="page-head column">
        <Head model={model} />
      </div>
      <div class="bar">
        <Tabs label="Views of the session" names={TABS} chosen={tab} onChoose={showTab} />
        <Find model={model} />
        {tab === "conversation" ? (
          <>
            <label class="check">
              <input type="checkbox" checked={details.value} onChange={(e) => (details.value = e.currentTarget.checked)} />
              details
            </label>
            {threads.value.length > 1 ? (
              <select
                aria-label="Thread"
                value={thread.value ?? ""}
                onChange={(e) => (thread.value = e.currentTarget.value || null)}
              >
                <option value="">all threads</option>
                {threads.value.map((item) => (
                  <option value={item}>{item === model.mainThread ? "main thread" : `thread ${item.slice(-6)}`}</option>
                ))}
              </select>
            ) : null}
          </>
        ) : null}
      </div>
      {model.error.value !== null ? <Failure error={model.error.value} onRetry={() => void model.open(null)} /> : null}
      {model.isLoading.value && model.events.value.length === 0 ? <Loading what="the session" /> : null}
      <Guard name={tab}>
        {tab === "conversation" ? (
          <>
            <Conversation model={model} rows={rows} details={details} actions={actions} />
            <Compose model={model} />
          </>
        ) : tab === "timeline" ? (
          <Timeline model={model} onEvent={actions.onEvent} />
        ) : tab === "log" ? (
          <LogView model={model} onEvent={actions.onEvent} />
        ) : tab === "files" ? (
          <FilesView model={model} />
        ) : tab === "cost" ? (
          <CostView model={model} />
        ) : (
          <XrayView id={id} />
        )}
      </Guard>
      {edited.value !== null ? (
        <EditDialog sessionId={id} event={edited.value} onClose={() => (edited.value = null)} />
      ) : null}
      {dialog.value !== null ? (
        <EventDialog sessionId={id} event={dialog.value} onClose={() => (dialog.value = null)} />
      ) : null}
    </main>
  );
}

function onKey(event: KeyboardEvent): boolean {
  if (event.key === "/") {
    document.querySelector<HTMLInputElement>(".find input")?.focus();
    return true;
  }
  if (event.key === "j" || event.key === "k") {
    const box = document.querySelector(".conversation, .log-list");
    box?.scrollBy({ top: event.key === "j" ? 160 : -160 });
    return true;
  }
  const tab = TAB_NAMES[Number(event.key) - 1];
  if (tab !== undefined) {
    showTab(tab);
    return true;
  }
  if (event.key === "i") {
    document.querySelector<HTMLTextAreaElement>(".compose textarea")?.focus();
    return true;
  }
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    go(link("sessions"));
    return true;
  }
  return false;
}
