// The rows of a conversation.

import { useSignal } from "@preact/signals";
import { explain, mayAct, me, post } from "./api";
import type { CallRow, ContentBlock, MessageRow, NoteRow, Row, TasksRow, ThinkingRow } from "./conversation";
import { blocksOf, plainText } from "./conversation";
import { bytes, clockTime, dateTime, seconds, shortened } from "./format";
import { Markdown, OutsideLink } from "./markdown";
import { memo } from "./memo";
import { Payload, Terminal } from "./payload";
import { copy, toast } from "./state";
import type { LogEvent } from "./types";
import { Button, Icon } from "./ui";

export interface RowActions {
  sessionId: string;
  onEvent: (event: LogEvent) => void;
  /** Runs it again from a message, edited; null where nothing can be started. */
  onEdit: ((event: LogEvent) => void) | null;
}

function sessionPath(id: string, rest: string): string {
  return `/v1/sessions/${encodeURIComponent(id)}/${rest}`;
}

function Stamp({ row, actions }: { row: Row; actions: RowActions }) {
  const { event } = row;
  return (
    <button
      type="button"
      class="stamp"
      title={`event ${event.seq}, ${dateTime(event.time)}`}
      onClick={() => actions.onEvent(event)}
    >
      <span class="seq">#{event.seq}</span> {clockTime(event.time)}
    </button>
  );
}

function Block({ block, sessionId, isTerminal }: { block: ContentBlock; sessionId: string; isTerminal: boolean }) {
  const blob = (hash: string): string => sessionPath(sessionId, `log/blob?hash=${hash}`);
  switch (block.type) {
    case "text":
      return isTerminal ? <Terminal text={block.text ?? ""} /> : <Markdown text={block.text ?? ""} />;
    case "blob":
      return (
        <>
          <Terminal text={block.preview ?? ""} />
          <p>
            <a href={blob(block.hash ?? "")} download>
              Download all of it ({bytes(block.size ?? 0)})
            </a>
          </p>
        </>
      );
    case "image":
    case "document":
      return <Media block={block} href={blob(block.source?.hash ?? "")} />;
    default:
      return <p class="muted">[{block.type}]</p>;
  }
}

/** Images are shown only from blobs of the session; nothing is loaded from elsewhere. */
function Media({ block, href }: { block: ContentBlock; href: string }) {
  const { source } = block;
  if (source?.type === "blob" && block.type === "image")
    return <img src={href} alt={block.title ?? "image"} class="image" loading="lazy" />;
  if (source?.type === "blob")
    return (
      <a href={href} download>
        {block.title ?? "document"} ({bytes(source.size ?? 0)})
      </a>
    );
  if (source?.type === "url" && source.url)
    return <OutsideLink target={source.url} text={block.title ?? source.url} />;
  return <p class="muted">[{block.type}, {source?.media_type ?? "inside the event"}]</p>;
}

function CutNote({ event, sessionId }: { event: LogEvent; sessionId: string }) {
  return event.is_cut ? (
    <p class="muted">
      Shown cut.{" "}
      <a href={sessionPath(sessionId, `log/event?seq=${event.seq}`)} download>
        Download all {bytes(event.bytes)}
      </a>
    </p>
  ) : null;
}

const NAMES: Record<MessageRow["who"], string> = { user: "You", agent: "Agent", system: "System", thread: "Agent to agent" };

function senderOf(row: MessageRow): string {
  const { sender, payload } = row.event;
  if (row.who === "thread") {
    const other = payload["to_agent_name"] ?? payload["from_agent_name"];
    return `${payload["to_agent_name"] ? "To" : "From"} ${typeof other === "string" ? other : "an agent"}`;
  }
  if (row.who !== "user" || sender === null || sender.id === me.value?.key_id) return NAMES[row.who];
  return shortened(sender.id.replace(/^cli:/, ""), 24);
}

function Message({ row, actions }: { row: MessageRow; actions: RowActions }) {
  const { event } = row;
  return (
    <article class={`row message ${row.who}`} data-seq={event.seq}>
      <header>
        <strong>{senderOf(row)}</strong>
        {row.who === "agent" ? <Rating event={event} sessionId={actions.sessionId} /> : null}
        {row.who === "user" && actions.onEdit !== null && mayAct("user") ? (
          <Button kind="quiet" title="Fork before this message and send another one" onClick={() => actions.onEdit?.(event)}>
            edit and run again
          </Button>
        ) : null}
        <Stamp row={row} actions={actions} />
      </header>
      {blocksOf(event.payload).map((block) => (
        <Block block={block} sessionId={actions.sessionId} isTerminal={false} />
      ))}
      <CutNote event={event} sessionId={actions.sessionId} />
    </article>
  );
}

function Rating({ event, sessionId }: { event: LogEvent; sessionId: string }) {
  if (!mayAct("user")) return null;
  const rate = (rating: "good" | "bad"): void => {
    const given = { type: "feedback.given", subject: { type: "message", id: event.id }, rating };
    post(sessionPath(sessionId, "events"), { events: [given] })
      .then(() => toast(`rated ${rating}`))
      .catch((error: unknown) => toast(explain(error), true));
  };
  return (
    <span class="rating">
      <Button kind="quiet" label="Good answer" title="Good answer" onClick={() => rate("good")}>
        <Icon name="up" />
      </Button>
      <Button kind="quiet" label="Bad answer" title="Bad answer" onClick={() => rate("bad")}>
        <Icon name="down" />
      </Button>
      <Button kind="quiet" label="Copy the text" title="Copy the text" onClick={() => void copy(plainText(event.payload))}>
        <Icon name="copy" />
      </Button>
    </span>
  );
}

