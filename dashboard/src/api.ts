// Requests to the server. A cookie authenticates them; its token goes with those that change things.

import { signal } from "@preact/signals";
import type { Me } from "./types";

export const me = signal<Me | null>(null);
/** Whether the last request reached the server. */
export const isOnline = signal(true);
export const isSignedOut = signal(false);

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly requestId: string,
  ) {
    super(message);
  }
}

type Query = { [name: string]: string | number | boolean | readonly string[] | null | undefined };

export function url(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    if (Array.isArray(value)) value.forEach((item: string) => parameters.append(`${name}[]`, item));
    else parameters.set(name, String(value));
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

export async function get<T>(path: string, query: Query = {}): Promise<T> {
  return request<T>("GET", url(path, query));
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  return request<T>("POST", path, body);
}

export async function remove<T>(path: string): Promise<T> {
  return request<T>("DELETE", path);
}

async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<T> {
  const token = me.value?.csrf_token;
  const init: RequestInit = { method, headers: { ...headers }, credentials: "same-origin" };
  if (method !== "GET" && token) init.headers = { ...headers, "x-csrf-token": token };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...init.headers, "content-type": "application/json" };
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch {
    isOnline.value = false;
    throw new ApiError(0, "the server cannot be reached", "");
  }
  isOnline.value = true;
  if (!response.ok) throw await errorOf(response);
  return (await response.json()) as T;
}

async function errorOf(response: Response): Promise<ApiError> {
  const requestId = response.headers.get("request-id") ?? "";
  let message = `the server answered ${response.status}`;
  try {
    const body = (await response.json()) as { error?: { message?: string } };
    message = body.error?.message ?? message;
  } catch {
    // a proxy's page
  }
  if (response.status === 401 && me.value !== null) isSignedOut.value = true;
  return new ApiError(response.status, message, requestId);
}

/** Exchanges a key, or a token of an identity provider, for a cookie. Nothing keeps it here. */
export async function signIn(credential: string): Promise<void> {
  const isToken = credential.split(".").length === 3;
  const headers: Record<string, string> = isToken
    ? { authorization: `Bearer ${credential}` }
    : { "x-api-key": credential };
  await request("POST", "/v1/mainspring/sign_in", {}, headers);
  await readMe();
}

export async function readMe(): Promise<void> {
  me.value = await get<Me>("/v1/mainspring/me");
  isSignedOut.value = false;
}

export async function signOut(): Promise<void> {
  await post("/v1/mainspring/sign_out");
  me.value = null;
  isSignedOut.value = false;
}

const ROLES = ["viewer", "user", "operator", "admin"];

export function mayAct(role: string): boolean {
  const own = me.value?.role ?? "viewer";
  return ROLES.indexOf(own) >= ROLES.indexOf(role);
}

export function explain(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
