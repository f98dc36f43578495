// Everything that waits for a person, over all sessions, with its evidence.

import { effect, signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { answer, answers, takeBack } from "./answers";
import { ApprovalCard } from "./approval";
import { get, mayAct } from "./api";
import { waiting } from "./live";
import { go, link, notifies, usePageKeys } from "./state";
import type { Approval, Page } from "./types";
import { CopyButton, Empty, Failure, Loading } from "./ui";

const LIMIT = 100;

export const approvals = signal<readonly Approval[]>([]);
const error = signal<unknown>(null);
const isLoaded = signal(false);
const cursor = signal(0);
let loading: Promise<void> | null = null;
let isAgain = false;
let known: ReadonlySet<string> | null = null;

async function read(): Promise<void> {
  try {
    const page = await get<Page<Approval>>("/v1/mainspring/approvals", { limit: LIMIT });
    approvals.value = page.data;
    error.value = null;
    isLoaded.value = true;
    notify(page.data);
  } catch (failure) {
    error.value = failure;
  }
}

/** Reads the approvals; once more afterwards, if they changed meanwhile. */
export function loadApprovals(): void {
  if (loading !== null) {
    isAgain = true;
    return;
  }
  loading = read().finally(() => {
    loading = null;
    if (isAgain) {
      isAgain = false;
      loadApprovals();
    }
  });
}

function notify(current: readonly Approval[]): void {
  const before = known;
  known = new Set(current.map((item) => item.id));
  if (before === null || !notifies.value || document.visibilityState === "visible") return;
  for (const item of current.filter((each) => !before.has(each.id)).slice(0, 3)) {
    try {
      const note = new Notification(`${item.agent_name} asks`, {
        body: item.question ?? `Run ${item.name}?`,
        tag: item.id,
      });
      note.onclick = () => {
        window.focus();
        go(link("inbox"));
      };
    } catch {
      // the browser does not allow it here
    }
  }
}

/** Follows the ids that the server says wait. */
export function followApprovals(): () => void {
  return effect(() => {
    void waiting.value;
    loadApprovals();
  });
}

/** Those that are still to be answered: the others only wait for their answer to be sent. */
export function openApprovals(): Approval[] {
  return approvals.value.filter((item) => !answers.value.has(item.id));
}

export function InboxPage() {
  useLayoutEffect(() => usePageKeys(onKey), []);
  const items = approvals.value;
  const current = Math.min(cursor.value, Math.max(0, items.length - 1));
  return (
    <main class="page">
      <div class="page-head">
        <h1>Inbox</h1>
        <p class="muted">
          {items.length > 0 ? "j and k move, a allows, d denies, u takes back, Enter opens the session." : ""}
        </p>
        <CopyButton text="mainspring approvals ls" what="CLI" />
      </div>
      {error.value !== null ? <Failure error={error.value} onRetry={loadApprovals} /> : null}
      {!isLoaded.value && error.value === null ? <Loading what="questions" /> : null}
      {isLoaded.value && items.length === 0 ? (
        <Empty title="Nothing waits for you">
          <p>When an agent asks before it acts, the question appears here.</p>
        </Empty>
      ) : null}
      <div class="inbox">
        {items.map((item, index) => (
          <ApprovalCard key={item.id} approval={item} isSelected={index === current} />
        ))}
      </div>
      {waiting.value.length > items.length && items.length >= LIMIT ? (
        <p class="muted">The {LIMIT} that wait longest of {waiting.value.length}.</p>
      ) : null}
    </main>
  );
}

function onKey(event: KeyboardEvent): boolean {
  const items = approvals.value;
  const current = items[Math.min(cursor.value, items.length - 1)];
  switch (event.key) {
    case "j":
    case "k":
      cursor.value = Math.max(0, Math.min(items.length - 1, cursor.value + (event.key === "j" ? 1 : -1)));
      document
        .querySelector(`[data-approval="${CSS.escape(items[cursor.value]?.id ?? "")}"]`)
        ?.scrollIntoView({ block: "nearest" });
      return true;
    case "a":
    case "d":
      if (current && current.form_schema === null && mayAct(current.may_answer.role))
        answer(current, event.key === "a" ? "allow" : "deny");
      return current !== undefined;
    case "u": {
      const last = [...answers.value.values()].filter((item) => !item.isSent).pop();
      if (last) takeBack(last.approval.id);
      return true;
    }
    case "Enter":
    case "o":
      if (event.target instanceof HTMLElement && event.target.closest("a, button, input, summary")) return false;
      if (current) go(link("sessions", current.session_id));
      return true;
    default:
      return false;
  }
}
