// One question to a person: exactly what will run, why it is asked, and the answer.

import { useState } from "preact/hooks";
import { answer, answers, takeBack } from "./answers";
import { mayAct } from "./api";
import { clock } from "./format";
import { Payload, Terminal } from "./payload";
import { link } from "./state";
import type { Approval, Fields } from "./types";
import { Age, Button } from "./ui";

function Undo({ id }: { id: string }) {
  const given = answers.value.get(id);
  if (given === undefined) return null;
  const word = given.result === "allow" ? "Allowed" : "Denied";
  if (given.isSent)
    return (
      <p class="undo" role="status">
        {word}.
      </p>
    );
  const left = Math.max(0, Math.ceil((given.due - clock.value) / 1000));
  return (
    <p class="undo" role="status">
      {word}; sent in {left} s.{" "}
      <Button kind="primary" onClick={() => takeBack(id)}>
        Take back (u)
      </Button>
    </p>
  );
}

function FormFields(props: {
  schema: Fields;
  form: Fields;
  onChange: (form: Fields) => void;
}) {
  const properties = (props.schema["properties"] ?? {}) as { [name: string]: Fields };
  return (
    <div class="form">
      {Object.entries(properties).map(([name, field]) => (
        <FormField
          name={name}
          field={field}
          value={props.form[name]}
          onChange={(value) => props.onChange({ ...props.form, [name]: value })}
        />
      ))}
    </div>
  );
}

function FormField(props: {
  name: string;
  field: Fields;
  value: Fields[string] | undefined;
  onChange: (value: Fields[string]) => void;
}) {
  const { field, value } = props;
  const title = typeof field["title"] === "string" ? field["title"] : props.name;
  const choices = Array.isArray(field["enum"]) ? field["enum"] : null;
  const about = typeof field["description"] === "string" ? field["description"] : null;
  const onText = (text: string): void =>
    props.onChange(field["type"] === "number" || field["type"] === "integer" ? Number(text) : text);
  return (
    <label>
      <span>{title}</span>
      {about ? <small>{about}</small> : null}
      {choices ? (
        <select value={String(value ?? "")} onChange={(e) => props.onChange(e.currentTarget.value)}>
          <option value="">choose</option>
          {choices.map((choice) => (
            <option value={String(choice)}>{String(choice)}</option>
          ))}
        </select>
      ) : field["type"] === "boolean" ? (
        <input
          type="checkbox"
          checked={value === true}
          onChange={(e) => props.onChange(e.currentTarget.checked)}
        />
      ) : (
        <input value={String(value ?? "")} onInput={(e) => onText(e.currentTarget.value)} />
      )}
    </label>
  );
}

/** Evidence that the preview does not show already. */
function isMore(approval: Approval): (item: { title: string }) => boolean {
  return (item) => approval.preview === null || item.title !== "preview";
}

export function ApprovalCard(props: { approval: Approval; isSelected?: boolean; inSession?: boolean }) {
  const { approval } = props;
  const [form, setForm] = useState<Fields>({});
  const [reason, setReason] = useState("");
  const given = answers.value.get(approval.id);
  const may = mayAct(approval.may_answer.role);
  const allow = (forSession: boolean): void =>
    answer(approval, "allow", { form: approval.form_schema ? form : undefined, forSession } as {
      form?: Fields;
      forSession: boolean;
    });
  return (
    <article
      class={`approval${props.isSelected ? " selected" : ""}`}
      data-approval={approval.id}
      aria-label={`${approval.agent_name} asks: ${approval.name}`}
    >
      <header>
        <span class="badge waiting">asks</span>
        <strong dir="auto">{approval.question ?? `Run ${approval.name}?`}</strong>
        <span class="muted">
          {approval.subagent ? `${approval.subagent} of ` : ""}
          {approval.agent_name} · <Age time={approval.asked_at} isSentence />
          {props.inSession ? null : (
            <>
              {" · "}
              <a href={link("sessions", approval.session_id)}>session</a>
            </>
          )}
        </span>
      </header>
      {approval.preview ? <Terminal text={approval.preview} /> : <Payload value={approval.input} />}
      {approval.is_cut ? (
        <p class="warning">
          This is only a part of the call. <a href={link("sessions", approval.session_id)}>The session</a> has all of it.
        </p>
      ) : null}
      {approval.reason ? <p class="muted">Why you are asked: {approval.reason}</p> : null}
      {(approval.subject?.evidence ?? []).filter(isMore(approval)).map((item) => (
        <details>
          <summary>{item.title}</summary>
          <Terminal text={item.text ?? ""} />
        </details>
      ))}
      {approval.form_schema && may ? (
        <FormFields schema={approval.form_schema} form={form} onChange={setForm} />
      ) : null}
      {given ? (
        <Undo id={approval.id} />
      ) : may ? (
        <div class="actions">
          <Button kind="primary" onClick={() => allow(false)}>
            Allow
          </Button>
          <Button kind="danger" onClick={() => answer(approval, "deny", { message: reason })}>
            Deny
          </Button>
          {mayAct("operator") && approval.question === null ? (
            <Button onClick={() => allow(true)} title="Similar calls in this session are not asked about">
              Allow for this session
            </Button>
          ) : null}
          <input
            class="reason"
            placeholder="Reason, if you deny"
            aria-label="Reason, if you deny"
            value={reason}
            maxLength={2000}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        </div>
      ) : (
        <p class="muted">Answering needs the role {approval.may_answer.role}.</p>
      )}
    </article>
  );
}
