// What a picture of a run shows, without a canvas: states outside of signals, so that 1,000 events a second cost little.
import type { ArrayView, EventView, GraphView } from "../api/types.ts";
import { isOver } from "../states.ts";

/** The nodes of a run, in columns, with the events applied so far. */
export class Scene {
  readonly names: string[];
  readonly from: Int32Array;
  readonly to: Int32Array;
  readonly states: string[];
  readonly stages: string[];
  readonly meshes: string[];
  readonly state: Uint8Array;
  readonly stage: Int32Array;
  readonly mesh: Int32Array;
  readonly attempt: Int32Array;
  readonly arrays = new Map<number, ArrayView>();
  seq: number;
  runState: string;
  /** Counts up when a node has come to a stage: the layout is then older than the graph. */
  stageChanges = 0;
  /** Arrays of which a part has changed. */
  hasArrayChanges = false;
  private readonly place = new Map<string, number>();

  constructor(graph: GraphView) {
    this.names = graph.nodes;
    this.from = Int32Array.from(graph.edges_from);
    this.to = Int32Array.from(graph.edges_to);
    this.states = graph.states;
    this.stages = [...graph.stages];
    this.meshes = [...graph.meshes];
    this.state = Uint8Array.from(graph.node_state);
    this.stage = Int32Array.from(graph.node_stage);
    this.mesh = Int32Array.from(graph.node_mesh);
    this.attempt = Int32Array.from(graph.attempt);
    this.seq = graph.seq;
    this.runState = graph.state;
    graph.nodes.forEach((name, place) => this.place.set(name, place));
    this.takeArrays(graph.arrays);
  }

  get count(): number {
    return this.names.length;
  }

  find(name: string): number {
    return this.place.get(name) ?? -1;
  }

  stateOf(node: number): string {
    return this.states[this.state[node]!]!;
  }

  takeArrays(arrays: readonly ArrayView[]): void {
    for (const array of arrays) {
      const node = this.find(array.node);
      if (node < 0) continue;
      this.arrays.set(node, array);
      this.state[node] = Math.max(0, this.states.indexOf(array.state));
    }
  }

  /** Apply events in their order; one that was applied already changes nothing. */
  apply(events: readonly EventView[]): void {
    for (const event of events) {
      if (event.seq <= this.seq) continue;
      this.seq = event.seq;
      if (event.kind === "run") this.runState = event.after;
      else if (event.kind === "node" && event.node) this.applyNode(event.node, event);
    }
  }

  private applyNode(name: string, event: EventView): void {
    const node = this.find(name);
    if (node < 0 || this.arrays.has(node)) {
      this.hasArrayChanges ||= node >= 0 || name.includes("@");
      return;
    }
    const state = this.states.indexOf(event.after);
    if (state >= 0) this.state[node] = state;
    if (event.attempt) this.attempt[node] = event.attempt;
    if (event.mesh) this.mesh[node] = listed(this.meshes, event.mesh);
    if (event.stage) {
      const stage = listed(this.stages, event.stage);
      if (stage !== this.stage[node]) {
        this.stage[node] = stage;
        this.stageChanges++;
      }
    }
  }

  /** Nodes by state; an array is one node. */
  counts(): Record<string, number> {
    const found = new Int32Array(this.states.length);
    for (const state of this.state) found[state]!++;
    return Object.fromEntries(this.states.map((name, place) => [name, found[place]!] as const).filter(([, value]) => value));
  }

  get isOver(): boolean {
    return isOver(this.runState);
  }

  /** The first node in this state, in the order of the graph; -1: none. */
  first(state: string): number {
    return this.state.indexOf(this.states.indexOf(state));
  }
}

function listed(names: string[], name: string): number {
  const found = names.indexOf(name);
  if (found >= 0) return found;
  names.push(name);
  return names.length - 1;
}
