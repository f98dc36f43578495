// What the conversation shows of a log: messages, calls with their results, and what must never be
// hidden: failures, questions, money.

import type { Fields, Json, LogEvent } from "./types";

export type Importance = "normal" | "detail";

export interface CallRow {
  kind: "call";
  key: string;
  event: LogEvent;
  authorized: LogEvent | null;
  started: LogEvent | null;
  answered: LogEvent | null;
  result: LogEvent | null;
  inDoubt: LogEvent | null;
}

export interface MessageRow {
  kind: "message";
  key: string;
  event: LogEvent;
  who: "user" | "agent" | "system" | "thread";
}

export interface NoteRow {
  kind: "note";
  key: string;
  event: LogEvent;
  text: string;
  tone: "plain" | "good" | "bad" | "money" | "ask";
  importance: Importance;
}

export interface ThinkingRow {
  kind: "thinking";
  key: string;
  event: LogEvent;
}

export interface TasksRow {
  kind: "tasks";
  key: string;
  event: LogEvent;
  tasks: readonly { text: string; status: string }[];
}

export type Row = CallRow | MessageRow | NoteRow | ThinkingRow | TasksRow;

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}

export interface ContentBlock {
  type: string;
  text?: string;
  preview?: string;
  hash?: string;
  size?: number;
  media_type?: string;
  title?: string;
  source?: { type: string; hash?: string; url?: string; media_type?: string; size?: number; data?: string };
}

export function blocksOf(payload: Fields): ContentBlock[] {
  const { content } = payload;
  return Array.isArray(content) ? (content as unknown as ContentBlock[]) : [];
}

export function plainText(payload: Fields): string {
  return blocksOf(payload)
    .map((block) => block.text ?? block.preview ?? "")
    .filter(Boolean)
    .join("\n");
}

const STOPS: Record<string, { text: string; tone: NoteRow["tone"] }> = {
  end_turn: { text: "Done", tone: "good" },
  requires_action: { text: "Waits for an answer", tone: "ask" },
  retries_exhausted: { text: "Stopped: the model did not answer", tone: "bad" },
  budget_reached: { text: "Stopped: the budget is spent", tone: "money" },
  refusal: { text: "Stopped: the model refused", tone: "bad" },
};

type NoteOf = (payload: Fields, event: LogEvent) => Omit<NoteRow, "kind" | "key" | "event"> | null;

function note(
  tone: NoteRow["tone"],
  say: (payload: Fields) => string,
  importance: Importance = "normal",
): NoteOf {
  return (payload) => ({ text: say(payload), tone, importance });
}

function idle(payload: Fields): Omit<NoteRow, "kind" | "key" | "event"> {
  const reason = (payload["stop_reason"] as Fields | undefined)?.["type"];
  const stop = STOPS[text(reason)] ?? { text: `Stopped: ${text(reason)}`, tone: "plain" as const };
  const detail = text(payload["detail"]);
  return { ...stop, text: detail ? `${stop.text} (${detail})` : stop.text, importance: "normal" };
}

const NOTES: Record<string, NoteOf> = {
  "session.status_idle": idle,
  "session.thread_status_idle": idle,
  "session.error": note("bad", (p) => text((p["error"] as Fields | undefined)?.["message"])),
  "session.status_rescheduled": note("bad", () => "The model does not answer; the request is repeated"),
  "session.status_terminated": note("plain", () => "The session has ended"),
  "session.thread_created": note("plain", (p) => `Started the agent ${text(p["agent_name"])}: ${text(p["description"])}`),
  "session.forked": note("plain", (p) => `Forked from ${text(p["parent_session_id"])} at event ${String(p["parent_seq"])}`),
  "session.moved": note("plain", () => "The session was moved to another machine"),
  "session.received": note("plain", () => "The session was moved here"),
  "session.imported": note("plain", (p) => `Imported from ${text(p["format"])}`),
  "session.updated": note("plain", (p) => `Changed: ${Object.keys(p).join(", ")}`),
  "user.interrupt": note("plain", () => "Interrupted"),
  "approval.requested": note("ask", (p) => `Asks: ${text(p["question"])}`),
  "approval.answered": note("ask", (p) => `Answered: ${text(p["decision"])}${who(p)}`),
  "approval.voided": note("plain", (p) => `The question is void: ${text(p["reason"])}`),
  "permission.updated": note("ask", (p) => `Permissions changed by ${text(p["by"])}`),
  "agent.thread_context_compacted": note("plain", (p) => `Context compacted (${text(p["layer"])})`),
  "provider.failed_over": note("bad", (p) => `The model ${text(p["from_model"])} failed; ${text(p["to_model"])} continues`),
  "message.withheld": note("bad", (p) => `A message was withheld: ${text(p["reason"])}`),
  "events.redacted": note("plain", (p) => `Text was removed: ${text(p["reason"])}`),
  "workspace.restored": note("plain", (p) => `The files were put back as they were (${String(p["files"])} files)`),
  "artifact.published": note("good", (p) => `Published ${text(p["name"])}`),
  "user.define_outcome": note("plain", (p) => `Outcome: ${text(p["description"])}`),
  "span.outcome_evaluation_end": note("plain", (p) => `Graded: ${text(p["result"])}. ${text(p["explanation"])}`),
  "feedback.given": note("good", (p) => `Rated ${text(p["rating"])}${p["text"] ? `: ${text(p["text"])}` : ""}`),
  "skill.used": note("plain", (p) => `Skill ${text(p["name"])}`, "detail"),
  "context.added": note("plain", (p) => `Context from ${text(p["source"])}`, "detail"),
  "workspace.snapshotted": note("plain", (p) => `Snapshot of ${String(p["files"])} files`, "detail"),
  "sandbox.opened": note("plain", (p) => `Sandbox: ${text(p["backend"])}, ${text(p["level"])}`, "detail"),
  "network.requested": (p) => ({
    text: `Network: ${text(p["decision"])} ${text(p["method"])} ${text(p["host"])}${text(p["path"])}`,
    tone: p["decision"] === "deny" ? "bad" : "plain",
    importance: p["decision"] === "deny" ? "normal" : "detail",
  }),
  "hook.ran": (p) => ({
    text: `Hook ${text(p["handler"])}: ${text(p["outcome"])} ${text(p["reason"])}`,
    tone: p["outcome"] === "ok" ? "plain" : "bad",
    importance: p["outcome"] === "ok" ? "detail" : "normal",
  }),
  "loop.continued": note("plain", (p) => `Continued: ${text(p["reason"])}`, "detail"),
  "memory.recalled": note("plain", (p) => `Remembered ${text(p["path"])}`, "detail"),
};

