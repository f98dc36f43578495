// The log of one session in a window of bounded size: its newest events, or those around an older one.

import { signal } from "@preact/signals";
import { ApiError, get } from "./api";
import { Stream } from "./live";
import type { ListedSession, LogEvent, LogWindow, WaitingEvent } from "./types";

/** Events in memory. Reading further in one direction drops those at the other end. */
const MAX_EVENTS = 600;
const WINDOW_BYTES = 90_000;
/** New events are shown together: a session may write hundreds in a second. */
const FLUSH_MS = 80;
const CATCH_UP_MS = 1200;

export interface Preview {
  id: string;
  type: string;
  text: string;
}

export class SessionModel {
  readonly session = signal<ListedSession | null>(null);
  readonly events = signal<readonly LogEvent[]>([]);
  readonly waiting = signal<readonly WaitingEvent[]>([]);
  readonly previews = signal<readonly Preview[]>([]);
  readonly hasBefore = signal(false);
  readonly hasAfter = signal(false);
  readonly isLoading = signal(true);
  readonly error = signal<unknown>(null);
  readonly isDeleted = signal(false);
  /** New events that are not shown, because the reader is elsewhere. */
  readonly unread = signal(0);
  mainThread = "";
  private stream: Stream | null = null;
  private incoming: LogEvent[] = [];
  private flushTimer = 0;
  private catchUpTimer = 0;
  private isClosed = false;

  constructor(readonly id: string) {}

  private path(rest = ""): string {
    return `/v1/sessions/${encodeURIComponent(this.id)}/log${rest}`;
  }

  /** Opens the session at its end, or around an event. */
  async open(at: number | null): Promise<void> {
    this.isLoading.value = true;
    this.error.value = null;
    try {
      const query = { max_bytes: WINDOW_BYTES, before: at === null ? null : at + 100 };
      this.show(await get<LogWindow>(this.path(), query));
      if (!this.hasAfter.value) this.follow();
    } catch (error) {
      this.error.value = error;
      this.isDeleted.value = error instanceof ApiError && error.status === 404;
    } finally {
      this.isLoading.value = false;
    }
  }

  private show(window_: LogWindow): void {
    if (this.isClosed) return;
    this.session.value = window_.session;
    this.mainThread = window_.main_thread_id;
    this.events.value = window_.data;
    this.waiting.value = window_.waiting;
    this.hasBefore.value = window_.has_before;
    this.hasAfter.value = window_.has_after;
    this.unread.value = 0;
  }

  get lastSeq(): number {
    const { value } = this.events;
    const incoming = this.incoming[this.incoming.length - 1]?.seq ?? 0;
    return Math.max(incoming, value[value.length - 1]?.seq ?? 0);
  }

  private follow(): void {
    this.stream?.close();
    if (this.isClosed) return;
    this.stream = new Stream(
      this.path("/stream"),
      { event_deltas: ["agent.message", "agent.thinking"] },
      ["event_start", "event_delta", "log_event", "session.deleted"],
      (name, data) => this.receive(name, data),
      () => undefined,
      this.lastSeq,
    );
  }

  private receive(name: string, data: string): void {
    if (name === "event_start") {
      const { event } = JSON.parse(data) as { event: { id: string; type: string } };
      this.previews.value = [...this.previews.value, { ...event, text: "" }];
    } else if (name === "event_delta") {
      const { event_id, delta } = JSON.parse(data) as {
        event_id: string;
        delta: { content: { text: string } };
      };
      this.previews.value = this.previews.value.map((item) =>
        item.id === event_id ? { ...item, text: item.text + delta.content.text } : item,
      );
    } else if (name === "session.deleted") this.isDeleted.value = true;
    else this.add(JSON.parse(data) as LogEvent);
  }

