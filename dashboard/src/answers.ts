// Answers to approvals. Each is sent after a delay in which it can be taken back; never after that.

import { signal } from "@preact/signals";
import { explain, post } from "./api";
import { toast } from "./state";
import type { Approval, Fields } from "./types";

export const UNDO_MS = 5000;

export interface Answer {
  approval: Approval;
  result: "allow" | "deny";
  message: string | null;
  form: Fields | null;
  forSession: boolean;
  /** When it is sent. */
  due: number;
  isSent: boolean;
}

export const answers = signal<ReadonlyMap<string, Answer>>(new Map());
const timers = new Map<string, number>();

function put(id: string, answer: Answer | null): void {
  const next = new Map(answers.value);
  if (answer === null) next.delete(id);
  else next.set(id, answer);
  answers.value = next;
}

export function answer(
  approval: Approval,
  result: "allow" | "deny",
  options: { message?: string; form?: Fields; forSession?: boolean } = {},
): void {
  if (answers.value.has(approval.id)) return;
  put(approval.id, {
    approval,
    result,
    message: options.message?.trim() || null,
    form: options.form ?? null,
    forSession: options.forSession ?? false,
    due: Date.now() + UNDO_MS,
    isSent: false,
  });
  timers.set(
    approval.id,
    window.setTimeout(() => void send(approval.id), UNDO_MS),
  );
}

export function takeBack(id: string): boolean {
  const given = answers.value.get(id);
  if (given === undefined || given.isSent) return false;
  window.clearTimeout(timers.get(id));
  timers.delete(id);
  put(id, null);
  return true;
}

async function send(id: string): Promise<void> {
  const given = answers.value.get(id);
  if (given === undefined || given.isSent) return;
  put(id, { ...given, isSent: true });
  timers.delete(id);
  const body: Fields = { result: given.result };
  if (given.message !== null && given.result === "deny") body["message"] = given.message;
  if (given.form !== null && given.result === "allow") body["form"] = given.form;
  if (given.forSession && given.result === "allow") body["for_session"] = true;
  try {
    await post(`/v1/mainspring/approvals/${id}/answer`, body);
  } catch (error) {
    toast(`not answered: ${explain(error)}`, true);
    put(id, null);
    return;
  }
  window.setTimeout(() => put(id, null), 10_000); // the list drops it before
}

window.addEventListener("beforeunload", (event) => {
  if ([...answers.value.values()].some((item) => !item.isSent)) event.preventDefault();
});
