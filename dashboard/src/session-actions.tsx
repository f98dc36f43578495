// What can be done with a whole session: replay it, and make an eval case of it.

import { useSignal } from "@preact/signals";
import { explain, mayAct, me, post } from "./api";
import { Diff } from "./payload";
import { toast } from "./state";
import type { ListedSession, ReplayReport } from "./types";
import { Button, CopyButton, Dialog, Loading } from "./ui";

type Action = "replay" | "case";

export function SessionActions({ session }: { session: ListedSession }) {
  const open = useSignal<Action | null>(null);
  const close = (): void => {
    open.value = null;
  };
  if (!mayAct("user")) return null;
  return (
    <>
      <Button kind="quiet" title="Run it again with the recorded answers, and compare" onClick={() => (open.value = "replay")}>
        Replay
      </Button>
      {mayAct("operator") ? (
        <Button kind="quiet" title="Make a case of this session" onClick={() => (open.value = "case")}>
          Add as eval case
        </Button>
      ) : null}
      {open.value === "replay" ? <ReplayDialog id={session.id} onClose={close} /> : null}
      {open.value === "case" ? <CaseDialog id={session.id} onClose={close} /> : null}
    </>
  );
}

export function ReplayDialog({ id, start, onClose }: { id: string; start?: number; onClose: () => void }) {
  const report = useSignal<ReplayReport | null>(null);
  const isBusy = useSignal(false);
  const run = async (): Promise<void> => {
    isBusy.value = true;
    try {
      report.value = await post<ReplayReport>(`/v1/sessions/${encodeURIComponent(id)}/replay`, start === undefined ? {} : { start });
    } catch (error) {
      toast(explain(error), true);
    }
    isBusy.value = false;
  };
  const result = report.value;
  return (
    <Dialog title="Replay" onClose={onClose}>
      <p class="muted">
        {start === undefined ? "The session" : `The session after event ${start}`} runs again with its recorded answers: no model is asked and no tool
        runs. It shows whether this version would make the same requests.
      </p>
      {result === null ? null : (
        <section class={`verdict ${result.ok ? "good" : "bad"}`}>
          <h3>{result.ok ? "The same requests" : `Call ${result.call ?? "?"} differs`}</h3>
          <p>
            {result.calls} model calls were replayed. {result.what ?? ""}
          </p>
          {result.diff.length > 0 ? <Diff lines={result.diff.slice(0, 400)} /> : null}
        </section>
      )}
      {isBusy.value ? <Loading what="the replay" /> : null}
      <div class="actions">
        <Button kind="primary" disabled={isBusy.value} onClick={() => void run()}>
          {result === null ? "Replay" : "Replay again"}
        </Button>
        <CopyButton text={`mainspring replay ${id}`} what="CLI" />
      </div>
    </Dialog>
  );
}

function CaseDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const suite = useSignal("sessions");
  const name = useSignal(`session-${id.slice(-8)}`);
  const add = async (): Promise<void> => {
    try {
      const added = await post<{ file: string; case_id: string }>(`/v1/sessions/${encodeURIComponent(id)}/eval_case`, {
        suite: suite.value.trim(),
        case: name.value.trim(),
      });
      toast(`${added.case_id} was added to ${added.file}; give it graders`);
      onClose();
    } catch (error) {
      toast(explain(error), true);
    }
  };
  return (
    <Dialog title="Add as eval case" onClose={onClose}>
      <p class="muted">
        The messages of this session become a case, with a recording of the model's replies and of every call's result, in the folder of{" "}
        {me.value?.is_local ? "this agent" : "the service"}.
      </p>
      <div class="form">
        <label>
          <span>Suite</span>
          <input value={suite.value} onInput={(e) => (suite.value = e.currentTarget.value)} />
        </label>
        <label>
          <span>Name of the case</span>
          <input value={name.value} onInput={(e) => (name.value = e.currentTarget.value)} />
        </label>
      </div>
      <div class="actions">
        <Button kind="primary" onClick={() => void add()}>
          Add it
        </Button>
        <CopyButton text={`mainspring eval add ${id} --suite ${suite.value} --id ${name.value}`} what="CLI" />
      </div>
    </Dialog>
  );
}
