import assert from "node:assert/strict";
import { test } from "node:test";
import { type LayoutInput, type Layout, layoutOf, levelsOf, NODE, SQUARE } from "../src/drawing/layout.ts";

/** Numbers by chance that are the same each time. */
function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

function layered(levels: number, width: number, stageOf: (level: number, place: number) => number, stages: number, down = false, seed = 1): LayoutInput {
  const next = chance(seed);
  const from: number[] = [];
  const to: number[] = [];
  const stage = new Int32Array(levels * width);
  for (let level = 0; level < levels; level++)
    for (let place = 0; place < width; place++) {
      const node = level * width + place;
      stage[node] = stageOf(level, place);
      for (let edge = 0; level && edge < 3; edge++) {
        from.push((level - 1) * width + Math.floor(next() * width));
        to.push(node);
      }
    }
  return { count: levels * width, from: Int32Array.from(from), to: Int32Array.from(to), stage, stages, down };
}

function overlaps(layout: Layout, one: number, other: number): boolean {
  const size = (node: number): [number, number] => (layout.small[node] ? [SQUARE, SQUARE] : [NODE.width, NODE.height]);
  const [a, b] = [size(one), size(other)];
  return Math.abs(layout.x[one]! - layout.x[other]!) < (a[0] + b[0]) / 2 && Math.abs(layout.y[one]! - layout.y[other]!) < (a[1] + b[1]) / 2;
}

for (const down of [false, true])
  test(`a node stands after all that it waits for, ${down ? "downwards" : "to the right"}`, () => {
    const input = layered(12, 20, () => 0, 1, down);
    const layout = layoutOf(input);
    const along = down ? layout.y : layout.x;
    for (let edge = 0; edge < input.from.length; edge++) assert.ok(along[input.from[edge]!]! < along[input.to[edge]!]!);
  });

test("nodes do not overlap", () => {
  for (const seed of [1, 2, 3]) {
    const input = layered(6, 30, (_, place) => place % 3, 3, seed === 2, seed);
    const layout = layoutOf(input);
    for (let one = 0; one < input.count; one++) for (let other = 0; other < one; other++) assert.ok(!overlaps(layout, one, other), `${one} and ${other}`);
  }
});

test("outlines of stages do not overlap and hold their nodes", () => {
  const next = chance(9);
  for (let round = 0; round < 30; round++) {
    const stages = 1 + Math.floor(next() * 6);
    const levels = 2 + Math.floor(next() * 8);
    const input = layered(levels, 1 + Math.floor(next() * 40), (level) => Math.floor(next() * (stages + 1)) - 1 + level * 0, stages, round % 2 === 1, round);
    const layout = layoutOf(input);
    for (const [place, one] of layout.stages.entries())
      for (const other of layout.stages.slice(0, place))
        assert.ok(one.x1 <= other.x0 || other.x1 <= one.x0 || one.y1 <= other.y0 || other.y1 <= one.y0, `stages ${one.stage} and ${other.stage} in round ${round}`);
    for (let node = 0; node < input.count; node++) {
      const box = layout.stages.find((each) => each.stage === input.stage[node]);
      if (!box) continue;
      assert.ok(layout.x[node]! > box.x0 && layout.x[node]! < box.x1 && layout.y[node]! > box.y0 && layout.y[node]! < box.y1);
    }
  }
});

test("a level of thousands becomes a block of squares", () => {
  const count = 8_929;
  const input: LayoutInput = { count, from: new Int32Array(count - 1), to: Int32Array.from({ length: count - 1 }, (_, place) => place + 1), stage: new Int32Array(count), stages: 1, down: false };
  const layout = layoutOf(input);
  assert.equal(layout.small[1], 1);
  assert.equal(layout.small[0], 0);
  const ratio = layout.width / layout.height;
  assert.ok(ratio > 0.5 && ratio < 2, `${layout.width} × ${layout.height}`);
});

test("levels are the longest ways", () => {
  const level = levelsOf({ count: 5, from: Int32Array.of(0, 1, 0, 3), to: Int32Array.of(1, 2, 2, 2) });
  assert.deepEqual([...level], [0, 1, 2, 0, 0]);
});

test("an empty graph and a single node have a layout", () => {
  const none = { from: new Int32Array(), to: new Int32Array(), stages: 0, down: false };
  assert.equal(layoutOf({ ...none, count: 0, stage: new Int32Array() }).width, 0);
  assert.equal(layoutOf({ ...none, count: 1, stage: Int32Array.of(-1) }).width, NODE.width);
});

test("ten thousand nodes take no more steps than edges and nodes allow", () => {
  // A quadratic layout of this graph would take minutes; the limit of the runner would end it.
  const layout = layoutOf(layered(100, 100, (level) => level % 2, 2));
  assert.equal(layout.x.length, 10_000);
  assert.ok(layout.x.every(Number.isFinite) && layout.y.every(Number.isFinite));
});
