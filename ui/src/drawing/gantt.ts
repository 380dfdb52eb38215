// Timeline of a run: bars in rows that do not overlap, a block of rows for each mesh. Times in which nothing ran can be folded. Pure, but for
// `paintGantt`.
import type { TimelineView } from "../api/types.ts";
import { duration } from "../format.ts";
import { KINDS, kindOf } from "../states.ts";
import type { Size } from "./camera.ts";
import type { Palette } from "./theme.ts";

/** When a bar ends; of what still runs: `nowMs`. All times count from the submission of the run. */
export function stopOf(timeline: TimelineView, bar: number, nowMs: number): number {
  const to = timeline.to_ms[bar]!;
  return to < 0 ? nowMs : to;
}

export interface Rows { row: Int32Array; labels: { mesh: string; first: number; rows: number }[]; count: number }

/** The row of each bar: the first of its mesh that is free at its start. */
export function rowsOf(timeline: TimelineView): Rows {
  const bars = timeline.from_ms.length;
  const row = new Int32Array(bars);
  const labels: Rows["labels"] = [];
  let first = 0;
  const meshes = [...timeline.meshes.map((_, place) => place), -1];
  for (const mesh of meshes) {
    const free: number[] = [];
    for (let bar = 0; bar < bars; bar++) {
      if (timeline.mesh[bar] !== mesh) continue;
      const stop = stopOf(timeline, bar, Number.POSITIVE_INFINITY);
      let found = free.findIndex((until) => until <= timeline.from_ms[bar]!);
      if (found < 0) found = free.length;
      free[found] = Math.max(stop, timeline.from_ms[bar]! + 1);
      row[bar] = first + found;
    }
    if (!free.length) continue;
    labels.push({ mesh: timeline.meshes[mesh] ?? "no mesh", first, rows: free.length });
    first += free.length;
  }
  return { row, labels, count: first };
}

export interface Fold { start: number; stop: number }

/** Times in which nothing ran, at least a twentieth of the whole and two seconds long. */
export function idleOf(timeline: TimelineView, endMs: number): Fold[] {
  const span = Math.max(1, endMs);
  const least = Math.max(2_000, span / 20);
  const order = timeline.from_ms.map((_, bar) => bar).sort((a, b) => timeline.from_ms[a]! - timeline.from_ms[b]!);
  const found: Fold[] = [];
  let busyUntil = 0;
  for (const bar of order) {
    if (timeline.from_ms[bar]! - busyUntil >= least) found.push({ start: busyUntil, stop: timeline.from_ms[bar]! });
    busyUntil = Math.max(busyUntil, stopOf(timeline, bar, endMs));
  }
  if (endMs - busyUntil >= least) found.push({ start: busyUntil, stop: endMs });
  return found;
}

/** From times to a line on which each fold is a fiftieth of what is left. */
export class Axis {
  readonly length: number;
  private readonly folds: readonly Fold[];
  private readonly foldLength: number;

  constructor(end: number, folds: readonly Fold[]) {
    this.folds = folds;
    const busy = Math.max(1, end - folds.reduce((sum, fold) => sum + fold.stop - fold.start, 0));
    this.foldLength = busy / 50;
    this.length = busy + folds.length * this.foldLength;
  }

  at(ms: number): number {
    let place = ms;
    for (const fold of this.folds) {
      if (ms <= fold.start) break;
      const inside = Math.min(ms, fold.stop) - fold.start;
      place -= inside - this.foldLength * (inside / (fold.stop - fold.start));
    }
    return place;
  }
}

export const LABELS = 96;
export const HEAD = 26;

export interface GanttView { left: number; right: number; top: number }

export function rowHeight(rows: number, size: Size): number {
  return Math.min(24, Math.max(7, (size.height - HEAD - 8) / Math.max(1, rows)));
}

