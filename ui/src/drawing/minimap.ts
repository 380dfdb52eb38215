// The whole graph in a corner, with the part that is seen: for graphs too large to be read as a whole.
import { type Kind, KINDS, kindOf } from "../states.ts";
import { type Camera, fit, seen, type Size, toDrawing, toScreen } from "./camera.ts";
import type { Layout } from "./layout.ts";
import type { Scene } from "./scene.ts";
import type { Palette } from "./theme.ts";

/** Graphs that are drawn smaller than this as a whole get a map. */
const WHOLE_K_MAX = 0.45;
const PAD = 6;

export function needsMap(layout: Layout, size: Size): boolean {
  return fit(boxOf(layout), size).k < WHOLE_K_MAX;
}

/** The point of the drawing under a point of the map. */
export function onMap(layout: Layout, map: Size, x: number, y: number): [number, number] {
  return toDrawing(fit(boxOf(layout), map, PAD), map, x, y);
}

/** Kind of each cell: the first of `KINDS` that a node of it has, so that a failure among thousands shows. Pure. */
export function kindsOfCells(scene: Pick<Scene, "states" | "state">, layout: Pick<Layout, "cell" | "cells">): Kind[] {
  const rank = scene.states.map((state) => KINDS.indexOf(kindOf(state)));
  const best = new Uint8Array(layout.cells.length).fill(KINDS.length - 1);
  for (let node = 0; node < layout.cell.length; node++) {
    const cell = layout.cell[node]!;
    best[cell] = Math.min(best[cell]!, rank[scene.state[node]!]!);
  }
  return Array.from(best, (place) => KINDS[place]!);
}

/** Paint the cells in the colours of their states; the frame of the view is painted apart, since it moves each frame. */
export function paintMap(ctx: CanvasRenderingContext2D, map: Size, ratio: number, scene: Scene, layout: Layout, colours: Palette): void {
  const camera = fit(boxOf(layout), map, PAD);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = colours.raised;
  ctx.fillRect(0, 0, map.width, map.height);
  const kinds = kindsOfCells(scene, layout);
  for (const kind of [...KINDS].reverse()) {
    ctx.fillStyle = colours.kind[kind];
    layout.cells.forEach((cell, place) => {
      if (kinds[place] !== kind) return;
      const [x, y] = toScreen(camera, map, cell.x0, cell.y0);
      const least = kind === "failed" ? 3 : 1;
      ctx.fillRect(x, y, Math.max(least, (cell.x1 - cell.x0) * camera.k), Math.max(least, (cell.y1 - cell.y0) * camera.k));
    });
  }
}

export function paintView(ctx: CanvasRenderingContext2D, map: Size, ratio: number, layout: Layout, camera: Camera, size: Size, colours: Palette): void {
  const whole = fit(boxOf(layout), map, PAD);
  const view = seen(camera, size);
  const [x0, y0] = toScreen(whole, map, view.x0, view.y0);
  const [x1, y1] = toScreen(whole, map, view.x1, view.y1);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.strokeStyle = colours.accent;
  ctx.lineWidth = 2;
  const [left, top] = [Math.max(1, x0), Math.max(1, y0)];
  ctx.strokeRect(left, top, Math.max(4, Math.min(map.width - 1, x1) - left), Math.max(4, Math.min(map.height - 1, y1) - top));
}

function boxOf(layout: Layout): { x0: number; y0: number; x1: number; y1: number } {
  return { x0: 0, y0: 0, x1: layout.width, y1: layout.height };
}
