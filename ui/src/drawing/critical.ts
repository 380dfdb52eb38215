// Critical path of a run: the chain of nodes that decided when it ended. Pure.
import type { TimelineView } from "../api/types.ts";
import { stopOf } from "./gantt.ts";
import { followers } from "./layout.ts";
import type { Scene } from "./scene.ts";

export interface CriticalPath { nodes: number[]; isOn: Uint8Array; ms: number }

/** Return the node that ended last, and before each node the one of its inputs that ended last. `ms`: from the first start to the last end. */
export function criticalPath(scene: Pick<Scene, "count" | "from" | "to" | "find">, timeline: TimelineView, endMs: number): CriticalPath {
  const begun = new Float64Array(scene.count).fill(Number.POSITIVE_INFINITY);
  const ended = new Float64Array(scene.count).fill(-1);
  for (let bar = 0; bar < timeline.node.length; bar++) {
    const node = scene.find(timeline.nodes[timeline.node[bar]!]!.replace(/@\d+$/, ""));
    if (node < 0) continue;
    begun[node] = Math.min(begun[node]!, timeline.from_ms[bar]!);
    ended[node] = Math.max(ended[node]!, stopOf(timeline, bar, endMs));
  }
  const { first, next: inputs } = followers(scene.count, scene.to, scene.from);
  const nodes: number[] = [];
  let at = latest(ended, Array.from(ended.keys()));
  while (at >= 0) {
    nodes.push(at);
    at = latest(ended, Array.from(inputs.subarray(first[at]!, first[at + 1]!)));
  }
  nodes.reverse();
  const isOn = new Uint8Array(scene.count);
  for (const node of nodes) isOn[node] = 1;
  return { nodes, isOn, ms: nodes.length ? ended[nodes[nodes.length - 1]!]! - begun[nodes[0]!]! : 0 };
}

/** The one that ended last; -1: none of them has begun. */
function latest(ended: Float64Array, nodes: readonly number[]): number {
  let found = -1;
  for (const node of nodes) if (ended[node]! >= 0 && (found < 0 || ended[node]! > ended[found]!)) found = node;
  return found;
}
