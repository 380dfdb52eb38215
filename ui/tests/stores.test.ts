import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventView, GraphView, RunLine, TenantView, TimelineView } from "../src/api/types.ts";
import { criticalPath } from "../src/drawing/critical.ts";
import { Axis, idleOf, rowsOf } from "../src/drawing/gantt.ts";
import { shortened } from "../src/drawing/graph.ts";
import type { Layout } from "../src/drawing/layout.ts";
import { kindsOfCells } from "../src/drawing/minimap.ts";
import { Scene } from "../src/drawing/scene.ts";
import { clock, counted, duration } from "../src/format.ts";
import { pieces } from "../src/parts/pieces.ts";
import { format, parse } from "../src/routes.ts";
import { borrowingOf, treeOf } from "../src/store/quota.ts";

const GRAPH: GraphView = {
  id: "r", tenant: "t", state: "RUNNING", seq: 10, nodes: ["a", "b", "all"], edges_from: [0, 1], edges_to: [1, 2],
  states: ["WAITING", "RUNNING", "SUCCEEDED", "FAILED"], stages: ["r.1"], meshes: ["east"],
  node_state: [1, 0, 0], node_stage: [0, -1, -1], node_mesh: [0, -1, -1], attempt: [1, 1, 1],
  arrays: [{ node: "all", state: "WAITING", elements: 10, parts: 2, counts: {}, failed: "" }],
};

function event(seq: number, node: string, after: string, more: Partial<EventView> = {}): EventView {
  return { seq, at_ms: 0, run: "r", kind: "node", node, attempt: 1, stage: null, mesh: null, before: "", after, reason: null, detail: "", ...more };
}

test("events after the graph change it, earlier ones do not", () => {
  const scene = new Scene(GRAPH);
  scene.apply([event(9, "a", "FAILED"), event(11, "a", "SUCCEEDED"), event(12, "b", "RUNNING", { stage: "r.2", mesh: "west", attempt: 2 })]);
  assert.deepEqual(scene.counts(), { WAITING: 1, RUNNING: 1, SUCCEEDED: 1 });
  assert.deepEqual([scene.meshes[scene.mesh[1]!], scene.stages[scene.stage[1]!], scene.attempt[1], scene.stageChanges], ["west", "r.2", 2, 1]);
  scene.apply([event(12, "b", "FAILED")]);
  assert.equal(scene.stateOf(1), "RUNNING");
});

test("a part of an array marks the array and is no node", () => {
  const scene = new Scene(GRAPH);
  scene.apply([event(11, "all@0", "SUCCEEDED")]);
  assert.equal(scene.hasArrayChanges, true);
  assert.equal(scene.stateOf(2), "WAITING");
});

test("the last event of the run ends it", () => {
  const scene = new Scene(GRAPH);
  scene.apply([{ ...event(11, "", "SUCCEEDED"), kind: "run" }]);
  assert.equal(scene.isOver, true);
});

function timeline(bars: [number, number, number][]): TimelineView {
  return {
    id: "r", state: "RUNNING", created_ms: 0, now_ms: 100_000, end_ms: -1, nodes: ["a"], meshes: ["east", "west"], stages: [], states: ["RUNNING"], reasons: [],
    node: bars.map(() => 0), attempt: bars.map(() => 1), mesh: bars.map(([mesh]) => mesh), stage: bars.map(() => -1), bar_state: bars.map(() => 0), reason: bars.map(() => -1),
    from_ms: bars.map(([, from]) => from), to_ms: bars.map(([, , to]) => to),
  };
}

test("bars of one row do not overlap, and each mesh has rows of its own", () => {
  const rows = rowsOf(timeline([[0, 0, 50], [1, 0, 50], [0, 10, -1], [0, 50, 60]]));
  assert.deepEqual([...rows.row], [0, 2, 1, 0]);
  assert.deepEqual(rows.labels, [{ mesh: "east", first: 0, rows: 2 }, { mesh: "west", first: 2, rows: 1 }]);
});

test("idle time is folded and order is kept", () => {
  const line = timeline([[0, 0, 10_000], [0, 90_000, 95_000]]);
  const folds = idleOf(line, 95_000);
  assert.deepEqual(folds, [{ start: 10_000, stop: 90_000 }]);
  const axis = new Axis(95_000, folds);
  const places = [0, 5_000, 10_000, 50_000, 90_000, 95_000].map((ms) => axis.at(ms));
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
  assert.ok(axis.length < 16_000);
  assert.equal(axis.at(95_000), axis.length);
});

test("a bar shows the least failure, and is full", () => {
  const parts = pieces({ failed: 1, succeeded: 99_999 }, 100_000);
  assert.equal(parts[0]!.kind, "failed");
  assert.ok(parts[0]!.width > 0.9);
  assert.ok(Math.abs(parts.reduce((sum, part) => sum + part.width, 0) - 100) < 1e-6);
});

test("names keep their ends", () => {
  assert.equal(shortened("preprocess-shard-0017", 11), "prepr…-0017");
  assert.equal(shortened("short", 11), "short");
});

test("addresses come back as they were", () => {
  assert.deepEqual(parse(format("runs", "a/b c?d", "graph", { node: "x=1&y", find: "" })), { page: "runs", id: "a/b c?d", tab: "graph", query: { node: "x=1&y" } });
  assert.equal(parse("").page, "runs");
  assert.equal(parse("#/nowhere").page, "unknown");
});

test("durations have two units", () => {
  assert.deepEqual([820, 4_230, 59_700, 185_000, 7_800_000, 277_000_000].map(duration), ["820 ms", "4.2 s", "1 min", "3 min 5 s", "2 h 10 min", "3 d 5 h"]);
  assert.equal(counted(1, "node"), "1 node");
  assert.equal(counted(1_204, "run"), "1,204 runs");
  assert.match(clock(0, 1e12), /^1970-01-01 /);
});

