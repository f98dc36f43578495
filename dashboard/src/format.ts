// Numbers, times and texts for people. A browser in a container may report a language that is none.

import { signal } from "@preact/signals";

export const zone = signal<"local" | "utc">("local");
/** Advances every second while the page is visible: ages are computed from it. */
export const clock = signal(Date.now());

function language(): string {
  try {
    new Intl.NumberFormat(navigator.language);
    return navigator.language;
  } catch {
    return "en-US";
  }
}

export const LANGUAGE = language();
const NUMBER = new Intl.NumberFormat(LANGUAGE);

export function count(value: number): string {
  return NUMBER.format(value);
}

export function tokens(value: number): string {
  if (value < 1000) return String(value);
  if (value < 1_000_000) return `${(value / 1000).toFixed(value < 10_000 ? 1 : 0)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

export function dollars(value: number): string {
  return `$${value.toFixed(value !== 0 && value < 1 ? 4 : 2)}`;
}

export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  if (value < 1_000_000) return `${(value / 1000).toFixed(1)} kB`;
  return `${(value / 1_000_000).toFixed(1)} MB`;
}

export function seconds(value: number): string {
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  if (value < 86_400) return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86_400)} d ${Math.round((value % 86_400) / 3600)} h`;
}

export function age(time: string, now: number): string {
  const past = Math.max(0, (now - Date.parse(time)) / 1000);
  if (past < 5) return "now";
  if (past < 60) return `${Math.floor(past)} s`;
  if (past < 3600) return `${Math.floor(past / 60)} min`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h`;
  return `${Math.floor(past / 86_400)} d`;
}

function options(parts: Intl.DateTimeFormatOptions): Intl.DateTimeFormatOptions {
  return zone.value === "utc" ? { ...parts, timeZone: "UTC" } : parts;
}

export function clockTime(time: string): string {
  const parts = options({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return new Intl.DateTimeFormat(LANGUAGE, parts).format(new Date(time));
}

export function dateTime(time: string): string {
  const parts = options({ dateStyle: "medium", timeStyle: "medium" });
  const text = new Intl.DateTimeFormat(LANGUAGE, parts).format(new Date(time));
  return zone.value === "utc" ? `${text} UTC` : text;
}

export function shortened(text: string, chars: number): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length <= chars ? line : `${line.slice(0, chars - 1)}…`;
}

export function words(name: string): string {
  return name.replace(/[_.]/g, " ");
}
