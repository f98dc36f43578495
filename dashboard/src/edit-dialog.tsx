// Runs a session again from one of its messages: a fork from before it, and the edited message.

import { useSignal } from "@preact/signals";
import { explain, post } from "./api";
import { plainText } from "./conversation";
import { go, link, toast } from "./state";
import type { LogEvent } from "./types";
import { Button, Dialog } from "./ui";

export function EditDialog(props: { sessionId: string; event: LogEvent; onClose: () => void }) {
  const { event, sessionId } = props;
  const text = useSignal(event.is_cut ? "" : plainText(event.payload));
  const isBusy = useSignal(false);
  const run = async (): Promise<void> => {
    isBusy.value = true;
    try {
      const path = `/v1/sessions/${encodeURIComponent(sessionId)}/fork`;
      const made = await post<{ id: string }>(path, { at: Math.max(1, event.seq - 1) });
      const message = { type: "user.message", content: [{ type: "text", text: text.value }] };
      await post(`/v1/sessions/${encodeURIComponent(made.id)}/events`, { events: [message] });
      props.onClose();
      go(link("sessions", made.id));
    } catch (error) {
      toast(explain(error), true);
      isBusy.value = false;
    }
  };
  return (
    <Dialog title="Edit and run again" onClose={props.onClose}>
      <p class="muted">
        A fork begins before event {event.seq} and gets this message instead. This session stays as it is.
        {event.is_cut ? " The message is too long to be shown here; write a new one." : ""}
      </p>
      <textarea
        class="edit"
        rows={8}
        aria-label="The message"
        value={text.value}
        onInput={(e) => (text.value = e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && text.value.trim()) void run();
        }}
      />
      <div class="actions">
        <Button kind="primary" disabled={isBusy.value || text.value.trim() === ""} onClick={() => void run()}>
          Run in a fork
        </Button>
      </div>
    </Dialog>
  );
}
