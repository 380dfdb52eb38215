// The log of changes: its newest entries, those that come, and earlier ones when they are asked for.
import { type Signal, signal } from "@preact/signals";
import { call, wordsOf } from "../api/client.ts";
import type { RecordedChangesView, RecordedChangeView } from "../api/types.ts";

/** `who` is `user:NAME` or `key:ID`; `since` counts in hours. */
export interface ChangeFilter { tenant: string; who: string; since: string }

const PAGE = 200;
const POLL_MS = 2_000;
/** Numbers that one call for earlier entries covers, and such calls for one press of the button: filters may leave few of many. */
const SPAN = 1_000;
const SPANS_MAX = 10;

const THINGS: Record<string, string> = { runs: "run", tenants: "tenant", meshes: "mesh", schedules: "schedule", keys: "key", dead: "dead letter", cache: "cached values" };
const METHODS: Record<string, string> = { POST: "submit", PUT: "write", PATCH: "change", DELETE: "delete" };
const OF_TENANTS = ["suspend", "resume", "drain"];

/** What an operation does, in the words of `schedulemesh changes`: `POST /v1/runs/{run_id}/cancel` is `cancel run`. Unknown ones keep their own. */
export function verbOf(operation: string): string {
  const route = /^([A-Z]+) \/v\d+\/(.+)$/.exec(operation);
  if (route) {
    const [thing = "", ...rest] = route[2]!.split("/");
    const named = rest.filter((part) => !part.startsWith("{"));
    const verb = named[0] === "signals" ? "signal" : (named[named.length - 1] ?? METHODS[route[1]!] ?? route[1]!.toLowerCase());
    return `${verb} ${THINGS[thing] ?? thing}`;
  }
  const words = operation.replace(/^schedulemesh /, "").split(" ");
  const [first = "", second] = words;
  if (words.length === 2 && THINGS[first]) return `${second} ${THINGS[first]}`;
  if (words.length === 1 && OF_TENANTS.includes(first)) return `${first} tenant`;
  if (words.length === 1 && first === "undrain") return "undrain mesh";
  if (words.length === 1 && first === "apply") return "apply file";
  return words.join(" ");
}

/** Part of the page about what a change was about: page and id; null: it has none. */
export function subjectOf(change: RecordedChangeView): { page: "runs" | "tenants" | "meshes"; id: string } | null {
  const verb = verbOf(change.operation);
  if (!change.target || verb === "delete run") return null;
  if (verb.endsWith(" run")) return { page: "runs", id: change.target.split("/")[0]! };
  if (verb.endsWith(" tenant")) return { page: "tenants", id: change.target };
  return verb.endsWith(" mesh") ? { page: "meshes", id: change.target } : null;
}

export function whoOf(change: RecordedChangeView): string {
  return change.user ? `user:${change.user}` : `key:${change.key}`;
}

/** Whether an entry is shown: by its verb, its outcome, and a text that any of its fields has. */
export function isShown(change: RecordedChangeView, who: string, verb: string, outcome: string, text: string): boolean {
  if (who && whoOf(change) !== who) return false;
  if (verb && verbOf(change.operation) !== verb) return false;
  if (outcome && change.outcome !== outcome) return false;
  const fields = [change.operation, verbOf(change.operation), change.tenant, change.target, change.key, change.user, change.source, change.request_id, change.code, ...Object.entries(change.details).flat()];
  return !text || fields.join("\n").toLowerCase().includes(text.toLowerCase());
}

export class ChangesStore {
  /** Oldest first, each number once. */
  readonly changes: Signal<RecordedChangeView[] | null> = signal(null);
  readonly error = signal("");
  readonly isLive = signal(false);
  /** Whether there may be entries before the first one. */
  readonly hasEarlier = signal(false);
  readonly isBusy = signal(false);
  private readonly query: Record<string, string | number>;
  private readonly stop = new AbortController();
  private timer = 0;
  private isLoading = false;
  private next = -1;
  private first = 0;

  constructor(filter: ChangeFilter) {
    const since = filter.since ? new Date(Date.now() - Number(filter.since) * 3_600_000).toISOString() : "";
    this.query = { tenant: filter.tenant, since, user: filter.who.startsWith("user:") ? filter.who.slice(5) : "" };
    document.addEventListener("visibilitychange", this.again);
    void this.load();
  }

  close(): void {
    this.stop.abort();
    window.clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.again);
  }

  readonly again = (): void => {
    if (!document.hidden) void this.load();
  };

  /** Fetch what has come; the first time, the newest entries. */
  private async load(): Promise<void> {
    if (this.isLoading) return;
    this.isLoading = true;
    window.clearTimeout(this.timer);
    try {
      let found: RecordedChangesView;
      do {
        const isFirst = this.next < 0;
        found = await this.ask(isFirst ? { limit: PAGE } : { after: this.next, limit: SPAN });
        this.next = found.next;
        if (isFirst) {
          this.first = found.changes[0]?.number ?? 0;
          this.hasEarlier.value = found.changes.length >= PAGE;
        }
        if (isFirst || found.changes.length) this.changes.value = [...(this.changes.value ?? []), ...found.changes];
      } while (found.changes.length >= SPAN);
      this.error.value = "";
      this.isLive.value = true;
    } catch (broken) {
      if (this.stop.signal.aborted) return;
      this.error.value = wordsOf(broken);
      this.isLive.value = false;
    } finally {
      this.isLoading = false;
    }
    if (!document.hidden && !this.stop.signal.aborted) this.timer = window.setTimeout(() => void this.load(), POLL_MS);
  }

  /** Fetch entries before the first one: the root lists them from a number on, so the numbers before it are walked backwards. */
  async earlier(): Promise<void> {
    if (this.isBusy.value) return;
    this.isBusy.value = true;
    try {
      for (let span = 0; span < SPANS_MAX && this.first > 1; span++) {
        const after = Math.max(0, this.first - 1 - SPAN);
        const before = this.first;
        const found = (await this.ask({ after, limit: SPAN })).changes.filter((change) => change.number < before);
        this.first = after + 1;
        if (!found.length) continue;
        this.changes.value = [...found, ...(this.changes.value ?? [])];
        break;
      }
      this.hasEarlier.value = this.first > 1;
    } catch (broken) {
      if (!this.stop.signal.aborted) this.error.value = wordsOf(broken);
    } finally {
      this.isBusy.value = false;
    }
  }

  private ask(more: Record<string, number>): Promise<RecordedChangesView> {
    return call<RecordedChangesView>("/v1/changes", { query: { ...this.query, ...more }, signal: this.stop.signal });
  }
}
