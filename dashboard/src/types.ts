// The objects of the API that the dashboard reads. docs/extensions.md describes them.

export type Role = "viewer" | "user" | "operator" | "admin";
export type Status = "running" | "idle" | "rescheduling" | "terminated";

export interface Me {
  tenant_id: string;
  key_id: string;
  name: string;
  role: Role;
  agent_id: string | null;
  version: string;
  is_local: boolean;
  csrf_token: string | null;
}

export interface ListedSession {
  id: string;
  title: string | null;
  agent_id: string;
  agent_name: string;
  agent_version: number;
  status: Status;
  stop_reason: string | null;
  activity: string;
  waits_for: string | null;
  since: string;
  waiting: number;
  threads: number;
  cost_usd: number;
  input_tokens: number;
  output_tokens: number;
  seq: number;
  created_at: string;
  updated_at: string;
  archived_at: string | null;
  origin: string;
  parent_id: string | null;
}

export interface Page<T> {
  data: T[];
  next_page: string | null;
}

export interface FoundSession {
  session: ListedSession;
  seq: number;
  snippet: string;
}

export interface Changes {
  cursor: number;
  sessions: ListedSession[];
  deleted_session_ids: string[];
  approvals: string[] | null;
  is_reset: boolean;
}

export interface Sender {
  kind: "person" | "agent" | "worker" | "system";
  id: string;
  on_behalf_of?: string[];
}

export type Json = string | number | boolean | null | Json[] | { [name: string]: Json };
export type Fields = { [name: string]: Json };

export interface LogEvent {
  seq: number;
  id: string;
  type: string;
  time: string;
  thread_id: string;
  sender: Sender | null;
  hash: string;
  bytes: number;
  is_cut: boolean;
  payload: Fields;
}

export interface WaitingEvent {
  id: string;
  type: string;
  time: string;
  thread_id: string;
  payload: Fields;
}

export interface LogWindow {
  session: ListedSession;
  main_thread_id: string;
  data: LogEvent[];
  waiting: WaitingEvent[];
  has_before: boolean;
  has_after: boolean;
}

export interface Approval {
  id: string;
  session_id: string;
  session_thread_id: string;
  agent_id: string;
  agent_name: string;
  tool_use_id: string;
  name: string;
  input: Fields;
  preview: string | null;
  is_cut: boolean;
  reason: string | null;
  asked_at: string;
  may_answer: { role: Role; four_eyes: boolean };
  expires_at: string | null;
  status: "waiting" | "answered" | "void";
  result: "allow" | "deny" | null;
  answered_by: string | null;
  subagent: string | null;
  subject: { type: string; id: string; evidence?: { title: string; text?: string }[] } | null;
  question: string | null;
  form_schema: Fields | null;
}

export interface Shot {
  call: number;
  seq: number;
  model: string;
  parts: { [name: string]: Json };
  tokens_are_measured: boolean;
  usage: { [name: string]: number } | null;
  cache_break: string | null;
  messages: number;
  kept_messages: number;
  stop_reason: string | null;
  request: Fields | null;
  sources: Fields[];
  tools: Fields[];
}