export function paintGantt(ctx: CanvasRenderingContext2D, size: Size, ratio: number, timeline: TimelineView, rows: Rows, axis: Axis, view: GanttView, nowMs: number, folds: readonly Fold[], colours: Palette, look: { chosen: number; hovered: number; attempt: number; colour: "state" | "mesh"; isOnPath: ((node: number) => boolean) | null }): void {
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = colours.bg;
  ctx.fillRect(0, 0, size.width, size.height);
  const height = rowHeight(rows.count, size);
  const scale = (size.width - LABELS) / (view.right - view.left);
  const x = (ms: number): number => LABELS + (axis.at(ms) - view.left) * scale;
  rows.labels.forEach((label, place) => {
    if (place % 2) return;
    ctx.fillStyle = colours.panel;
    ctx.fillRect(0, HEAD + label.first * height - view.top, size.width, label.rows * height);
  });
  ctx.save();
  ctx.beginPath();
  ctx.rect(LABELS, 0, size.width - LABELS, size.height);
  ctx.clip();
  ticks(ctx, size, view, x, colours, nowMs);
  ctx.fillStyle = colours.line;
  for (const fold of folds) ctx.fillRect(x(fold.start) + 1, HEAD, Math.max(2, x(fold.stop) - x(fold.start) - 2), size.height - HEAD);
  const kinds = timeline.states.map(kindOf);
  const byKind = new Map<string, number[]>();
  for (let bar = 0; bar < rows.row.length; bar++) {
    if (look.attempt && timeline.attempt[bar] !== look.attempt) continue;
    const kind = kinds[timeline.bar_state[bar]!]!;
    const bars = byKind.get(kind);
    if (bars) bars.push(bar);
    else byKind.set(kind, [bar]);
  }
  const pad = height > 10 ? 2 : 0.5;
  for (const kind of [...KINDS].reverse()) {
    ctx.fillStyle = colours.kind[kind];
    for (const bar of byKind.get(kind) ?? []) {
      const y = HEAD + rows.row[bar]! * height - view.top;
      if (y + height < HEAD || y > size.height) continue;
      const from = x(timeline.from_ms[bar]!);
      const width = Math.max(kind === "failed" ? 3 : 1, x(stopOf(timeline, bar, nowMs)) - from - 0.5);
      if (from > size.width || from + width < LABELS) continue;
      if (look.colour === "mesh" && kind !== "failed") ctx.fillStyle = timeline.mesh[bar]! < 0 ? colours.kind.waiting : colours.mesh[timeline.mesh[bar]! % colours.mesh.length]!;
      ctx.globalAlpha = look.isOnPath && !look.isOnPath(timeline.node[bar]!) ? 0.25 : 1;
      ctx.fillRect(from, y + pad, width, height - 2 * pad);
      ctx.globalAlpha = 1;
      const isChosen = timeline.node[bar] === look.chosen;
      if (isChosen || timeline.node[bar] === look.hovered) {
        ctx.strokeStyle = isChosen ? colours.accent : colours.text;
        ctx.lineWidth = 2;
        ctx.strokeRect(from - 1, y + pad - 1, width + 2, height - 2 * pad + 2);
      }
    }
  }
  ctx.restore();
  ctx.font = `600 12px ${colours.sans}`;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.fillStyle = colours.text;
  for (const label of rows.labels) {
    const y = Math.max(HEAD + 10, HEAD + label.first * height - view.top + Math.min(12, (label.rows * height) / 2));
    if (y < size.height) ctx.fillText(label.mesh.length > 11 ? `${label.mesh.slice(0, 10)}…` : label.mesh, 8, y);
  }
}

/** The bar at a point; -1: none. Of bars below a pixel the nearest one. */
export function barAt(size: Size, timeline: TimelineView, rows: Rows, axis: Axis, view: GanttView, nowMs: number, px: number, py: number, attempt: number): number {
  const height = rowHeight(rows.count, size);
  const row = Math.floor((py - HEAD + view.top) / height);
  const scale = (size.width - LABELS) / (view.right - view.left);
  let best = -1;
  let least = 4;
  for (let bar = 0; bar < rows.row.length; bar++) {
    if (rows.row[bar] !== row || (attempt && timeline.attempt[bar] !== attempt)) continue;
    const from = LABELS + (axis.at(timeline.from_ms[bar]!) - view.left) * scale;
    const to = LABELS + (axis.at(stopOf(timeline, bar, nowMs)) - view.left) * scale;
    const distance = px < from ? from - px : px > to ? px - to : 0;
    if (distance < least) {
      least = distance;
      best = bar;
    }
  }
  return best;
}

const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];

function ticks(ctx: CanvasRenderingContext2D, size: Size, view: GanttView, x: (ms: number) => number, colours: Palette, nowMs: number): void {
  const wanted = ((view.right - view.left) / Math.max(1, size.width - LABELS)) * 90;
  const step = STEPS.find((each) => each >= wanted) ?? 864e5 * Math.ceil(wanted / 864e5);
  ctx.font = `11px ${colours.sans}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  let last = -100;
  for (let ms = 0; ms <= nowMs && ms / step < 5_000; ms += step) {
    const at = x(ms);
    if (at < LABELS - 60 || at > size.width || at - last < 60) continue;
    last = at;
    ctx.fillStyle = colours.line;
    ctx.fillRect(at, HEAD - 6, 1, size.height);
    ctx.fillStyle = colours.muted;
    ctx.fillText(ms === 0 ? "0" : duration(ms), at + 4, HEAD / 2);
  }
}
