// Everything that the page of one run shows: its summary, its picture, its events, in one place.
import { type Signal, signal } from "@preact/signals";
import { call, Refused, wordsOf } from "../api/client.ts";
import { dataOf, follow } from "../api/live.ts";
import type { EventView, GraphView, RunExplanation, RunView } from "../api/types.ts";
import { Scene } from "../drawing/scene.ts";
import { isOver } from "../states.ts";
import { announce } from "./poll.ts";

const POLL_MS = 2_000;
/** Arrays that the summary of a run has, and the shortest interval in which the others are fetched. */
const ARRAYS_IN_SUMMARY = 50;
const ARRAYS_MS = 5_000;
/** Events that the list of events keeps; older ones are fetched again by pages. */
export const EVENTS_KEPT = 2_000;

export class RunStore {
  readonly id: string;
  readonly view: Signal<RunView | null> = signal(null);
  readonly why: Signal<RunExplanation | null> = signal(null);
  readonly error = signal("");
  readonly isUnknown = signal(false);
  readonly scene: Signal<Scene | null> = signal(null);
  /** Counts up once a frame in which nodes changed. */
  readonly version = signal(0);
  /** Counts up when the layout is older than the graph. */
  readonly layoutVersion = signal(0);
  readonly events: Signal<EventView[]> = signal([]);
  /** Events before the first one in `events`. */
  readonly earlier = signal(0);
  readonly live: Signal<"live" | "reconnecting" | "ended"> = signal("reconnecting");
  private readonly stop = new AbortController();
  private timer = 0;
  private frame = 0;
  private pending: EventView[] = [];
  private relayout = 0;
  private arraysMs = 0;

  constructor(id: string) {
    this.id = id;
    document.addEventListener("visibilitychange", this.shown);
    void this.refresh();
    void this.begin();
  }

  get path(): string {
    return `/v1/runs/${encodeURIComponent(this.id)}`;
  }

  close(): void {
    this.stop.abort();
    window.clearTimeout(this.timer);
    window.clearTimeout(this.relayout);
    cancelAnimationFrame(this.frame);
    document.removeEventListener("visibilitychange", this.shown);
  }

  /** Fetch the summary at once, for instance after a command. */
  readonly again = (): void => {
    void this.refresh();
    if (this.live.value === "ended") void this.begin();
  };

  private readonly shown = (): void => {
    if (!document.hidden) void this.refresh();
  };

  private async refresh(): Promise<void> {
    window.clearTimeout(this.timer);
    try {
      const view = await call<RunView>(this.path, { signal: this.stop.signal });
      this.view.value = view;
      this.error.value = "";
      if (this.scene.value && view.arrays.length) {
        this.scene.value.takeArrays(view.arrays);
        await this.refreshArrays(this.scene.value);
        this.version.value++;
      }
      const waits = !isOver(view.state) && view.state !== "RUNNING" && view.state !== "PENDING";
      this.why.value = waits ? await call<RunExplanation>(`${this.path}/explain`, { signal: this.stop.signal }) : null;
      announce(`${this.id} ${view.state.toLowerCase()}, ${view.nodes_succeeded} of ${view.nodes_total} nodes succeeded, ${view.nodes_failed} failed`);
    } catch (broken) {
      if (this.stop.signal.aborted) return;
      if (broken instanceof Refused && broken.status === 404) {
        this.isUnknown.value = true;
        return;
      }
      this.error.value = wordsOf(broken);
    }
    const view = this.view.value;
    if (!this.stop.signal.aborted && !document.hidden && !(view && isOver(view.state) && !this.error.value)) {
      this.timer = window.setTimeout(() => void this.refresh(), POLL_MS);
    }
  }

  /** The summary has the first arrays only; of the others the graph has the elements. */
  private async refreshArrays(scene: Scene): Promise<void> {
    const isLate = scene.isOver || Date.now() - this.arraysMs >= ARRAYS_MS;
    if (scene.arrays.size <= ARRAYS_IN_SUMMARY || !scene.hasArrayChanges || !isLate) return;
    this.arraysMs = Date.now();
    scene.hasArrayChanges = false;
    scene.takeArrays((await call<GraphView>(`${this.path}/graph`, { signal: this.stop.signal })).arrays);
  }

  /** Fetch the graph, then follow the events after it. */
  private async begin(): Promise<void> {
    let scene: Scene;
    for (;;) {
      try {
        scene = new Scene(await call<GraphView>(`${this.path}/graph`, { signal: this.stop.signal }));
        break;
      } catch (broken) {
        if (this.stop.signal.aborted || (broken instanceof Refused && broken.status === 404)) return;
        this.error.value = wordsOf(broken);
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
    }
    this.scene.value = scene;
    this.layoutVersion.value++;
    this.version.value++;
    const after = Math.max(0, scene.seq - EVENTS_KEPT);
    this.earlier.value = after;
    this.events.value = [];
    try {
      await follow({
        path: `${this.path}/events`,
        after: String(after),
        signal: this.stop.signal,
        onState: (state) => (this.live.value = state),
        isOver: () => scene.isOver,
        onEvents: (events) => {
          for (const event of events) this.pending.push(dataOf<EventView>(event));
          // A hidden tab draws no frames, but must not pile up events either.
          if (document.hidden) this.take();
          else if (!this.frame) this.frame = requestAnimationFrame(() => this.take());
        },
      });
      this.live.value = "ended";
    } catch (broken) {
      if (!this.stop.signal.aborted) this.error.value = wordsOf(broken);
    }
  }

  /** Apply what has come since the last frame. */
  private take(): void {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const events = this.pending;
    this.pending = [];
    const scene = this.scene.value;
    if (!scene || !events.length) return;
    const [stages, wasOver] = [scene.stageChanges, scene.isOver];
    scene.apply(events);
    const all = [...this.events.value, ...events];
    if (all.length > EVENTS_KEPT) this.earlier.value += all.length - EVENTS_KEPT;
    this.events.value = all.slice(-EVENTS_KEPT);
    this.version.value++;
    if (scene.stageChanges !== stages && !this.relayout) {
      this.relayout = window.setTimeout(() => {
        this.relayout = 0;
        this.layoutVersion.value++;
      }, 500);
    }
    if (scene.isOver && !wasOver) void this.refresh();
  }
}