  private add(event: LogEvent): void {
    if (event.seq === undefined || event.seq <= this.lastSeq) return;
    this.incoming.push(event);
    if (!this.flushTimer)
      this.flushTimer = window.setTimeout(() => {
        this.flushTimer = 0;
        this.flush();
      }, FLUSH_MS);
  }

  private flush(): void {
    const added = this.incoming;
    this.incoming = [];
    if (this.hasAfter.value) {
      this.unread.value += added.length;
      return;
    }
    const ids = new Set(added.map((event) => event.id));
    const ended = added.some((event) => event.type === "span.model_request_end");
    this.previews.value = ended ? [] : this.previews.value.filter((item) => !ids.has(item.id));
    this.waiting.value = this.waiting.value.filter((item) => !ids.has(item.id));
    const all = [...this.events.value, ...added];
    if (all.length > MAX_EVENTS) this.hasBefore.value = true;
    this.events.value = all.slice(-MAX_EVENTS);
  }

  /** A line of the session that changed: it may be ahead of the stream, where that is buffered. */
  changed(session: ListedSession): void {
    this.session.value = session;
    if (session.seq <= this.lastSeq && this.waiting.value.length === 0) return;
    if (this.hasAfter.value || this.catchUpTimer) return;
    this.catchUpTimer = window.setTimeout(() => {
      this.catchUpTimer = 0;
      void this.catchUp();
    }, CATCH_UP_MS);
  }

  async catchUp(): Promise<void> {
    const session = this.session.value;
    if (this.isClosed || session === null) return;
    if (session.seq <= this.lastSeq && this.waiting.value.length === 0) return;
    try {
      const next = await get<LogWindow>(this.path(), { after: this.lastSeq, max_bytes: 300_000 });
      this.waiting.value = next.waiting;
      next.data.forEach((event) => this.add(event));
      if (next.has_after) await this.catchUp();
    } catch {
      // the next change tries again
    }
  }

  /** Called after something was sent: shows it before a worker has read it. */
  async refresh(): Promise<void> {
    try {
      const next = await get<LogWindow>(this.path(), { after: this.lastSeq, max_bytes: 100_000 });
      this.session.value = next.session;
      this.waiting.value = next.waiting;
      next.data.forEach((event) => this.add(event));
    } catch {
      // the stream brings it
    }
  }

  async older(): Promise<void> {
    const first = this.events.value[0];
    if (first === undefined || this.isLoading.value || !this.hasBefore.value) return;
    await this.page({ before: first.seq }, (window_) => {
      const all = [...window_.data, ...this.events.value];
      this.hasBefore.value = window_.has_before;
      if (all.length > MAX_EVENTS) this.leaveEnd();
      this.events.value = all.slice(0, MAX_EVENTS);
    });
  }

  async newer(): Promise<void> {
    const last = this.events.value[this.events.value.length - 1];
    if (last === undefined || this.isLoading.value || !this.hasAfter.value) return;
    await this.page({ after: last.seq }, (window_) => {
      const all = [...this.events.value, ...window_.data];
      if (all.length > MAX_EVENTS) this.hasBefore.value = true;
      this.events.value = all.slice(-MAX_EVENTS);
      this.hasAfter.value = window_.has_after;
      if (!window_.has_after) this.follow();
    });
  }

  private leaveEnd(): void {
    this.hasAfter.value = true;
    this.previews.value = [];
    this.stream?.close();
    this.stream = null;
  }

  private async page(
    query: { before: number } | { after: number },
    show: (window_: LogWindow) => void,
  ): Promise<void> {
    this.isLoading.value = true;
    try {
      const window_ = await get<LogWindow>(this.path(), { ...query, max_bytes: WINDOW_BYTES });
      if (!this.isClosed) show(window_);
    } catch (error) {
      this.error.value = error;
    } finally {
      this.isLoading.value = false;
    }
  }

  close(): void {
    this.isClosed = true;
    window.clearTimeout(this.flushTimer);
    window.clearTimeout(this.catchUpTimer);
    this.stream?.close();
  }
}
