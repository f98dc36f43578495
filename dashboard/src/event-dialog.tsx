// One event as it is in the log, and what can be done from it.

import { useSignal } from "@preact/signals";
import { explain, mayAct, me, post } from "./api";
import { bytes, dateTime } from "./format";
import { JsonText } from "./payload";
import { ReplayDialog } from "./session-actions";
import { go, link, toast } from "./state";
import type { LogEvent } from "./types";
import { Button, CopyButton, Dialog } from "./ui";

export function EventDialog(props: { sessionId: string; event: LogEvent; onClose: () => void }) {
  const { event, sessionId } = props;
  const isBusy = useSignal(false);
  const isReplaying = useSignal(false);
  const path = `/v1/sessions/${encodeURIComponent(sessionId)}`;
  const place_ = `${window.location.origin}/${link("sessions", sessionId)}?at=${event.seq}`;
  const fork = async (): Promise<void> => {
    isBusy.value = true;
    try {
      const made = await post<{ id: string }>(`${path}/fork`, { at: event.seq });
      toast(`forked at event ${event.seq}`);
      props.onClose();
      go(link("sessions", made.id));
    } catch (error) {
      toast(explain(error), true);
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <Dialog title={`Event ${event.seq}: ${event.type}`} onClose={props.onClose}>
      <dl class="payload">
        <dt>time</dt>
        <dd>{dateTime(event.time)}</dd>
        <dt>id</dt>
        <dd>
          <code>{event.id}</code>
        </dd>
        <dt>thread</dt>
        <dd>
          <code>{event.thread_id}</code>
        </dd>
        <dt>sender</dt>
        <dd>{event.sender ? `${event.sender.kind} ${event.sender.id}` : "the session itself"}</dd>
        <dt>hash</dt>
        <dd>
          <code title="SHA-256 of the event, which contains the hash of the one before it">{event.hash.slice(0, 24)}…</code>
        </dd>
        <dt>size</dt>
        <dd>{bytes(event.bytes)}</dd>
      </dl>
      <JsonText value={event.payload} />
      <div class="actions">
        {event.is_cut ? (
          <a class="button plain" href={`${path}/log/event?seq=${event.seq}`} download>
            Download all of it
          </a>
        ) : null}
        {mayAct("user") ? (
          <Button disabled={isBusy.value} onClick={() => void fork()}>
            Fork here
          </Button>
        ) : null}
        {mayAct("user") ? <Button onClick={() => (isReplaying.value = true)}>Replay from here</Button> : null}
        {isReplaying.value ? (
          <ReplayDialog id={sessionId} start={event.seq} onClose={() => (isReplaying.value = false)} />
        ) : null}
        <CopyButton text={place_} what="Link" />
        <CopyButton text={event.id} what="id" />
        <CopyButton
          text={`mainspring sessions fork ${sessionId} --at ${event.seq}`}
          what={me.value?.is_local ? "CLI: fork" : "CLI"}
        />
      </div>
    </Dialog>
  );
}
