// Layered layout of a graph in linear time: levels by longest path, stages in lanes of their own, wide levels folded into blocks. Pure.
//
// A stage is drawn with an outline, so its nodes must stand together and apart from those of others: stages that share levels get
// different lanes across the levels, like intervals in an interval graph. Within a lane, nodes of a level are ordered by the middle of
// the nodes they wait for, so that edges cross less. A level of thousands in one line is unreadable: it becomes a block of small squares.
// Rejected: dagre and elkjs, which take minutes or fail at 10,000 nodes (ADR 0068).

export interface LayoutInput {
  count: number;
  from: Int32Array;
  to: Int32Array;
  /** Stage of each node; -1: none. */
  stage: Int32Array;
  stages: number;
  /** Levels go down and not to the right: for canvases taller than wide. */
  down: boolean;
}

/** The nodes of one stage and level: a line, or a block. */
export interface CellBox { stage: number; level: number; x0: number; y0: number; x1: number; y1: number; nodes: number }

export interface StageBox { stage: number; x0: number; y0: number; x1: number; y1: number; nodes: number }

export interface Layout {
  /** Middles of the nodes. */
  x: Float32Array;
  y: Float32Array;
  /** 1: a small square without a name. */
  small: Uint8Array;
  level: Int32Array;
  /** Place in `cells` of each node. */
  cell: Int32Array;
  cells: CellBox[];
  stages: StageBox[];
  down: boolean;
  width: number;
  height: number;
}

export const NODE = { width: 148, height: 30 };
export const SQUARE = 16;
const GAP = 12;
const SQUARE_GAP = 5;
const LEVEL_GAP = 64;
const LANE_GAP = 40;
/** Around the nodes of a stage; its name stands in the upper part. */
export const STAGE_PAD = 12;
export const STAGE_HEAD = 20;
/** More nodes of a stage and level than this stand in several lines; of more than the second number, as squares. */
const LINE_MAX = 12;
const NAMED_MAX = 120;

interface Cell { level: number; lane: number; stage: number; nodes: number[]; lines: number; isSmall: boolean; main: number; cross: number }

export function layoutOf(input: LayoutInput): Layout {
  const { count, stages, down } = input;
  const level = levelsOf(input);
  const levels = count ? level.reduce((most, each) => Math.max(most, each), 0) + 1 : 0;
  const lane = lanesOf(level, input.stage, stages);
  const cells = cellsOf(input, level, levels, lane);
  const unit = down ? { main: NODE.height, cross: NODE.width } : { main: NODE.width, cross: NODE.height };
  for (const cell of cells) sizeOf(cell, unit);

  // Along the levels: each as deep as its deepest cell. Across: each lane as wide as its widest cell.
  const depth = new Float64Array(levels);
  const lanes = 1 + cells.reduce((most, cell) => Math.max(most, cell.lane), 0);
  const breadth = new Float64Array(lanes);
  for (const cell of cells) {
    depth[cell.level] = Math.max(depth[cell.level]!, cell.main);
    breadth[cell.lane] = Math.max(breadth[cell.lane]!, cell.cross);
  }
  const begin = running(depth, LEVEL_GAP);
  const laneBegin = running(breadth, LANE_GAP + STAGE_PAD * 2 + STAGE_HEAD);
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  const small = new Uint8Array(count);
  const cellOf = new Int32Array(count);
  const cellBoxes: CellBox[] = [];
  const boxes = new Map<number, StageBox>();
  for (const cell of cells) {
    const main0 = begin[cell.level]! + (depth[cell.level]! - cell.main) / 2;
    const cross0 = laneBegin[cell.lane]! + (breadth[cell.lane]! - cell.cross) / 2;
    place(cell, main0, cross0, unit, down, x, y, small);
    for (const node of cell.nodes) cellOf[node] = cellBoxes.length;
    const [x0, y0] = down ? [cross0, main0] : [main0, cross0];
    const [x1, y1] = down ? [cross0 + cell.cross, main0 + cell.main] : [main0 + cell.main, cross0 + cell.cross];
    cellBoxes.push({ stage: cell.stage, level: cell.level, x0, y0, x1, y1, nodes: cell.nodes.length });
    if (cell.stage < 0) continue;
    const box = boxes.get(cell.stage) ?? { stage: cell.stage, x0, y0, x1, y1, nodes: 0 };
    boxes.set(cell.stage, {
      stage: cell.stage, nodes: box.nodes + cell.nodes.length,
      x0: Math.min(box.x0, x0), y0: Math.min(box.y0, y0), x1: Math.max(box.x1, x1), y1: Math.max(box.y1, y1),
    });
  }
  for (const box of boxes.values()) {
    box.x0 -= STAGE_PAD;
    box.y0 -= STAGE_PAD + STAGE_HEAD;
    box.x1 += STAGE_PAD;
    box.y1 += STAGE_PAD;
  }
  const main = levels ? begin[levels - 1]! + depth[levels - 1]! : 0;
  const cross = lanes && count ? laneBegin[lanes - 1]! + breadth[lanes - 1]! : 0;
  return {
    x, y, small, level, down, cell: cellOf, cells: cellBoxes, stages: [...boxes.values()],
    width: down ? cross : main, height: down ? main : cross,
  };
}

