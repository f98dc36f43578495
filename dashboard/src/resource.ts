// What a page reads from the server: loaded when it opens, and again when something has changed.

import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get } from "./api";
import { onSessions } from "./live";
import type { ListedSession } from "./types";

/** Changes of a second are read together. */
const RELOAD_MS = 700;

export interface Resource<T> {
  value: Signal<T | null>;
  error: Signal<unknown>;
  load: () => Promise<void>;
}

/** Reads `path` now, and again after sessions have changed that `concerns` is true for. */
export function useResource<T>(
  path: string,
  concerns: (session: ListedSession) => boolean,
  query: Record<string, string | number | null> = {},
): Resource<T> {
  const key = JSON.stringify([path, query]);
  const resource = useMemo<Resource<T>>(() => {
    const value = signal<T | null>(null);
    const error = signal<unknown>(null);
    let latest = 0;
    const load = async (): Promise<void> => {
      latest += 1;
      const own = latest;
      try {
        const answer = await get<T>(path, query);
        if (own !== latest) return;
        value.value = answer;
        error.value = null;
      } catch (failure) {
        if (own === latest) error.value = failure;
      }
    };
    return { value, error, load };
  }, [key]);
  useEffect(() => {
    void resource.load();
    let timer = 0;
    const again = (): void => {
      if (timer) return;
      timer = window.setTimeout(() => {
        timer = 0;
        void resource.load();
      }, RELOAD_MS);
    };
    const stop = onSessions((sessions) => {
      if (sessions.some(concerns)) again();
    }, again);
    return () => {
      stop();
      window.clearTimeout(timer);
    };
  }, [resource]);
  return resource;
}
