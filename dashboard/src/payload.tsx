// Values, terminal output and diffs, as text. Long ones are shown cut.

import { memo } from "./memo";
import type { Json } from "./types";

const MAX_CHARS = 8000;
const MAX_LINES = 200;

/** What a terminal would show: control sequences are removed, a carriage return starts a line anew. */
export function plainTerminal(text: string): string {
  const clean = text
    // eslint-disable-next-line no-control-regex
    .replace(/\u001b(?:\[[0-9;?]{0,30}[ -/]{0,3}[@-~]|\][^\u0007\u001b]{0,500}(?:\u0007|\u001b\\)|[@-Z\\-_])/g, "")
    .replace(/\r\n/g, "\n");
  return clean
    .split("\n")
    .map((line) => line.slice(line.lastIndexOf("\r") + 1))
    .join("\n");
}

export function cutText(text: string): { text: string; isCut: boolean } {
  const short = text.length > MAX_CHARS ? text.slice(0, MAX_CHARS) : text;
  const lines = short.split("\n");
  const isCut = short.length < text.length || lines.length > MAX_LINES;
  return { text: lines.length > MAX_LINES ? lines.slice(0, MAX_LINES).join("\n") : short, isCut };
}

function isDiff(text: string): boolean {
  return /^(?:--- |\+\+\+ |@@ |diff --git )/m.test(text) && /^[+-]/m.test(text);
}

function diffClass(line: string): string {
  if (line.startsWith("@@") || line.startsWith("diff ")) return "hunk";
  if (line.startsWith("+")) return "added";
  if (line.startsWith("-")) return "removed";
  return "";
}

export const Diff = memo(function Diff({ lines }: { lines: readonly string[] }) {
  return (
    <pre class="diff" tabIndex={0}>
      {lines.map((line) => <span class={diffClass(line)}>{`${line}\n`}</span>)}
    </pre>
  );
});

export const Terminal = memo(function Terminal({ text }: { text: string }) {
  const cut = cutText(plainTerminal(text));
  const note = cut.isCut ? <p class="muted">The beginning of a long text.</p> : null;
  if (isDiff(cut.text))
    return (
      <>
        <Diff lines={cut.text.split("\n")} />
        {note}
      </>
    );
  return (
    <>
      <pre class="terminal" tabIndex={0} dir="auto">
        {cut.text}
      </pre>
      {note}
    </>
  );
});

function flat(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** An object, one field after another: texts as they are, everything else as JSON. */
export const Payload = memo(function Payload({ value }: { value: Json }) {
  if (value === null || typeof value !== "object" || Array.isArray(value))
    return <Terminal text={flat(value)} />;
  const fields = Object.entries(value);
  if (fields.length === 0) return <p class="muted">no input</p>;
  return (
    <dl class="payload">
      {fields.map(([name, item]) => (
        <>
          <dt>{name}</dt>
          <dd>
            {isShort(item) ? <code dir="auto">{flat(item)}</code> : <Terminal text={flat(item)} />}
          </dd>
        </>
      ))}
    </dl>
  );
});

function isShort(value: Json): boolean {
  const text = flat(value);
  return text.length <= 120 && !text.includes("\n");
}

export function JsonText({ value }: { value: Json }) {
  return <Terminal text={JSON.stringify(value, null, 2)} />;
}