/** The number of edges on the longest way to each node. */
export function levelsOf({ count, from, to }: Pick<LayoutInput, "count" | "from" | "to">): Int32Array {
  const { first, next } = followers(count, from, to);
  const missing = new Int32Array(count);
  for (const node of to) missing[node]!++;
  const level = new Int32Array(count);
  const ready = new Int32Array(count);
  let end = 0;
  for (let node = 0; node < count; node++) if (!missing[node]) ready[end++] = node;
  for (let at = 0; at < end; at++) {
    const node = ready[at]!;
    for (let edge = first[node]!; edge < first[node + 1]!; edge++) {
      const follower = next[edge]!;
      level[follower] = Math.max(level[follower]!, level[node]! + 1);
      if (--missing[follower]! === 0) ready[end++] = follower;
    }
  }
  return level;
}

/** Followers of each node in columns: those of `node` are `next[first[node]]` up to before `next[first[node + 1]]`. */
export function followers(count: number, from: Int32Array, to: Int32Array): { first: Int32Array; next: Int32Array } {
  const first = new Int32Array(count + 1);
  for (const node of from) first[node + 1]!++;
  for (let node = 0; node < count; node++) first[node + 1]! += first[node]!;
  const at = first.slice();
  const next = new Int32Array(from.length);
  for (let edge = 0; edge < from.length; edge++) next[at[from[edge]!]!++] = to[edge]!;
  return { first, next };
}

/** The lane of each stage (the last one: nodes without a stage): stages in one lane share no level. */
function lanesOf(level: Int32Array, stage: Int32Array, stages: number): Int32Array {
  const low = new Int32Array(stages + 1).fill(2 ** 30);
  const high = new Int32Array(stages + 1).fill(-1);
  for (let node = 0; node < level.length; node++) {
    const of = stage[node]! < 0 ? stages : stage[node]!;
    low[of] = Math.min(low[of]!, level[node]!);
    high[of] = Math.max(high[of]!, level[node]!);
  }
  const order = Array.from({ length: stages + 1 }, (_, of) => of).filter((of) => high[of]! >= 0);
  order.sort((a, b) => low[a]! - low[b]! || a - b);
  const free: number[] = [];
  const lane = new Int32Array(stages + 1);
  for (const of of order) {
    let found = free.findIndex((until) => until < low[of]!);
    if (found < 0) found = free.length;
    free[found] = high[of]!;
    lane[of] = found;
  }
  return lane;
}

