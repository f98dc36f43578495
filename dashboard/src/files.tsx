// The files of a session: what changed from snapshot to snapshot, and going back to one of them.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { explain, get, mayAct, me, post } from "./api";
import { count } from "./format";
import type { SessionModel } from "./model";
import { Diff } from "./payload";
import { toast } from "./state";
import type { ChangedFile, FilesDiff, Page, RewoundFiles, Snapshot } from "./types";
import { Age, Button, CopyButton, Empty, Failure, Loading } from "./ui";

const SIGNS = { added: "+", modified: "~", removed: "−" } as const;

function ChangedFiles(props: { path: string; since: number; to: number | null; data: readonly ChangedFile[]; more: number }) {
  const open = useSignal<string | null>(null);
  const diff = useSignal<FilesDiff | null>(null);
  const show = async (file: string): Promise<void> => {
    open.value = open.value === file ? null : file;
    diff.value = null;
    if (open.value === null) return;
    try {
      const answer = await get<FilesDiff>(`${props.path}/snapshots/diff`, { since: props.since, to: props.to, path: file });
      if (open.value === file) diff.value = answer;
    } catch (error) {
      toast(explain(error), true);
    }
  };
  if (props.data.length === 0) return <p class="muted">No file is different.</p>;
  return (
    <ul class="files">
      {props.data.map((file) => (
        <li key={file.path}>
          <button type="button" class="fold" aria-expanded={open.value === file.path} onClick={() => void show(file.path)}>
            <span class={`sign ${file.change}`} aria-hidden="true">
              {SIGNS[file.change]}
            </span>
            <span class="hidden">{file.change}</span>
            <code dir="auto">{file.path}</code>
          </button>
          {open.value !== file.path ? null : diff.value === null ? (
            <Loading what="the file" />
          ) : diff.value.lines === null ? (
            <p class="muted">It is no text, or too large to compare.</p>
          ) : (
            <>
              <Diff lines={diff.value.lines} />
              {diff.value.is_cut ? <p class="muted">The beginning of a long comparison.</p> : null}
            </>
          )}
        </li>
      ))}
      {props.more > 0 ? <li class="muted">and {count(props.more)} more</li> : null}
    </ul>
  );
}

function Snapshots(props: { snapshots: readonly Snapshot[]; chosen: number; onChoose: (seq: number) => void }) {
  return (
    <ol class="snapshots" aria-label="Snapshots">
      {props.snapshots.map((item, index) => (
        <li key={item.seq}>
          <button
            type="button"
            class={item.seq === props.chosen ? "command chosen" : "command"}
            aria-pressed={item.seq === props.chosen}
            onClick={() => props.onChoose(item.seq)}
          >
            <span>{item.is_restored ? "Restored" : index === props.snapshots.length - 1 ? "At the start" : "Changed"}</span>
            <span class="muted">
              event {item.seq}
              {item.files === null ? "" : `, ${count(item.files)} files`},{" "}
              <Age time={item.created_at} isSentence />
            </span>
          </button>
        </li>
      ))}
    </ol>
  );
}

function Rewind(props: {
  model: SessionModel;
  path: string;
  seq: number;
  /** Shows what a restore would undo. */
  onAsk: () => void;
  onDone: (done: RewoundFiles) => void;
}) {
  const isSure = useSignal(false);
  const isBusy = useSignal(false);
  const session = props.model.session.value;
  if (session === null || !mayAct("user")) return null;
  if (session.status === "running") return <p class="muted">Files can be restored while it does not run.</p>;
  const rewind = async (): Promise<void> => {
    isBusy.value = true;
    try {
      const done = await post<RewoundFiles>(`${props.path}/rewind`, { to: props.seq, head: session.seq });
      toast(done.data.length === 0 ? "the files are so already" : `${done.data.length + done.more} files were restored`);
      props.onDone(done);
      await props.model.refresh();
    } catch (error) {
      toast(explain(error), true);
    } finally {
      isBusy.value = false;
      isSure.value = false;
    }
  };
  return isSure.value ? (
    <>
      <span class="muted">This undoes what is listed below, also if others did it.</span>
      <Button kind="danger" disabled={isBusy.value} onClick={() => void rewind()}>
        Restore the files
      </Button>
      <Button onClick={() => (isSure.value = false)}>Not now</Button>
    </>
  ) : (
    <Button
      onClick={() => {
        isSure.value = true;
        props.onAsk();
      }}
    >
      Restore these files…
    </Button>
  );
}

