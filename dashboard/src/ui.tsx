// Parts that all pages use.

import { Component, type ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { explain } from "./api";
import { age, clock, dateTime } from "./format";
import { copy } from "./state";
import type { ListedSession } from "./types";

const ICONS = {
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  closed: "M6 4l4 4-4 4",
  open: "M4 6l4 4 4-4",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  close: "M4 4l8 8M12 4l-8 8",
  search: "M7 11.5a4.5 4.5 0 1 1 0-9 4.5 4.5 0 0 1 0 9zM10.5 10.5L14 14",
} as const;

export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

export function Button(props: {
  onClick: () => void;
  children: ComponentChildren;
  kind?: "plain" | "primary" | "danger" | "quiet";
  disabled?: boolean;
  title?: string;
  label?: string;
  pressed?: boolean;
}) {
  return (
    <button
      type="button"
      class={`button ${props.kind ?? "plain"}`}
      onClick={props.onClick}
      disabled={props.disabled ?? false}
      title={props.title}
      aria-label={props.label}
      aria-pressed={props.pressed}
    >
      {props.children}
    </button>
  );
}

/** Views of one thing, of which one is shown. */
export function Tabs<Name extends string>(props: {
  label: string;
  names: Readonly<Record<Name, string>>;
  chosen: Name;
  onChoose: (name: Name) => void;
}) {
  const names = Object.keys(props.names) as Name[];
  return (
    <div class="tabs" role="tablist" aria-label={props.label}>
      {names.map((name) => (
        <button
          key={name}
          type="button"
          role="tab"
          aria-selected={props.chosen === name}
          class={props.chosen === name ? "tab chosen" : "tab"}
          onClick={() => props.onChoose(name)}
        >
          {props.names[name]}
        </button>
      ))}
    </div>
  );
}

export function CopyButton({ text, what }: { text: string; what: string }) {
  return (
    <Button kind="quiet" onClick={() => void copy(text)} title={text}>
      {what}
    </Button>
  );
}

export function Age({ time, isSentence }: { time: string; isSentence?: boolean }) {
  const text = age(time, clock.value);
  return (
    <time dateTime={time} title={dateTime(time)}>
      {isSentence && text !== "now" ? `${text} ago` : text}
    </time>
  );
}

/** What a status is called and how urgent it looks; an archived session is `ended`. */
export function statusOf(session: ListedSession): { name: string; text: string } {
  if (session.archived_at !== null) return { name: "ended", text: "archived" };
  if (session.waiting > 0) return { name: "waiting", text: "needs you" };
  switch (session.status) {
    case "running":
      return { name: "running", text: "running" };
    case "rescheduling":
      return { name: "late", text: "retrying" };
    case "terminated":
      return { name: "ended", text: "ended" };
    case "idle":
      return session.stop_reason === null || session.stop_reason === "end_turn"
        ? { name: "idle", text: session.stop_reason === null ? "new" : "done" }
        : session.stop_reason === "requires_action"
          ? { name: "waiting", text: "waiting" }
          : { name: "failed", text: session.stop_reason.replace(/_/g, " ") };
  }
}

export function StatusBadge({ session }: { session: ListedSession }) {
  const status = statusOf(session);
  return <span class={`badge ${status.name}`}>{status.text}</span>;
}

/** What it does, unless its state says the same. */
export function Activity({ session }: { session: ListedSession }) {
  if (session.activity === statusOf(session).text) return null;
  return (
    <span class="activity" dir="auto">
      {session.activity}
    </span>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="state" role="status">
      Loading {what}…
    </p>
  );
}

export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <div class="state failure" role="alert">
      <p>{explain(error)}</p>
      {onRetry ? <Button onClick={onRetry}>Try again</Button> : null}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A dialog in the top layer: the browser keeps the focus in it, and Escape closes it. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog
      ref={element}
      aria-label={props.title}
      onClose={props.onClose}
      onClick={(event) => {
        if (event.target === element.current) element.current?.close();
      }}
    >
      <div class="dialog-head">
        <h2>{props.title}</h2>
        <Button kind="quiet" label="Close" onClick={() => element.current?.close()}>
          <Icon name="close" />
        </Button>
      </div>
      {props.children}
    </dialog>
  );
}

/** Keeps a mistake in one part of the page from blanking all of it. */
export class Guard extends Component<{ children: ComponentChildren; name: string }, { error: unknown }> {
  override state: { error: unknown } = { error: null };

  static override getDerivedStateFromError(error: unknown): { error: unknown } {
    return { error };
  }

  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <Failure
        error={new Error(`this part cannot be shown (${explain(this.state.error)})`)}
        onRetry={() => this.setState({ error: null })}
      />
    );
  }
}