function cellsOf(input: LayoutInput, level: Int32Array, levels: number, lane: Int32Array): Cell[] {
  const byKey = new Map<number, Cell>();
  const byLevel: Cell[][] = Array.from({ length: levels }, () => []);
  for (let node = 0; node < input.count; node++) {
    const of = input.stage[node]!;
    const key = level[node]! * (input.stages + 1) + (of < 0 ? input.stages : of);
    let cell = byKey.get(key);
    if (!cell) {
      cell = { level: level[node]!, lane: lane[of < 0 ? input.stages : of]!, stage: of, nodes: [], lines: 1, isSmall: false, main: 0, cross: 0 };
      byKey.set(key, cell);
      byLevel[cell.level]!.push(cell);
    }
    cell.nodes.push(node);
  }
  order(input, byLevel);
  return byLevel.flat();
}

/** Order the nodes of each cell by the middle of their neighbours' places: down the levels, up, and down again. */
function order(input: LayoutInput, byLevel: Cell[][]): void {
  const at = new Float64Array(input.count);
  const sum = new Float64Array(input.count);
  const number = new Int32Array(input.count);
  const numberOf = (cell: Cell): void => cell.nodes.forEach((node, place) => (at[node] = cell.lane + (place + 0.5) / cell.nodes.length));
  byLevel.flat().forEach(numberOf);
  const up = followers(input.count, input.to, input.from);
  const under = followers(input.count, input.from, input.to);
  for (const pass of [0, 1, 2]) {
    const near = pass === 1 ? under : up;
    const sequence = pass === 1 ? [...byLevel].reverse() : byLevel;
    for (const cells of sequence)
      for (const cell of cells) {
        if (cell.nodes.length < 2) continue;
        for (const node of cell.nodes) {
          sum[node] = 0;
          number[node] = near.first[node + 1]! - near.first[node]!;
          for (let edge = near.first[node]!; edge < near.first[node + 1]!; edge++) sum[node]! += at[near.next[edge]!]!;
          sum[node] = number[node] ? sum[node]! / number[node]! : at[node]!;
        }
        cell.nodes.sort((a, b) => sum[a]! - sum[b]! || a - b);
        numberOf(cell);
      }
  }
}

function sizeOf(cell: Cell, unit: { main: number; cross: number }): void {
  const count = cell.nodes.length;
  cell.isSmall = count > NAMED_MAX;
  // A block is about square on the screen.
  const main = (cell.isSmall ? SQUARE : unit.main) + (cell.isSmall ? SQUARE_GAP : GAP);
  const cross = (cell.isSmall ? SQUARE : unit.cross) + (cell.isSmall ? SQUARE_GAP : GAP);
  cell.lines = count <= LINE_MAX ? 1 : Math.max(1, Math.round(Math.sqrt((count * cross) / main)));
  const longest = Math.ceil(count / cell.lines);
  cell.lines = Math.ceil(count / longest);
  const gap = cell.isSmall ? SQUARE_GAP : GAP;
  cell.main = cell.lines * main - gap;
  cell.cross = longest * cross - gap;
}

function place(cell: Cell, main0: number, cross0: number, unit: { main: number; cross: number }, down: boolean, x: Float32Array, y: Float32Array, small: Uint8Array): void {
  const [size, gap] = cell.isSmall ? [{ main: SQUARE, cross: SQUARE }, SQUARE_GAP] : [unit, GAP];
  const longest = Math.ceil(cell.nodes.length / cell.lines);
  cell.nodes.forEach((node, number) => {
    const line = Math.floor(number / longest);
    const inLine = Math.min(longest, cell.nodes.length - line * longest);
    const lead = ((longest - inLine) * (size.cross + gap)) / 2;
    const main = main0 + line * (size.main + gap) + size.main / 2;
    const cross = cross0 + lead + (number % longest) * (size.cross + gap) + size.cross / 2;
    x[node] = down ? cross : main;
    y[node] = down ? main : cross;
    small[node] = cell.isSmall ? 1 : 0;
  });
}

function running(sizes: Float64Array, gap: number): Float64Array {
  const begin = new Float64Array(sizes.length);
  for (let place = 1; place < sizes.length; place++) begin[place] = begin[place - 1]! + sizes[place - 1]! + gap;
  return begin;
}
