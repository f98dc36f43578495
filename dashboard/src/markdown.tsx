// Markdown of models and people, as elements. No HTML passes: every text becomes a text node, and a
// link is one only if it is http(s), is marked with its host, and opens without a referrer.

import type { ComponentChild } from "preact";

const INLINE = /(`+)([\s\S]+?)\1|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]{1,500})\]\((\S{1,2000}?)\)|(https?:\/\/[^\s<>"')\]]{1,2000})/g;
/** A longer line is shown as plain text: an expression on it could take long. */
const MAX_INLINE = 20_000;

export function safeUrl(text: string): URL | null {
  try {
    const url = new URL(text);
    return url.protocol === "https:" || url.protocol === "http:" ? url : null;
  } catch {
    return null;
  }
}

export function OutsideLink({ target, text }: { target: string; text: string }) {
  const url = safeUrl(target);
  if (url === null) return <>{`${text} (${target})`}</>;
  const shown = text.includes(url.host) ? "" : ` (${url.host})`;
  return (
    <a href={url.href} target="_blank" rel="noopener noreferrer nofollow" class="outside">
      {text}
      {shown}
    </a>
  );
}

function inline(text: string): ComponentChild[] {
  if (text.length > MAX_INLINE) return [text];
  const parts: ComponentChild[] = [];
  let last = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > last) parts.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    const [whole, , code, strong, weak, label, target, bare] = match;
    if (code !== undefined) parts.push(<code>{code}</code>);
    else if (strong !== undefined) parts.push(<strong>{strong}</strong>);
    else if (weak !== undefined) parts.push(<em>{weak}</em>);
    else if (label !== undefined && target !== undefined)
      parts.push(<OutsideLink target={target} text={label} />);
    else if (bare !== undefined) parts.push(<OutsideLink target={bare} text={bare} />);
    else parts.push(whole);
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

const FENCE = /^ {0,3}(```+|~~~+)\s*(\S*)/;
const HEADING = /^(#{1,6}) +(.*)$/;
const ITEM = /^(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;
const ROW = /^\s*\|.*\|\s*$/;

function cells(line: string): string[] {
  return line
    .trim()
    .slice(1, -1)
    .split("|")
    .map((cell) => cell.trim());
}

function table(lines: string[]): ComponentChild {
  const [head = "", , ...body] = lines;
  return (
    <div class="scroll-x" tabIndex={0}>
      <table>
        <thead>
          <tr>{cells(head).map((cell) => <th>{inline(cell)}</th>)}</tr>
        </thead>
        <tbody>
          {body.map((row) => <tr>{cells(row).map((cell) => <td>{inline(cell)}</td>)}</tr>)}
        </tbody>
      </table>
    </div>
  );
}

/** Reads blocks one after another; `at` is the next line. */
class Blocks {
  private at = 0;
  private readonly found: ComponentChild[] = [];

  constructor(private readonly lines: string[]) {}

  private line(): string {
    return this.lines[this.at] ?? "";
  }

  private take(fits: (line: string) => boolean): string[] {
    const start = this.at;
    while (this.at < this.lines.length && fits(this.line())) this.at += 1;
    return this.lines.slice(start, this.at);
  }

  read(): ComponentChild[] {
    while (this.at < this.lines.length) this.block();
    return this.found;
  }

  private block(): void {
    const line = this.line();
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (line.trim() === "") this.at += 1;
    else if (fence) this.fence(fence[1] ?? "```");
    else if (heading) {
      this.at += 1;
      this.found.push(<p class="heading">{inline(heading[2] ?? "")}</p>);
    } else if (RULE.test(line)) {
      this.at += 1;
      this.found.push(<hr />);
    } else if (ROW.test(line)) {
      const rows = this.take((item) => ROW.test(item));
      const isTable = rows.length > 1 && /^[\s|:-]+$/.test(rows[1] ?? "");
      this.found.push(isTable ? table(rows) : <p>{inline(rows.join("\n"))}</p>);
    } else if (ITEM.test(line)) this.list();
    else if (line.startsWith(">")) {
      const quoted = this.take((item) => item.startsWith(">"));
      this.found.push(<blockquote>{inline(quoted.map((q) => q.replace(/^> ?/, "")).join("\n"))}</blockquote>);
    } else this.found.push(<p>{inline(this.paragraph())}</p>);
  }

  private fence(mark: string): void {
    this.at += 1;
    const code = this.take((line) => !line.trimStart().startsWith(mark));
    this.at += 1;
    this.found.push(<pre tabIndex={0}>{code.join("\n")}</pre>);
  }

  private list(): void {
    const isOrdered = /^\s*\d/.test(this.line());
    const lines = this.take((line) => ITEM.test(line) || /^\s+\S/.test(line));
    const items: { depth: number; text: string }[] = [];
    for (const line of lines) {
      const match = ITEM.exec(line);
      const last = items[items.length - 1];
      if (match) items.push({ depth: Math.min(3, Math.floor((match[1] ?? "").length / 2)), text: match[2] ?? "" });
      else if (last) last.text += `\n${line.trim()}`;
    }
    const children = items.map((item) => <li class={`depth-${item.depth}`}>{inline(item.text)}</li>);
    this.found.push(isOrdered ? <ol>{children}</ol> : <ul>{children}</ul>);
  }

  private paragraph(): string {
    const begins = (line: string): boolean =>
      line.trim() === "" || FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || ROW.test(line);
    const first = this.line();
    this.at += 1;
    return [first, ...this.take((line) => !begins(line))].join("\n");
  }
}

export function Markdown({ text }: { text: string }) {
  return <div class="markdown" dir="auto">{new Blocks(text.split("\n")).read()}</div>;
}
