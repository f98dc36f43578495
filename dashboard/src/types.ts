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

export interface Snapshot {
  seq: number;
  created_at: string;
  files: number | null;
  is_restored: boolean;
}

export interface ChangedFile {
  path: string;
  change: "added" | "modified" | "removed";
}

export interface FilesDiff {
  data: ChangedFile[];
  more: number;
  lines: string[] | null;
  is_cut: boolean;
}

export interface RewoundFiles {
  to: number;
  undo: number;
  data: ChangedFile[];
  more: number;
}

export interface Bill {
  key: string;
  calls: number;
  failed: number;
  cost_usd: string;
  usage: {
    input_tokens: number;
    output_tokens: number;
    cache_read_input_tokens: number;
    cache_creation_input_tokens: number;
  };
}

export interface CostReport {
  data: Bill[];
  total: Bill;
}

export interface ReplayReport {
  ok: boolean;
  calls: number;
  call: number | null;
  what: string | null;
  diff: string[];
}

export interface WorkflowRunLine {
  id: string;
  workflow: string;
  title: string | null;
  status: string;
  created_at: string;
  updated_at: string | null;
  cost_usd: string;
  nodes: { [status: string]: number };
  node_count: number;
  waiting: string[];
  error: string | null;
}

export interface WorkflowNode {
  node: string;
  kind: string;
  status: string;
  attempt: number;
  started_at: string | null;
  ended_at: string | null;
  cost_usd: string;
  depends_on: string[];
  session_id: string | null;
  output: string;
  error: string | null;
  reason: string | null;
}

export interface WorkflowGate {
  approval_id: string;
  node: string;
  question: string;
  choices: string[];
  evidence: { title: string; text?: string }[];
}

export interface WorkflowRun {
  id: string;
  workflow: string;
  status: string;
  created_at: string;
  updated_at: string | null;
  cost_usd: string;
  arguments: string;
  error: string | null;
  changed_since: boolean;
  nodes: WorkflowNode[];
  gates: WorkflowGate[];
}

export interface CampaignLine {
  id: string;
  session_id: string;
  time: string;
  status: string;
  suite: string;
  trigger: string;
  preset: string;
  track: string | null;
  reason: string;
  score: number | null;
  trials: number;
  proposals: number;
  refused: number;
  promoted: number;
  cost_usd: string;
}

export interface GateDecision {
  decision: "promote" | "refuse" | "undecided";
  reason: string;
  cases?: number;
  wins?: number;
  losses?: number;
  difference?: number;
  low?: number;
  high?: number;
  p?: number;
}

export interface CampaignDetail {
  campaign: CampaignLine;
  signals: { name: string; value: number; threshold?: number; cases?: string[] }[];
  recommended: { track?: string; reason?: string; expected_gain?: number; confidence?: number } | null;
  steps: {
    candidate: string;
    is_kept: boolean;
    track: string;
    cluster: string;
    reason: string;
    diff?: string;
    cases?: string[];
    score?: number;
    calls?: number;
  }[];
  decisions: { candidate: string; calls: number; gate: GateDecision }[];
  calls: { [name: string]: number };
  diff: string;
  diff_hash: string | null;
}

export interface AgentVersion {
  number: number;
  time: string;
  hash: string;
  trigger: string;
  author: string;
  campaign_id: string | null;
  is_active: boolean;
}

export interface EvolutionStatus {
  active: number | null;
  canary: number | null;
  canary_share: number | null;
  is_paused: boolean;
  pause_reason: string;
  versions: AgentVersion[];
}

export interface EvalRunLine {
  id: string;
  suite: string;
  agent_name: string;
  agent_version: string | null;
  model: string;
  started_at: string;
  updated_at: string;
  status: string;
  verdict: "running" | "passed" | "failed" | "no verdict";
  cases: number;
  trials: number;
  passed: number;
  failed: number;
  errors: number;
  cost_usd: string;
  budget_usd: string | null;
}

export interface EvalTrial {
  trial: number;
  outcome: "passed" | "failed" | "error";
  score: number;
  session_id: string;
  reasons: string[];
  seconds: number;
  turns: number;
  tool_calls: number;
  cost_usd: string;
  from_run: string | null;
}

export interface EvalCase {
  case_id: string;
  tags: string[];
  change: "worse" | "better" | "perhaps worse" | null;
  trials: EvalTrial[];
}

export interface EvalRunDetail {
  run: EvalRunLine;
  pass_rate: number;
  low: number;
  high: number;
  gate: { is_open: boolean; reasons: string[]; notes: string[]; baseline_run_id: string | null } | null;
  compared_with: string | null;
  comparison: string | null;
  cases: EvalCase[];
}