const Q = (units: number) => ({ units, amount: units / 1e4, text: `${units / 1e4}` });

function tenant(name: string, parent: string | null, nominal: number, used: number, borrowed: number): TenantView {
  const quota = { flavor: "standard", resource: "cpu", nominal: Q(nominal), used: Q(used), borrowed: Q(borrowed), available: Q(0), potential: Q(9e4), borrowing_limit: null, lending_limit: null };
  return { tenant: name, parent, quotas: [quota], stop: "none", stop_reason: "", stopped_ms: 0, weight: "1", priority_max: null, running_max: null, running_max_per_user: null, max_wait_ms: null };
}

test("the tree has parents first, whatever the order, and the caller's own tenant as its top", () => {
  const tenants = [tenant("a/x", "a", 0, 0, 0), tenant("b", "out of reach", 0, 0, 0), tenant("a", null, 0, 0, 0), tenant("a/x/y", "a/x", 0, 0, 0)];
  assert.deepEqual(treeOf(tenants).map((each) => each.tenant), ["b", "a", "a/x", "a/x/y"]);
});

test("borrowers and lenders are named, without their parents", () => {
  const found = borrowingOf([tenant("a", null, 4e4, 5e4, 1e4), tenant("a/x", "a", 2e4, 0, 0), tenant("a/y", "a", 2e4, 5e4, 3e4)]);
  assert.deepEqual(found, [{ flavor: "standard", resource: "cpu", borrowers: [{ tenant: "a/y", text: "3" }], lenders: [{ tenant: "a/x", units: 2e4 }] }]);
});

Object.assign(globalThis, {
  sessionStorage: { getItem: () => null }, localStorage: { getItem: () => null },
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }), document: { documentElement: { dataset: {} } },
});
const { isWanted, merged, staying } = await import("../src/store/runs.ts");

function line(id: string, created_ms: number, more: Partial<RunLine> = {}): RunLine {
  return { id, tenant: "a", state: "RUNNING", created_ms, ended_ms: 0, reason: null, detail: "", counts: {}, labels: {}, user: "", nodes_total: 1, nodes_succeeded: 0, nodes_failed: 0, nodes_skipped: 0, ...more };
}

test("changed runs take their places, and those that no longer fit go", () => {
  const runs = [line("b", 2), line("a", 1)];
  const changed = [line("c", 3), line("a", 1, { state: "FAILED" }), line("d", 4, { state: "FAILED" })];
  const found = merged(runs, changed, new Set(["b"]), (run) => run.state === "RUNNING");
  assert.deepEqual(found.map((run) => run.id), ["c"]);
});

test("a list is filtered as the root filters it", () => {
  const filter = { text: "team=ads", state: "", tenant: "a", mesh: "", since: "1" };
  const now = 10 * 3_600_000;
  assert.equal(isWanted(line("x", now, { labels: { team: "ads" }, tenant: "a/b" }), filter, now), true);
  assert.equal(isWanted(line("x", now, { tenant: "ab", labels: { team: "ads" } }), filter, now), false);
  assert.equal(isWanted(line("x", 0, { labels: { team: "ads" } }), filter, now), false);
});

test("the critical path goes back from the last end over the inputs that ended last", () => {
  const names = ["a", "b", "c", "all", "later"];
  const place = (name: string): number => names.indexOf(name);
  const scene = { count: 5, from: Int32Array.from([0, 1, 2, 3]), to: Int32Array.from([2, 2, 3, 4]), find: place };
  const bars: [string, number, number][] = [["a", 0, 10], ["b", 0, 40], ["c", 41, 50], ["all@0", 50, 60], ["all@1", 52, -1]];
  const timeline = {
    nodes: bars.map(([name]) => name), node: bars.map((_, bar) => bar), from_ms: bars.map(([, from]) => from), to_ms: bars.map(([, , to]) => to),
  } as unknown as TimelineView;
  const path = criticalPath(scene, timeline, 90);
  assert.deepEqual(path.nodes.map((node) => names[node]), ["b", "c", "all"]);
  assert.deepEqual([path.ms, [...path.isOn]], [90, [0, 1, 1, 1, 0]]);
  assert.deepEqual(criticalPath(scene, { ...timeline, node: [] }, 0).nodes, []);
});

test("a block of the map shows its worst state", () => {
  const scene = { states: ["SUCCEEDED", "FAILED", "RUNNING"], state: Uint8Array.from([0, 0, 1, 0, 2, 0]) };
  const layout = { cell: Int32Array.from([0, 0, 0, 1, 1, 2]), cells: [1, 2, 3] as unknown as Layout["cells"] };
  assert.deepEqual(kindsOfCells(scene, layout), ["failed", "running", "succeeded"]);
});

test("a reload keeps all older runs that the page knows", () => {
  const known = [line("c", 3), line("b", 2), line("a", 1)];
  assert.deepEqual(staying(known, [line("e", 5), line("d", 4), line("c", 3)], false).map((run) => run.id), ["b", "a"]);
  assert.deepEqual(staying(known, [line("d", 3), line("c", 3)], false).map((run) => run.id), ["b", "a"]);
});

test("a reload keeps nothing below runs that the page does not know, or below the last one", () => {
  const known = [line("b", 2), line("a", 1)];
  assert.deepEqual(staying(known, [line("e", 5), line("d", 4)], false), []);
  assert.deepEqual(staying(known, [line("c", 3), line("b", 2)], true), []);
});
