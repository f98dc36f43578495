// Starts the dashboard: who is signed in, then the page.

import { signal } from "@preact/signals";
import { render } from "preact";
import { ApiError, explain, isOnline, me, readMe, signIn } from "./api";
import { answers } from "./answers";
import { clock } from "./format";
import { followApprovals } from "./inbox";
import { checkVersion, startLive } from "./live";
import { followTitle, Shell } from "./shell";
import { SignIn } from "./sign-in";
import { readPreferences, refreshPlace } from "./state";
import "./style.css";
import { Failure, Loading } from "./ui";

const failure = signal<unknown>(null);
const why = signal<string | null>(null);
const isStarted = signal(false);

const TICK_MS = 1000;
/** Ages are drawn anew so often, unless an answer counts down. */
const TICKS = 5;
const VERSION_MS = 60_000;

/** A one-time token in the address, which `mainspring ui` opens, is exchanged and removed at once. */
function tokenFromAddress(): string | null {
  const match = /^#token=([\w-]{20,200})$/.exec(window.location.hash);
  if (match === null) return null;
  window.history.replaceState(null, "", window.location.pathname);
  refreshPlace();
  return match[1] ?? null;
}

async function start(): Promise<void> {
  readPreferences();
  const token = tokenFromAddress();
  try {
    if (token !== null) await signIn(token);
    else await readMe();
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) why.value = token === null ? null : explain(error);
    else failure.value = error;
  }
  isStarted.value = true;
  if (me.value !== null) begin();
}

function begin(): void {
  startLive();
  followApprovals();
  followTitle();
  let ticks = 0;
  window.setInterval(() => {
    ticks += 1;
    const isCounting = answers.value.size > 0;
    if (document.visibilityState === "visible" && (isCounting || ticks % TICKS === 0)) clock.value = Date.now();
  }, TICK_MS);
  window.setInterval(() => void checkVersion(), VERSION_MS);
  window.addEventListener("online", () => void checkVersion());
  window.setInterval(() => {
    if (!isOnline.value) void checkVersion();
  }, 5000);
}

function App() {
  if (failure.value !== null)
    return <Failure error={failure.value} onRetry={() => window.location.reload()} />;
  if (!isStarted.value) return <Loading what="the dashboard" />;
  if (me.value === null) return <SignIn why={why.value} onDone={begin} />;
  return <Shell />;
}

const root = document.getElementById("app");
if (root !== null) render(<App />, root);
void start();
