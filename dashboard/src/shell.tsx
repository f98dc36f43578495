// The frame: navigation, banners, messages, the command palette, keys.

import { effect, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, isOnline, isSignedOut, me, signOut } from "./api";
import { zone } from "./format";
import { InboxPage, openApprovals } from "./inbox";
import { connection, newVersion } from "./live";
import { CampaignPage } from "./campaign";
import { ComparePage } from "./compare";
import { EvalRunPage } from "./eval-run";
import { RunsPage } from "./runs";
import { WorkflowRunPage } from "./workflow-run";
import { SessionPage } from "./session";
import { SessionsPage } from "./sessions";
import { go, link, notifies, pageUses, place, section, storePreferences, theme, toast, toasts, type Theme } from "./state";
import type { FoundSession, ListedSession, Page } from "./types";
import { Button, Dialog, Empty, Guard, Icon } from "./ui";

const isPaletteOpen = signal(false);
const isHelpOpen = signal(false);

const SECTIONS: readonly { name: string; text: string; key: string }[] = [
  { name: "sessions", text: "Sessions", key: "s" },
  { name: "inbox", text: "Inbox", key: "i" },
  { name: "runs", text: "Runs", key: "r" },
];

interface Command {
  text: string;
  hint: string;
  run: () => void;
}

function cycleTheme(): void {
  const order: Theme[] = ["system", "light", "dark"];
  theme.value = order[(order.indexOf(theme.value) + 1) % order.length] ?? "system";
  storePreferences();
  toast(`theme: ${theme.value}`);
}

function toggleZone(): void {
  zone.value = zone.value === "utc" ? "local" : "utc";
  storePreferences();
  toast(`times: ${zone.value === "utc" ? "UTC" : "local"}`);
}

async function toggleNotifications(): Promise<void> {
  if (!notifies.value && typeof Notification !== "undefined" && Notification.permission !== "granted")
    await Notification.requestPermission();
  notifies.value = !notifies.value && typeof Notification !== "undefined" && Notification.permission === "granted";
  storePreferences();
  toast(notifies.value ? "you are notified about new questions" : "no notifications");
}

function commands(): Command[] {
  return [
    ...SECTIONS.map(({ name, text, key }) => ({ text: `Go to ${text}`, hint: `g ${key}`, run: () => go(link(name)) })),
    { text: "Change the theme", hint: theme.value, run: cycleTheme },
    { text: "Times: local or UTC", hint: zone.value, run: toggleZone },
    { text: "Notify me about questions", hint: notifies.value ? "on" : "off", run: () => void toggleNotifications() },
    { text: "Keys", hint: "?", run: () => (isHelpOpen.value = true) },
    { text: "Sign out", hint: "", run: () => void signOut().then(() => window.location.reload()) },
  ];
}