export function FilesView({ model }: { model: SessionModel }) {
  const path = `/v1/sessions/${encodeURIComponent(model.id)}`;
  const snapshots = useSignal<readonly Snapshot[] | null>(null);
  const failure = useSignal<unknown>(null);
  const chosen = useSignal<number | null>(null);
  const isSinceThen = useSignal(false);
  const diff = useSignal<FilesDiff | null>(null);
  const undo = useSignal<number | null>(null);
  const load = async (): Promise<void> => {
    failure.value = null;
    try {
      snapshots.value = (await get<Page<Snapshot>>(`${path}/snapshots`, { limit: 200 })).data;
    } catch (error) {
      failure.value = error;
    }
  };
  const session = model.session.value;
  const isRunning = session?.status === "running";
  useEffect(() => void load(), [model, isRunning]);
  const list = snapshots.value ?? [];
  const seq = chosen.value ?? list[0]?.seq ?? null;
  const at = list.findIndex((item) => item.seq === seq);
  const before = list[at + 1]?.seq ?? null;
  const since = isSinceThen.value ? seq : (before ?? seq);
  const to = isSinceThen.value ? null : seq;
  useEffect(() => {
    diff.value = null;
    if (since === null) return;
    let isOld = false;
    get<FilesDiff>(`${path}/snapshots/diff`, { since, to })
      .then((answer) => {
        if (!isOld) diff.value = answer;
      })
      .catch((error: unknown) => {
        if (!isOld) failure.value = error;
      });
    return () => {
      isOld = true;
    };
  }, [since, to, list.length]);
  if (failure.value !== null) return <Failure error={failure.value} onRetry={() => void load()} />;
  if (snapshots.value === null) return <Loading what="the files" />;
  if (seq === null || since === null)
    return (
      <Empty title="No file was changed">
        <p>Before and after it changes files, a session takes snapshots. They appear here.</p>
      </Empty>
    );
  return (
    <div class="split log-list" tabIndex={0} role="region" aria-label="Files">
      <Snapshots snapshots={list} chosen={seq} onChoose={(value) => (chosen.value = value)} />
      <section aria-label="Changed files">
        <div class="bar">
          <label class="check">
            <input type="checkbox" checked={isSinceThen.value} onChange={(e) => (isSinceThen.value = e.currentTarget.checked)} />
            from here to now
          </label>
          <Rewind
            model={model}
            path={path}
            seq={seq}
            onAsk={() => (isSinceThen.value = true)}
            onDone={(done) => {
              undo.value = done.undo;
              isSinceThen.value = false;
              void load();
            }}
          />
          {undo.value !== null ? (
            <Button onClick={() => ((chosen.value = undo.value), (undo.value = null))}>Show how they were before</Button>
          ) : null}
          <CopyButton text={`mainspring sessions diff ${model.id} --from ${since}${to === null ? "" : ` --to ${to}`}`} what="CLI" />
        </div>
        {diff.value === null ? (
          <Loading what="the changes" />
        ) : (
          <ChangedFiles key={`${since}-${to}`} path={path} since={since} to={to} data={diff.value.data} more={diff.value.more} />
        )}
        {me.value?.is_local ? null : (
          <p class="muted">To go back with the conversation too, fork at an event: the fork has the files as they were then.</p>
        )}
      </section>
    </div>
  );
}