function who(payload: Fields): string {
  const by = text(payload["answered_by"]);
  return by ? ` by ${by}` : "";
}

const CALLS = new Set(["agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"]);
const ABOUT_CALLS: Record<string, "authorized" | "started" | "answered" | "result" | "inDoubt"> = {
  "tool_call.authorized": "authorized",
  "tool_call.started": "started",
  "tool_call.in_doubt": "inDoubt",
  "user.tool_confirmation": "answered",
  "agent.tool_result": "result",
  "agent.mcp_tool_result": "result",
  "user.custom_tool_result": "result",
  "user.tool_result": "result",
};

function callId(payload: Fields): string {
  return text(payload["tool_use_id"] ?? payload["mcp_tool_use_id"] ?? payload["custom_tool_use_id"]);
}

const MESSAGES: Record<string, MessageRow["who"]> = {
  "user.message": "user",
  "agent.message": "agent",
  "system.message": "system",
  "agent.thread_message_sent": "thread",
  "agent.thread_message_received": "thread",
};

function tasksOf(event: LogEvent, tasks: Map<string, { text: string; status: string }>): TasksRow["tasks"] {
  if (event.type === "todos.written") {
    const todos = (event.payload["todos"] ?? []) as { content: string; status?: string }[];
    return todos.map((todo) => ({ text: text(todo.content), status: text(todo.status) || "pending" }));
  }
  const task = (event.payload["task"] ?? {}) as Fields;
  tasks.set(text(task["id"]), { text: text(task["subject"]), status: text(task["status"]) || "pending" });
  return [...tasks.values()];
}

/** Rows keep their identity from one call to the next while nothing about them changes. */
export class RowBuilder {
  private cache = new Map<string, Row>();

  build(events: readonly LogEvent[], thread: string | null, withDetails: boolean): Row[] {
    const rows: Row[] = [];
    const calls = new Map<string, CallRow>();
    const tasks = new Map<string, { text: string; status: string }>();
    for (const event of events) {
      if (thread !== null && event.thread_id !== thread) continue;
      const part = ABOUT_CALLS[event.type];
      if (part !== undefined) {
        const call = calls.get(callId(event.payload));
        if (call !== undefined) call[part] = event;
        else if (part === "result") rows.push(orphan(event));
        continue;
      }
      const row = this.row(event, tasks);
      if (row === null || (row.kind === "note" && row.importance === "detail" && !withDetails)) continue;
      if (row.kind === "call") calls.set(event.id, row);
      if (row.kind === "tasks" && rows.some((item) => item.kind === "tasks"))
        rows.splice(rows.findIndex((item) => item.kind === "tasks"), 1);
      rows.push(row);
    }
    return this.settled(rows);
  }

  private row(event: LogEvent, tasks: Map<string, { text: string; status: string }>): Row | null {
    const key = String(event.seq);
    const who = MESSAGES[event.type];
    if (who !== undefined) return { kind: "message", key, event, who };
    if (CALLS.has(event.type))
      return { kind: "call", key, event, authorized: null, started: null, answered: null, result: null, inDoubt: null };
    if (event.type === "agent.thinking")
      return text(event.payload["text"]) ? { kind: "thinking", key, event } : null;
    if (event.type === "todos.written" || event.type === "task.written")
      return { kind: "tasks", key, event, tasks: tasksOf(event, tasks) };
    const note_ = NOTES[event.type]?.(event.payload, event) ?? null;
    return note_ === null ? null : { kind: "note", key, event, ...note_ };
  }

  private settled(rows: Row[]): Row[] {
    const next = new Map<string, Row>();
    const same = rows.map((row) => {
      const before = this.cache.get(row.key);
      const kept = before !== undefined && isSame(before, row) ? before : row;
      next.set(row.key, kept);
      return kept;
    });
    this.cache = next;
    return same;
  }
}

function isSame(a: Row, b: Row): boolean {
  if (a.kind !== b.kind || a.event !== b.event) return false;
  if (a.kind === "call" && b.kind === "call")
    return (
      a.result === b.result && a.started === b.started && a.authorized === b.authorized &&
      a.answered === b.answered && a.inDoubt === b.inDoubt
    );
  return a.kind !== "tasks";
}

/** A result whose call is before the window. */
function orphan(event: LogEvent): NoteRow {
  const failed = event.payload["is_error"] === true;
  return {
    kind: "note",
    key: String(event.seq),
    event,
    text: `Result of an earlier call: ${plainText(event.payload).slice(0, 200)}`,
    tone: failed ? "bad" : "plain",
    importance: "normal",
  };
}
