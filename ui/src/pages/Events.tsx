import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { call, Refused, wordsOf } from "../api/client.ts";
import { dataOf, follow } from "../api/live.ts";
import type { HistoryView, RunLine } from "../api/types.ts";
import { clock, count, counted } from "../format.ts";
import { Badge, Choice, Empty, Failed, Reason, Search, Standing, Tabs } from "../parts/basics.tsx";
import { LeaseTable } from "../parts/LeaseTable.tsx";
import { ask, format, go, route } from "../routes.ts";
import { RUN_STATES } from "../states.ts";
import { usePolled } from "../store/poll.ts";

/** A change of a run, as it came. */
interface Change { number: number; at: number; run: RunLine | null; id: string; before: string }

const KEPT = 1_000;

export function Events() {
  const tab = route.value.id === "leases" ? "leases" : "runs";
  return (
    <div class="stack">
      <h1>Events</h1>
      <Tabs label="Kinds of events" chosen={tab} tabs={[["runs", "Runs"], ["leases", "Leases"]]} onChoose={(next) => go(format("events", next), true)} />
      {tab === "runs" ? <RunChanges /> : <Leases />}
    </div>
  );
}

class ChangeFeed {
  readonly changes = signal<Change[]>([]);
  readonly error = signal("");
  readonly isLive = signal(false);
  private readonly stop = new AbortController();
  private readonly states = new Map<string, string>();
  private number = 0;

  constructor() {
    void this.run();
  }

  close(): void {
    this.stop.abort();
  }

  private async run(): Promise<void> {
    try {
      await follow({
        path: "/v1/events", after: "", signal: this.stop.signal, isOver: () => false,
        onState: (state) => (this.isLive.value = state === "live"),
        onEvents: (events) => {
          const found: Change[] = [];
          for (const each of events) {
            if (each.event !== "run" && each.event !== "removed") continue;
            const run = dataOf<RunLine>(each);
            found.push({ number: ++this.number, at: Date.now(), run: each.event === "run" ? run : null, id: run.id, before: this.states.get(run.id) ?? "" });
            if (each.event === "run") this.states.set(run.id, run.state);
            else this.states.delete(run.id);
          }
          if (found.length) this.changes.value = [...this.changes.value, ...found].slice(-KEPT);
        },
      });
    } catch (broken) {
      this.error.value = broken instanceof Refused && broken.status === 404 ? "This root is too old for a stream of all runs." : wordsOf(broken);
    }
  }
}

function RunChanges() {
  const [feed, setFeed] = useState<ChangeFeed | null>(null);
  const [pausedAt, setPausedAt] = useState(0);
  const { text = "", state = "" } = route.value.query;
  useEffect(() => {
    const made = new ChangeFeed();
    setFeed(made);
    return () => made.close();
  }, []);
  const all = feed?.changes.value ?? [];
  const newest = all.length ? all[all.length - 1]!.number : 0;
  const held = pausedAt ? newest - pausedAt : 0;
  const shown = all.filter((change) => (!pausedAt || change.number <= pausedAt) && (!state || change.run?.state === state) && (!text || `${change.id} ${change.run?.tenant ?? ""}`.toLowerCase().includes(text.toLowerCase())));
  return (
    <>
      <div class="row tight tools">
        <Search id="search" label="Search events  ( / )" value={text} onChange={(value) => ask({ text: value })} />
        <Choice label="State" value={state} onChange={(value) => ask({ state: value })} options={[["", "Any state"], ...RUN_STATES.map((each) => [each, each.toLowerCase()] as const)]} />
        <button type="button" aria-pressed={pausedAt > 0} onClick={() => setPausedAt(pausedAt ? 0 : Math.max(1, newest))}>{pausedAt ? "Go on" : "Pause"}</button>
        {held > 0 && <button type="button" class="primary" onClick={() => setPausedAt(newest)}>{counted(held, "new event")}</button>}
        <span class="push muted">{feed?.isLive.value ? <span class="live">live</span> : "connecting"}</span>
      </div>
      {feed?.error.value && <Failed words={feed.error.value} />}
      {!shown.length && !feed?.error.value && <Empty title="Nothing has changed since you opened this page.">Each change of a run appears here as it happens.</Empty>}
      {shown.length > 0 && (
        <div class="scroll">
          <table class="cards">
            <thead><tr><th>Time</th><th>Run</th><th>Tenant</th><th>State</th><th class="num">Nodes</th><th>Reason</th></tr></thead>
            <tbody>
              {[...shown].reverse().slice(0, 300).map((change) => (
                <tr key={change.number}>
                  <td data-label="Time">{clock(change.at)}</td>
                  <td data-label="Run"><a class="mono" href={format("runs", change.id)}>{change.id}</a></td>
                  <td data-label="Tenant">{change.run?.tenant ?? "–"}</td>
                  <td data-label="State">{change.run ? <>{change.before && change.before !== change.run.state && <span class="muted">{change.before.toLowerCase()} → </span>}<Badge state={change.run.state} quiet /></> : <span class="muted">removed</span>}</td>
                  <td data-label="Nodes" class="num">{change.run ? `${count(change.run.nodes_succeeded)}/${count(change.run.nodes_total)}` : "–"}</td>
                  <td data-label="Reason">{change.run ? <Reason code={change.run.reason} detail={change.run.detail} /> : "–"}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {shown.length > 300 && <p class="muted">300 of {count(shown.length)} shown.</p>}
        </div>
      )}
    </>
  );
}

function Leases() {
  const polled = usePolled((signal) => call<HistoryView>("/v1/leases/history", { query: { limit: 200 }, signal }), 2_000, []);
  return (
    <>
      <Standing polled={polled} what="the history of leases" />
      {polled.data.value && <LeaseTable events={polled.data.value.lease_events} />}
    </>
  );
}