function Palette() {
  const text = useSignal("");
  const index = useSignal(0);
  const found = useSignal<Command[]>([]);
  useEffect(() => {
    let isOld = false;
    const query = text.value.trim();
    const timer = window.setTimeout(() => {
      void sessionsFor(query).then((items) => {
        if (!isOld) found.value = items;
      });
    }, 200);
    return () => {
      isOld = true;
      window.clearTimeout(timer);
    };
  }, [text.value]);
  const words = text.value.toLowerCase();
  const items = [...commands().filter((item) => item.text.toLowerCase().includes(words)), ...found.value];
  const run = (item: Command | undefined): void => {
    isPaletteOpen.value = false;
    item?.run();
  };
  return (
    <Dialog title="Commands" onClose={() => (isPaletteOpen.value = false)}>
      <input
        class="palette"
        aria-label="Command or session"
        placeholder="A command, or words of a session"
        value={text.value}
        autofocus
        onInput={(event) => {
          text.value = event.currentTarget.value;
          index.value = 0;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") run(items[index.value]);
          if (event.key === "ArrowDown") index.value = Math.min(items.length - 1, index.value + 1);
          if (event.key === "ArrowUp") index.value = Math.max(0, index.value - 1);
          if (event.key.startsWith("Arrow")) event.preventDefault();
        }}
      />
      <ul class="commands">
        {items.slice(0, 20).map((item, at) => (
          <li>
            <button type="button" class={at === index.value ? "command chosen" : "command"} onClick={() => run(item)}>
              <span dir="auto">{item.text}</span> <span class="muted">{item.hint}</span>
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

async function sessionsFor(query: string): Promise<Command[]> {
  const command = (session: ListedSession): Command => ({
    text: session.title ?? session.id,
    hint: session.activity,
    run: () => go(link("sessions", session.id)),
  });
  try {
    if (query.startsWith("sesn_")) return [{ text: query, hint: "session", run: () => go(link("sessions", query)) }];
    if (query.length < 3) return [];
    const page = await get<Page<FoundSession>>("/v1/mainspring/search", { query, limit: 8 });
    return page.data.map((item) => command(item.session));
  } catch {
    return [];
  }
}

const KEYS: readonly [string, string][] = [
  ["Ctrl+K", "commands and sessions"],
  ["g s, g i, g r", "sessions, inbox, runs"],
  ["j, k", "next, previous"],
  ["Enter", "open"],
  ["/", "search"],
  ["x", "select a session"],
  ["a, d, u", "inbox: allow, deny, take back"],
  ["1 to 6", "session: conversation, timeline, files, log, context, cost"],
  ["i", "session: write a message"],
  ["Esc", "back"],
];

function Help() {
  return (
    <Dialog title="Keys" onClose={() => (isHelpOpen.value = false)}>
      <dl class="payload">
        {KEYS.map(([key, text]) => (
          <>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </>
        ))}
      </dl>
    </Dialog>
  );
}

function Banner() {
  if (isSignedOut.value)
    return (
      <p class="banner bad" role="alert">
        You are signed out. <Button onClick={() => window.location.reload()}>Sign in</Button>
      </p>
    );
  if (!isOnline.value)
    return (
      <p class="banner bad" role="alert">
        The server cannot be reached; what you see may be old. Trying again.
      </p>
    );
  if (newVersion.value !== null)
    return (
      <p class="banner" role="status">
        The server runs {newVersion.value} now. <Button onClick={() => window.location.reload()}>Reload</Button>
      </p>
    );
  if (connection.value === "late")
    return (
      <p class="banner" role="status">
        Late: the connection was cut, and is being opened again.
      </p>
    );
  if (connection.value === "polling")
    return (
      <p class="banner" role="status">
        A proxy holds the live stream back, so changes are asked for every 1.5 seconds.
      </p>
    );
  return null;
}

function Navigation() {
  const questions = openApprovals().length;
  const who = me.value;
  return (
    <header class="top">
      <a class="brand" href={link("sessions")}>
        <svg class="mark" viewBox="0 0 16 16" aria-hidden="true">
          <path d="M8 8.2a1 1 0 1 1 1-1 2.4 2.4 0 1 1-2.4-2.4A3.9 3.9 0 1 1 10.500 8.7 5.400 5.400 0 1 1 5.100 3.300" />
        </svg>
        Mainspring
      </a>
      <nav aria-label="Main">
        {SECTIONS.map(({ name, text }) => (
          <a href={link(name)} aria-current={section.value === name ? "page" : undefined}>
            {text}
            {name === "inbox" && questions > 0 ? <span class="count">{questions}</span> : null}
          </a>
        ))}
      </nav>
      <button type="button" class="palette-button" title="Ctrl+K" onClick={() => (isPaletteOpen.value = true)}>
        <Icon name="search" />
        <span>Commands</span>
        <kbd aria-hidden="true">Ctrl K</kbd>
      </button>
      <span class="who" title={who === null ? "" : `${who.role} of ${who.tenant_id}`}>
        <span class={`dot ${connection.value}`} />
        <span class="hidden">{connection.value}</span>
        <span class="wide">
          {who?.name || who?.key_id} · {who?.role}
        </span>
      </span>
    </header>
  );
}

function Content() {
  const [name = "sessions", id, more] = place.value.path;
  if (name === "sessions" && id !== undefined) return <SessionPage key={id} id={id} />;
  if (name === "sessions") return <SessionsPage />;
  if (name === "inbox") return <InboxPage />;
  if (name === "compare" && id !== undefined && more !== undefined)
    return <ComparePage key={`${id} ${more}`} first={id} second={more} />;
  if (name === "runs" && more === undefined) return <RunsPage kind={id} />;
  if (name === "runs" && id === "workflows") return <WorkflowRunPage key={more} id={more ?? ""} />;
  if (name === "runs" && id === "evals") return <EvalRunPage key={more} id={more ?? ""} />;
  if (name === "runs" && id === "campaigns") return <CampaignPage key={more} id={more ?? ""} />;
  return (
    <main class="page">
      <Empty title="There is no such page">
        <a href={link("sessions")}>Sessions</a>
      </Empty>
    </main>
  );
}

export function Shell() {
  useEffect(() => {
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  return (
    <>
      <Navigation />
      <Banner />
      <Guard name="page">
        <Content />
      </Guard>
      {isPaletteOpen.value ? <Palette /> : null}
      {isHelpOpen.value ? <Help /> : null}
      <div class="toasts" role="status" aria-live="polite">
        {toasts.value.map((item) => (
          <p key={item.id} class={item.isError ? "toast bad" : "toast"}>
            {item.text}
          </p>
        ))}
      </div>
    </>
  );
}

let isAfterG = false;

function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return target.type !== "checkbox";
  return target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function onKey(event: KeyboardEvent): void {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    isPaletteOpen.value = true;
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (isAfterG) {
    isAfterG = false;
    const target = SECTIONS.find((item) => item.key === event.key);
    if (target) {
      go(link(target.name));
      event.preventDefault();
      return;
    }
  }
  if (event.key === "g") isAfterG = true;
  else if (event.key === "?") isHelpOpen.value = true;
  else if (!pageUses(event)) return;
  event.preventDefault();
}

/** The number of questions is in the title, also while another tab is open. */
export function followTitle(): () => void {
  return effect(() => {
    const number = openApprovals().length;
    const name = place.value.path[0] ?? "sessions";
    document.title = `${number > 0 ? `(${number}) ` : ""}${name[0]?.toUpperCase() ?? ""}${name.slice(1)} · Mainspring`;
  });
}
