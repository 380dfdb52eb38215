// Calls of `/v1` with the key of this tab.
import { withTimes } from "./times.ts";
import { away, key, signOut } from "../store/session.ts";

/** A refusal of the root, with its code and problems. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;
  readonly problems: { place: string; problem: string }[];

  constructor(status: number, code: string, message: string, problems: { place: string; problem: string }[] = []) {
    super(message);
    this.status = status;
    this.code = code;
    this.problems = problems;
  }
}

export interface CallOptions {
  method?: "GET" | "POST";
  query?: Record<string, string | number | readonly string[] | null | undefined>;
  body?: unknown;
  signal?: AbortSignal;
  accept?: string;
  headers?: Record<string, string>;
}

/** Return an address below the page's own folder, so that the page works behind a prefix too. */
export function address(path: string, query: CallOptions["query"] = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) asked.append(name, String(each));
  }
  const text = asked.toString();
  return `${path.replace(/^\//, "")}${text ? `?${text}` : ""}`;
}

/** Send a request; a missing answer and a 503 are noted as `away`, a 401 signs out. Throws Refused for each refusal. */
export async function request(path: string, options: CallOptions = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json", ...options.headers };
  if (key.value) headers["Authorization"] = `Bearer ${key.value}`;
  const init: RequestInit = { method: options.method ?? "GET", headers, credentials: "omit", cache: "no-store", redirect: "error" };
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = typeof options.body === "string" ? options.body : JSON.stringify(options.body);
  }
  if (options.signal) init.signal = options.signal;
  let answer: Response;
  try {
    answer = await fetch(address(path, options.query), init);
  } catch (broken) {
    if (!options.signal?.aborted) away.value = "The root does not answer.";
    throw broken;
  }
  if (answer.ok) {
    away.value = "";
    return answer;
  }
  const refused = await refusal(answer);
  if (answer.status === 503) away.value = refused.message;
  if (answer.status === 401) signOut(refused.message);
  throw refused;
}

export async function call<T>(path: string, options: CallOptions = {}): Promise<T> {
  return withTimes(await (await request(path, options)).json()) as T;
}

/** Words for any failure of a call. */
export function wordsOf(broken: unknown): string {
  if (!(broken instanceof Refused)) return broken instanceof TypeError ? "The root does not answer." : String(broken);
  const places = broken.problems.map(({ place, problem }) => (place ? `${place}: ${problem}` : problem));
  return [broken.message, ...places].join("\n");
}

// A problem document (RFC 9457) has its members at the top; the older form has them in `error`.
async function refusal(answer: Response): Promise<Refused> {
  try {
    const body = (await answer.json()) as Record<string, unknown>;
    const error = (body["error"] ?? body) as Record<string, unknown>;
    const message = String(error["message"] ?? error["detail"] ?? error["title"] ?? answer.statusText);
    return new Refused(answer.status, String(error["code"] ?? ""), message, (error["problems"] as Refused["problems"]) ?? []);
  } catch {
    return new Refused(answer.status, "", `${answer.status} ${answer.statusText}`);
  }
}
