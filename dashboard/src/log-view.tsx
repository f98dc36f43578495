// All events of the window as they are in the log, each with the mark of the hash chain.

import { useSignal } from "@preact/signals";
import { bytes, clockTime, shortened } from "./format";
import { memo } from "./memo";
import type { SessionModel } from "./model";
import type { LogEvent } from "./types";
import { Button } from "./ui";

const MAX_SHOWN = 300;

const LogRow = memo(function LogRow(props: { event: LogEvent; onEvent: (event: LogEvent) => void }) {
  const { event } = props;
  return (
    <tr data-seq={event.seq}>
      <td class="number">{event.seq}</td>
      <td>
        <time dateTime={event.time}>{clockTime(event.time)}</time>
      </td>
      <td>
        <button type="button" class="button quiet" onClick={() => props.onEvent(event)}>
          {event.type}
        </button>
      </td>
      <td class="main wide" dir="auto">
        {shortened(JSON.stringify(event.payload), 160)}
      </td>
      <td class="number wide">{bytes(event.bytes)}</td>
      <td>
        <code title={event.hash}>{event.hash.slice(0, 8)}</code>
      </td>
    </tr>
  );
});

export function LogView(props: { model: SessionModel; onEvent: (event: LogEvent) => void }) {
  const { model } = props;
  const filter = useSignal("");
  const events = model.events.value.filter((event) => event.type.includes(filter.value));
  return (
    <div class="log-list" tabIndex={0} role="region" aria-label="Events">
      <p class="bar">
        <input
          type="search"
          placeholder="Type of event"
          aria-label="Type of event"
          onInput={(event) => (filter.value = event.currentTarget.value.trim())}
        />
        {model.hasBefore.value ? (
          <Button disabled={model.isLoading.value} onClick={() => void model.older()}>
            Earlier events
          </Button>
        ) : null}
        <span class="muted">Each hash contains the one before it; mainspring log verify checks them.</span>
      </p>
      <table class="log">
        <thead>
          <tr>
            <th class="number">Event</th>
            <th>Time</th>
            <th>Type</th>
            <th class="wide">Content</th>
            <th class="number wide">Size</th>
            <th>Hash</th>
          </tr>
        </thead>
        <tbody>
          {events.slice(-MAX_SHOWN).map((event) => (
            <LogRow key={event.seq} event={event} onEvent={props.onEvent} />
          ))}
        </tbody>
      </table>
      {model.hasAfter.value ? (
        <p>
          <Button disabled={model.isLoading.value} onClick={() => void model.newer()}>
            Later events
          </Button>
        </p>
      ) : null}
    </div>
  );
}
