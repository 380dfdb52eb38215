// The list of runs: pages of the root's answer, brought up to date by the stream of all runs.
import { type Signal, signal } from "@preact/signals";
import { call, Refused, wordsOf } from "../api/client.ts";
import { dataOf, follow } from "../api/live.ts";
import type { RunLine, RunsView } from "../api/types.ts";
import { isOver } from "../states.ts";

export interface RunFilter { text: string; state: string; tenant: string; mesh: string; since: string }

const PAGE = 50;
const POLL_MS = 3_000;
/** Pages that one reload looks at before it leaves the rest to the button. */
const PAGES_MAX = 10;

/** Whether a run belongs to a filtered list; the root decides the same way. */
export function isWanted(run: RunLine, filter: RunFilter, nowMs: number): boolean {
  if (filter.state && run.state !== filter.state) return false;
  if (filter.tenant && run.tenant !== filter.tenant && !run.tenant.startsWith(`${filter.tenant}/`)) return false;
  if (filter.since && run.created_ms < nowMs - Number(filter.since) * 3_600_000) return false;
  if (filter.mesh && run.mesh_names && !run.mesh_names.includes(filter.mesh)) return false;
  const text = [run.id, run.user, run.detail, ...Object.entries(run.labels).map(([name, value]) => `${name}=${value}`)].join("\n");
  return text.toLowerCase().includes(filter.text.toLowerCase());
}

/** The list with changed runs: known ones in their places, new ones where they belong by time. */
export function merged(runs: readonly RunLine[], changed: readonly RunLine[], removed: ReadonlySet<string>, wanted: (run: RunLine) => boolean): RunLine[] {
  const byId = new Map(runs.map((run) => [run.id, run]));
  for (const run of changed) {
    if (wanted(run)) byId.set(run.id, run);
    else byId.delete(run.id);
  }
  for (const id of removed) byId.delete(id);
  return [...byId.values()].sort(inOrder);
}

/** Known runs that stay below the newest ones, which were listed again: none if these are all there are, or if runs between are unknown. */
export function staying(known: readonly RunLine[], newest: readonly RunLine[], isAll: boolean): RunLine[] {
  const oldest = newest[newest.length - 1];
  const ids = new Set(newest.map((run) => run.id));
  if (isAll || !oldest || !known.some((run) => ids.has(run.id))) return [];
  return known.filter((run) => inOrder(oldest, run) < 0);
}

/** Newest first, as the root lists them. */
function inOrder(a: RunLine, b: RunLine): number {
  return b.created_ms - a.created_ms || (a.id === b.id ? 0 : a.id < b.id ? 1 : -1);
}

export class RunsStore {
  readonly runs: Signal<RunLine[] | null> = signal(null);
  readonly error = signal("");
  readonly next: Signal<string | null> = signal(null);
  readonly isLive = signal(false);
  private readonly filter: RunFilter;
  private readonly stop = new AbortController();
  private timer = 0;
  private isLoading = false;
  /** The list was asked for again while it was fetched. */
  private isStale = false;
  private pending: RunLine[] = [];
  private removed = new Set<string>();
  private frame = 0;

  constructor(filter: RunFilter) {
    this.filter = filter;
    void this.load();
    void this.follow();
  }

  close(): void {
    this.stop.abort();
    window.clearTimeout(this.timer);
    window.clearTimeout(this.frame);
  }

  readonly again = (): void => void this.load();

  async more(): Promise<void> {
    try {
      const page = await this.page(this.next.value);
      const known = new Set(this.runs.value?.map((run) => run.id));
      this.runs.value = [...(this.runs.value ?? []), ...page.runs.filter((run) => !known.has(run.id))];
      this.next.value = page.next ?? null;
    } catch (broken) {
      this.error.value = wordsOf(broken);
    }
  }

  private page(cursor: string | null): Promise<RunsView> {
    const { text, state, tenant, mesh, since } = this.filter;
    const from = since ? new Date(Date.now() - Number(since) * 3_600_000).toISOString() : "";
    return call<RunsView>("/v1/runs", { query: { text, state, tenant, mesh, since: from, cursor, limit: PAGE }, signal: this.stop.signal });
  }

  /** List the newest runs again, down to one that the page knows. Changes that the stream brings meanwhile are newer, and wait. */
  private async load(): Promise<void> {
    window.clearTimeout(this.timer);
    if (this.isLoading) {
      this.isStale = true;
      return;
    }
    this.isLoading = true;
    this.isStale = false;
    try {
      const known = this.runs.value ?? [];
      const ids = new Set(known.map((run) => run.id));
      let page = await this.page(null);
      const runs = [...page.runs];
      // A page may be short, even empty, while the next one has what is looked for.
      for (let pages = 1; page.next && pages < PAGES_MAX && (known.length ? !runs.some((run) => ids.has(run.id)) : runs.length < PAGE / 2); pages++) {
        page = await this.page(page.next);
        runs.push(...page.runs);
      }
      const below = staying(this.runs.value ?? [], runs, !page.next);
      this.runs.value = merged([...runs, ...below], [], new Set(), () => true);
      if (!below.length) this.next.value = page.next ?? null;
      this.error.value = "";
    } catch (broken) {
      if (!this.stop.signal.aborted) this.error.value = wordsOf(broken);
    } finally {
      this.isLoading = false;
    }
    if (this.stop.signal.aborted) return;
    this.take();
    if (this.isStale) void this.load();
    else if (!this.isLive.value) this.timer = window.setTimeout(() => (document.hidden ? undefined : void this.load()), POLL_MS);
  }

  private async follow(): Promise<void> {
    const query: Record<string, string> = this.filter.tenant ? { tenant: this.filter.tenant } : {};
    try {
      await follow({
        path: "/v1/events",
        query,
        after: "",
        signal: this.stop.signal,
        isOver: () => false,
        onState: (state) => {
          const wasLive = this.isLive.value;
          this.isLive.value = state === "live";
          if (state === "live" && !wasLive) void this.load();
        },
        onEvents: (events) => {
          for (const each of events) {
            if (each.event === "run") this.pending.push(dataOf<RunLine>(each));
            else if (each.event === "removed") this.removed.add(dataOf<{ id: string }>(each).id);
            else if (each.event === "reset") void this.load();
          }
          this.frame ||= window.setTimeout(() => this.take(), 30);
        },
      });
    } catch (broken) {
      // An older root has no such stream: the list is polled.
      this.isLive.value = false;
      if (!(broken instanceof Refused && broken.status === 404)) this.error.value = wordsOf(broken);
    }
  }

  private take(): void {
    this.frame = 0;
    if (!this.runs.value || this.isLoading) return;
    const nowMs = Date.now();
    this.runs.value = merged(this.runs.value, this.pending, this.removed, (run) => isWanted(run, this.filter, nowMs));
    this.pending = [];
    this.removed = new Set();
  }
}

/** Runs among the chosen ones that can still be cancelled. */
export function cancellable(runs: readonly RunLine[], chosen: ReadonlySet<string>): RunLine[] {
  return runs.filter((run) => chosen.has(run.id) && !isOver(run.state));
}