function Thinking({ row, actions }: { row: ThinkingRow; actions: RowActions }) {
  const text = String(row.event.payload["text"] ?? "");
  return (
    <details class="row thinking" data-seq={row.event.seq}>
      <summary>
        Thinking: <span dir="auto">{shortened(text, 100)}</span>
        <Stamp row={row} actions={actions} />
      </summary>
      <Markdown text={text} />
    </details>
  );
}

function between(a: LogEvent | null, b: LogEvent | null): number | null {
  return a === null || b === null ? null : Math.max(0, (Date.parse(b.time) - Date.parse(a.time)) / 1000);
}

export function callState(row: CallRow): { name: string; text: string } {
  const { result } = row;
  if (result !== null) {
    const failed = result.payload["is_error"] === true;
    return failed ? { name: "failed", text: "failed" } : { name: "idle", text: "done" };
  }
  if (row.inDoubt !== null) return { name: "failed", text: "in doubt" };
  if (row.started !== null) return { name: "running", text: "running" };
  if (row.answered !== null) return { name: "running", text: row.answered.payload["result"] === "allow" ? "allowed" : "denied" };
  if (row.authorized?.payload["decision"] === "ask") return { name: "waiting", text: "asks" };
  if (row.authorized?.payload["decision"] === "deny") return { name: "failed", text: "denied" };
  return { name: "running", text: "proposed" };
}

function Call({ row, actions }: { row: CallRow; actions: RowActions }) {
  const { event, result, authorized } = row;
  const state = callState(row);
  const isOpen = useSignal<boolean | null>(null);
  const took = between(row.started, result);
  const name = String(event.payload["name"] ?? "");
  const input = (event.payload["input"] ?? {}) as Record<string, never>;
  const first = Object.values(input).find((value) => typeof value === "string") ?? "";
  const shown = isOpen.value ?? state.name === "failed";
  const preview = authorized?.payload["preview"];
  return (
    <article class={`row call ${state.name}`} data-seq={event.seq}>
      <header>
        <button type="button" class="fold" aria-expanded={shown} onClick={() => (isOpen.value = !shown)}>
          <Icon name={shown ? "open" : "closed"} /> <strong>{name}</strong>{" "}
          <code dir="auto">{shortened(String(first), 120)}</code>
        </button>
        <span class={`badge ${state.name}`}>{state.text}</span>
        {took === null ? null : <span class="muted">{seconds(took)}</span>}
        <Stamp row={row} actions={actions} />
      </header>
      {shown ? (
        <div class="call-body">
          {typeof preview === "string" && preview ? <Terminal text={preview} /> : <Payload value={input} />}
          <CutNote event={event} sessionId={actions.sessionId} />
          <Gate row={row} />
          {result === null ? null : (
            <>
              <h4>Result</h4>
              {blocksOf(result.payload).map((block) => (
                <Block block={block} sessionId={actions.sessionId} isTerminal />
              ))}
              <CutNote event={result} sessionId={actions.sessionId} />
            </>
          )}
        </div>
      ) : null}
    </article>
  );
}

/** Who allowed or denied a call, and why. */
function Gate({ row }: { row: CallRow }) {
  const parts: string[] = [];
  const { authorized, answered } = row;
  if (authorized !== null) {
    const { decision, gate, rule, reason } = authorized.payload;
    parts.push(`${String(decision)} by ${String(gate)}${rule ? ` ${String(rule)}` : ""}${reason ? `: ${String(reason)}` : ""}`);
  }
  if (answered !== null) {
    const by = answered.payload["answered_by"] ?? answered.sender?.id ?? "a person";
    parts.push(`${String(answered.payload["result"])} by ${String(by)}`);
  }
  return parts.length === 0 ? null : <p class="muted">{parts.join(" · ")}</p>;
}

function Note({ row, actions }: { row: NoteRow; actions: RowActions }) {
  return (
    <div class={`row note ${row.tone}`} data-seq={row.event.seq}>
      <span dir="auto">{shortened(row.text, 600)}</span>
      <Stamp row={row} actions={actions} />
    </div>
  );
}

const MARKS: Record<string, string> = { completed: "☑", in_progress: "◐", pending: "☐", cancelled: "☒" };

function Tasks({ row, actions }: { row: TasksRow; actions: RowActions }) {
  const done = row.tasks.filter((task) => task.status === "completed").length;
  return (
    <section class="row tasks" data-seq={row.event.seq} aria-label="Task list">
      <header>
        <strong>Tasks</strong> <span class="muted">{`${done} of ${row.tasks.length} done`}</span>
        <Stamp row={row} actions={actions} />
      </header>
      <ul>
        {row.tasks.slice(0, 100).map((task) => (
          <li class={task.status}>
            <span aria-hidden="true">{MARKS[task.status] ?? "☐"}</span> <span dir="auto">{task.text}</span>{" "}
            <span class="hidden">{task.status}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export const RowView = memo(function RowView({ row, actions }: { row: Row; actions: RowActions }) {
  switch (row.kind) {
    case "message":
      return <Message row={row} actions={actions} />;
    case "call":
      return <Call row={row} actions={actions} />;
    case "thinking":
      return <Thinking row={row} actions={actions} />;
    case "tasks":
      return <Tasks row={row} actions={actions} />;
    case "note":
      return <Note row={row} actions={actions} />;
  }
});
