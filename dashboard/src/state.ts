// Where the page is, its theme, its messages. Preferences are stored; credentials never are.

import { computed, signal } from "@preact/signals";
import { zone } from "./format";

export interface Place {
  /** `sessions`, `sessions/ID`, `inbox`. */
  path: readonly string[];
  query: URLSearchParams;
}

function readPlace(): Place {
  const [path = "", query = ""] = window.location.hash.replace(/^#\/?/, "").split("?");
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: new URLSearchParams(query),
  };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const place = signal<Place>(readPlace());
export const section = computed(() => place.value.path[0] ?? "sessions");

export function refreshPlace(): void {
  place.value = readPlace();
}

window.addEventListener("hashchange", refreshPlace);

export function link(...path: string[]): string {
  return `#/${path.map(encodeURIComponent).join("/")}`;
}

export function go(target: string): void {
  window.location.hash = target;
}

/** Changes the query of the present place without a new entry in the history. */
export function setQuery(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, value);
  }
  const path = place.value.path.map(encodeURIComponent).join("/");
  const text = query.toString();
  window.history.replaceState(null, "", `#/${path}${text ? `?${text}` : ""}`);
  place.value = readPlace();
}

export type Theme = "system" | "light" | "dark";
export const theme = signal<Theme>("system");

const PREFERENCES = "mainspring.preferences";

interface Preferences {
  theme?: Theme;
  zone?: "local" | "utc";
  views?: SavedView[];
  notify?: boolean;
}

export interface SavedView {
  name: string;
  query: string;
}

export const savedViews = signal<readonly SavedView[]>([]);
/** Whether the browser notifies about new questions. */
export const notifies = signal(false);

export function readPreferences(): void {
  let stored: Preferences = {};
  try {
    stored = JSON.parse(window.localStorage.getItem(PREFERENCES) ?? "{}") as Preferences;
  } catch {
    // unreadable, or storage is off
  }
  if (stored.theme === "light" || stored.theme === "dark") theme.value = stored.theme;
  if (stored.zone === "utc") zone.value = "utc";
  if (Array.isArray(stored.views))
    savedViews.value = stored.views.filter((view) => typeof view.name === "string");
  notifies.value = stored.notify === true;
  applyTheme();
}

function applyTheme(): void {
  if (theme.value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme.value;
}

export function storePreferences(): void {
  applyTheme();
  const stored: Preferences = {
    theme: theme.value,
    zone: zone.value,
    views: [...savedViews.value],
    notify: notifies.value,
  };
  try {
    window.localStorage.setItem(PREFERENCES, JSON.stringify(stored));
  } catch {
    // they last until the page is closed
  }
}

export interface Toast {
  id: number;
  text: string;
  isError: boolean;
}

export const toasts = signal<readonly Toast[]>([]);
let lastToast = 0;

export function toast(text: string, isError = false): void {
  lastToast += 1;
  const id = lastToast;
  toasts.value = [...toasts.value.slice(-3), { id, text, isError }];
  window.setTimeout(() => {
    toasts.value = toasts.value.filter((item) => item.id !== id);
  }, isError ? 12_000 : 5000);
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(`copied: ${text.length > 80 ? `${text.slice(0, 80)}…` : text}`);
  } catch {
    toast(text);
  }
}

/** Keys of the page that is shown; the shell asks it first. Returns whether it used the key. */
export type KeyHandler = (event: KeyboardEvent) => boolean;
let pageKeys: KeyHandler | null = null;

/** For layout effects: a key that is pressed as soon as the page can be seen must not be lost. */
export function usePageKeys(handler: KeyHandler): () => void {
  pageKeys = handler;
  return () => {
    if (pageKeys === handler) pageKeys = null;
  };
}

export function pageUses(event: KeyboardEvent): boolean {
  return pageKeys !== null && pageKeys(event);
}
