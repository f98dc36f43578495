// What changes while the page is open. A stream, if the network lets it through; else polling.

import { signal } from "@preact/signals";
import { get, isSignedOut, me, url } from "./api";
import type { Changes, ListedSession } from "./types";

export type Connection = "connecting" | "live" | "polling" | "late";

/** How changes arrive. `late`: the stream was cut, and is being opened again. */
export const connection = signal<Connection>("connecting");
/** The ids of all approvals that wait. */
export const waiting = signal<readonly string[]>([]);
/** The version of the server, where it is another one than this page's. */
export const newVersion = signal<string | null>(null);

/** A stream that is silent for so long is buffered by a proxy: it sends a message at once. */
const SILENT_MS = 5000;
const POLL_MS = 1500;
const RETRY_MS = 1000;

/** `hidden`: there is no stream, because nobody sees the tab. */
export type StreamState = "open" | "cut" | "silent" | "hidden";
type Handler = (name: string, data: string, id: string) => void;

/**
 * An event stream that says whether it is silent, and reconnects by itself. A hidden tab has none: all
 * tabs of a browser share six connections to a server of HTTP/1.1, and with those taken, none works.
 */
export class Stream {
  private source: EventSource | null = null;
  private timer = 0;
  private lastId: string;
  private isClosed = false;
  private hasSpoken = false;

  constructor(
    private readonly path: string,
    private readonly query: Record<string, string | number | readonly string[]>,
    private readonly names: readonly string[],
    private readonly on: Handler,
    private readonly onState: (state: StreamState) => void,
    after: number | null,
  ) {
    this.lastId = after === null ? "" : String(after);
    document.addEventListener("visibilitychange", this.follow);
    this.follow();
  }

  private readonly follow = (): void => {
    if (!document.hidden) {
      if (!this.source) this.open();
      return;
    }
    window.clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    this.onState("hidden");
  };

  private open(): void {
    const after = this.lastId === "" ? {} : { after: this.lastId };
    const source = new EventSource(url(this.path, { ...this.query, ...after }));
    this.source = source;
    this.hasSpoken = false;
    this.wait(SILENT_MS, () => {
      if (!this.hasSpoken) this.onState("silent");
    });
    const heard = (): void => {
      if (!this.hasSpoken) this.onState("open");
      this.hasSpoken = true;
    };
    for (const name of this.names) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        heard();
        if (event.lastEventId) this.lastId = event.lastEventId;
        this.on(name, event.data, event.lastEventId);
      });
    }
    source.addEventListener("ping", heard);
    source.onerror = () => {
      // reopened by hand: the browser gives up for good after an answer that is not 200
      source.close();
      if (this.isClosed || this.source !== source) return;
      this.source = null;
      this.onState("cut");
      this.wait(RETRY_MS, () => this.open());
    };
  }

  private wait(ms: number, then: () => void): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      if (!this.isClosed) then();
    }, ms);
  }

  close(): void {
    this.isClosed = true;
    document.removeEventListener("visibilitychange", this.follow);
    window.clearTimeout(this.timer);
    this.source?.close();
  }
}

type Listener = (sessions: readonly ListedSession[], deleted: readonly string[]) => void;
const listeners = new Set<Listener>();
const resets = new Set<() => void>();

/** Calls back with sessions that changed; `onReset` if the list must be read anew. */
export function onSessions(listener: Listener, onReset: () => void): () => void {
  listeners.add(listener);
  resets.add(onReset);
  return () => {
    listeners.delete(listener);
    resets.delete(onReset);
  };
}

let stream: Stream | null = null;
let cursor: number | null = null;
let poller = 0;

function receive(changes: Changes): void {
  cursor = changes.cursor;
  if (changes.approvals !== null) waiting.value = changes.approvals;
  if (changes.is_reset) resets.forEach((reset) => reset());
  if (changes.sessions.length || changes.deleted_session_ids.length)
    listeners.forEach((listener) => listener(changes.sessions, changes.deleted_session_ids));
}

async function poll(): Promise<void> {
  try {
    receive(await get<Changes>("/v1/mainspring/changes", cursor === null ? {} : { after: cursor }));
    if (connection.value !== "live") connection.value = "polling";
  } catch {
    connection.value = "late";
  }
  if (poller) poller = window.setTimeout(() => void poll(), POLL_MS);
}

function startPolling(): void {
  if (poller) return;
  poller = window.setTimeout(() => void poll(), 0);
}

function stopPolling(): void {
  window.clearTimeout(poller);
  poller = 0;
}

export function startLive(): void {
  stopLive();
  connection.value = "connecting";
  stream = new Stream(
    "/v1/mainspring/changes/stream",
    {},
    ["changes"],
    (_name, data) => receive(JSON.parse(data) as Changes),
    (state) => {
      if (isSignedOut.value) return stopLive();
      if (state === "open") {
        stopPolling();
        connection.value = "live";
      } else if (state === "hidden") {
        startPolling(); // for the title, and notifications
      } else {
        if (connection.value !== "polling") connection.value = "late";
        startPolling();
      }
    },
    cursor,
  );
}

export function stopLive(): void {
  stream?.close();
  stream = null;
  stopPolling();
}

/** Compares the version of this page's server with the present one. */
export async function checkVersion(): Promise<void> {
  const before = me.value?.version;
  try {
    const now = (await get<{ version: string }>("/v1/mainspring/me")).version;
    if (before !== undefined && now !== before) newVersion.value = now;
  } catch {
    // the banner says that the server cannot be reached
  }
}
