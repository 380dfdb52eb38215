// Draws a graph on a canvas. Bundles of edges from block to block when it is seen from afar, single edges when near; failed nodes last and
// never smaller than three pixels, so that no failure is hidden. Source: ADR 0068.
import { count } from "../format.ts";
import { byKind, GLYPH, type Kind, KINDS, kindOf } from "../states.ts";
import { pieces } from "../parts/pieces.ts";
import { type Box, type Camera, seen, type Size } from "./camera.ts";
import { type Layout, NODE, SQUARE, STAGE_HEAD, STAGE_PAD } from "./layout.ts";
import type { Scene } from "./scene.ts";
import type { Palette } from "./theme.ts";

/** Below this scale many edges are drawn as bundles. */
const SINGLE_K_MIN = 0.45;
/** So many edges are drawn one by one at any scale; and at most so many at once. */
const FEW_EDGES = 1_500;
const SINGLE_MAX = 6_000;
const NAMES_K_MIN = 0.5;
const FAILED_PX_MIN = 3;

export interface Bundle { from: number; to: number; edges: number; isWithin: boolean }
export interface Look { colour: "state" | "mesh"; chosen: number; hovered: number; matches: Uint8Array | null; path: readonly number[] }

/** Edges between blocks, counted; those within one block are left out. */
export function bundlesOf(scene: Scene, layout: Layout): Bundle[] {
  const found = new Map<number, Bundle>();
  const cells = layout.cells.length;
  for (let edge = 0; edge < scene.from.length; edge++) {
    const from = layout.cell[scene.from[edge]!]!;
    const to = layout.cell[scene.to[edge]!]!;
    const known = found.get(from * cells + to);
    if (known) known.edges++;
    else {
      const stage = layout.cells[from]!.stage;
      found.set(from * cells + to, { from, to, edges: 1, isWithin: stage >= 0 && stage === layout.cells[to]!.stage });
    }
  }
  return [...found.values()];
}

export function paintGraph(ctx: CanvasRenderingContext2D, size: Size, ratio: number, camera: Camera, scene: Scene, layout: Layout, bundles: readonly Bundle[], colours: Palette, look: Look): void {
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.fillStyle = colours.bg;
  ctx.fillRect(0, 0, size.width * ratio, size.height * ratio);
  const scale = camera.k * ratio;
  ctx.setTransform(scale, 0, 0, scale, (size.width / 2) * ratio - camera.x * scale, (size.height / 2) * ratio - camera.y * scale);
  const view = seen(camera, size);
  const isSingle = scene.from.length <= FEW_EDGES || camera.k >= SINGLE_K_MIN;
  if (!isSingle) paintBundles(ctx, camera, layout, bundles, colours, false);
  paintStages(ctx, camera, view, scene, layout, colours);
  if (isSingle) paintEdges(ctx, camera, view, scene, layout, colours);
  else paintBundles(ctx, camera, layout, bundles, colours, true);
  paintPath(ctx, camera, layout, colours, look.path);
  const focus = look.chosen >= 0 ? look.chosen : look.hovered;
  if (focus >= 0) paintEdgesOf(ctx, camera, scene, layout, colours, focus);
  paintNodes(ctx, camera, view, scene, layout, colours, look);
  if (look.hovered >= 0 && look.hovered !== look.chosen) outline(ctx, camera, layout, look.hovered, colours.lineStrong, 1.5);
  if (look.chosen >= 0) outline(ctx, camera, layout, look.chosen, colours.accent, 3);
}

/** The node at a point of the drawing; -1: none. Small squares are hit a little beside too. */
export function nodeAt(layout: Layout, x: number, y: number, slack: number): number {
  for (let node = layout.x.length - 1; node >= 0; node--) {
    const [halfWidth, halfHeight] = halves(layout, node);
    if (Math.abs(layout.x[node]! - x) <= halfWidth + slack && Math.abs(layout.y[node]! - y) <= halfHeight + slack) return node;
  }
  return -1;
}

export function halves(layout: Layout, node: number): [number, number] {
  return layout.small[node] ? [SQUARE / 2, SQUARE / 2] : [NODE.width / 2, NODE.height / 2];
}

/** A long name without its middle: names of one graph differ at their ends. */
export function shortened(name: string, most: number): string {
  if (name.length <= most) return name;
  const head = Math.ceil((most - 1) / 2);
  return `${name.slice(0, head)}…${name.slice(name.length - (most - 1 - head))}`;
}

function paintStages(ctx: CanvasRenderingContext2D, camera: Camera, view: Box, scene: Scene, layout: Layout, colours: Palette): void {
  ctx.lineWidth = 1 / camera.k;
  for (const box of layout.stages) {
    if (box.x1 < view.x0 || box.x0 > view.x1 || box.y1 < view.y0 || box.y0 > view.y1) continue;
    ctx.fillStyle = colours.panel;
    ctx.strokeStyle = colours.line;
    ctx.beginPath();
    ctx.roundRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0, 8);
    ctx.fill();
    ctx.stroke();
    if (camera.k < 0.3) continue;
    const stage = scene.stages[box.stage] ?? "";
    const width = box.x1 - box.x0 - 2 * STAGE_PAD;
    const mesh = meshOf(scene, layout, box.stage);
    ctx.font = `600 11px ${colours.sans}`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.fillStyle = colours.muted;
    const words = `${mesh ? `${mesh} · ` : ""}stage ${stage.slice(stage.lastIndexOf(".") + 1)} · ${count(box.nodes)}`;
    ctx.fillText(shortened(words, Math.max(4, Math.floor(width / 6.2))), box.x0 + STAGE_PAD, box.y0 + STAGE_HEAD / 2 + 6);
  }
}

function meshOf(scene: Scene, layout: Layout, stage: number): string {
  const cell = layout.cells.findIndex((each) => each.stage === stage);
  const node = layout.cell.indexOf(cell);
  return scene.meshes[scene.mesh[node] ?? -1] ?? "";
}

function paintBundles(ctx: CanvasRenderingContext2D, camera: Camera, layout: Layout, bundles: readonly Bundle[], colours: Palette, within: boolean): void {
  ctx.strokeStyle = colours.lineStrong;
  ctx.globalAlpha = bundles.length > 400 ? 0.25 : 0.45;
  for (const bundle of bundles) {
    if (bundle.isWithin !== within) continue;
    const from = layout.cells[bundle.from]!;
    const to = layout.cells[bundle.to]!;
    ctx.lineWidth = (1 + Math.log2(bundle.edges + 1)) / camera.k / 2;
    ctx.beginPath();
    if (layout.down) curve(ctx, (from.x0 + from.x1) / 2, from.y1, (to.x0 + to.x1) / 2, to.y0, true);
    else curve(ctx, from.x1, (from.y0 + from.y1) / 2, to.x0, (to.y0 + to.y1) / 2, false);
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
}

function paintEdges(ctx: CanvasRenderingContext2D, camera: Camera, view: Box, scene: Scene, layout: Layout, colours: Palette): void {
  ctx.strokeStyle = colours.lineStrong;
  ctx.globalAlpha = 0.55;
  ctx.lineWidth = Math.min(1.25, 0.8 / camera.k);
  ctx.beginPath();
  let drawn = 0;
  for (let edge = 0; edge < scene.from.length && drawn < SINGLE_MAX; edge++) {
    const from = scene.from[edge]!;
    const to = scene.to[edge]!;
    const [x0, y0, x1, y1] = [layout.x[from]!, layout.y[from]!, layout.x[to]!, layout.y[to]!];
    if (Math.max(x0, x1) < view.x0 || Math.min(x0, x1) > view.x1 || Math.max(y0, y1) < view.y0 || Math.min(y0, y1) > view.y1) continue;
    drawn++;
    edgePath(ctx, layout, from, to);
  }
  ctx.stroke();
  ctx.globalAlpha = 1;
}

function paintEdgesOf(ctx: CanvasRenderingContext2D, camera: Camera, scene: Scene, layout: Layout, colours: Palette, node: number): void {
  ctx.strokeStyle = colours.accent;
  ctx.lineWidth = Math.max(1.5, 1.5 / camera.k);
  ctx.beginPath();
  for (let edge = 0; edge < scene.from.length; edge++)
    if (scene.from[edge] === node || scene.to[edge] === node) edgePath(ctx, layout, scene.from[edge]!, scene.to[edge]!);
  ctx.stroke();
}

/** The critical path: from each of its nodes to the next. */
function paintPath(ctx: CanvasRenderingContext2D, camera: Camera, layout: Layout, colours: Palette, path: readonly number[]): void {
  ctx.strokeStyle = colours.text;
  ctx.lineWidth = Math.max(2.5, 2 / camera.k);
  ctx.beginPath();
  for (let place = 1; place < path.length; place++) edgePath(ctx, layout, path[place - 1]!, path[place]!);
  ctx.stroke();
}

function edgePath(ctx: CanvasRenderingContext2D, layout: Layout, from: number, to: number): void {
  const [fromWidth, fromHeight] = halves(layout, from);
  const [toWidth, toHeight] = halves(layout, to);
  if (layout.down) curve(ctx, layout.x[from]!, layout.y[from]! + fromHeight, layout.x[to]!, layout.y[to]! - toHeight, true);
  else curve(ctx, layout.x[from]! + fromWidth, layout.y[from]!, layout.x[to]! - toWidth, layout.y[to]!, false);
}

function curve(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number, down: boolean): void {
  ctx.moveTo(x0, y0);
  if (down) ctx.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
  else ctx.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
}

function paintNodes(ctx: CanvasRenderingContext2D, camera: Camera, view: Box, scene: Scene, layout: Layout, colours: Palette, look: Look): void {
  const kinds = scene.states.map(kindOf);
  const isNear = camera.k >= NAMES_K_MIN;
  const near: number[] = [];
  const byKindOf: Partial<Record<Kind, number[]>> = {};
  for (let node = 0; node < scene.count; node++) {
    const [halfWidth, halfHeight] = halves(layout, node);
    const x = layout.x[node]!;
    const y = layout.y[node]!;
    if (x + halfWidth < view.x0 || x - halfWidth > view.x1 || y + halfHeight < view.y0 || y - halfHeight > view.y1) continue;
    if (isNear && !layout.small[node]) near.push(node);
    else (byKindOf[kinds[scene.state[node]!]!] ??= []).push(node);
  }
  for (const kind of [...KINDS].reverse()) {
    const nodes = byKindOf[kind];
    if (!nodes) continue;
    const least = kind === "failed" ? FAILED_PX_MIN / camera.k : 0;
    if (look.colour === "mesh" && kind !== "failed") for (const node of nodes) fillMesh(ctx, scene, layout, colours, look, node);
    else {
      for (const faint of look.matches ? [true, false] : [false]) {
        ctx.globalAlpha = faint ? 0.18 : 1;
        ctx.fillStyle = colours.kind[kind];
        ctx.beginPath();
        for (const node of nodes) {
          if (look.matches && !look.matches[node] !== faint) continue;
          const [halfWidth, halfHeight] = halves(layout, node);
          const width = Math.max(least, halfWidth * 2);
          const height = Math.max(least, halfHeight * 2);
          ctx.rect(layout.x[node]! - width / 2, layout.y[node]! - height / 2, width, height);
        }
        ctx.fill();
      }
      ctx.globalAlpha = 1;
    }
    if (SQUARE * camera.k >= 11) glyphs(ctx, layout, colours, kind, nodes, look);
  }
  for (const node of near) paintNamed(ctx, scene, layout, colours, look, node, kinds[scene.state[node]!]!);
}

function fillMesh(ctx: CanvasRenderingContext2D, scene: Scene, layout: Layout, colours: Palette, look: Look, node: number): void {
  const [halfWidth, halfHeight] = halves(layout, node);
  ctx.globalAlpha = look.matches && !look.matches[node] ? 0.18 : 1;
  ctx.fillStyle = meshColour(scene, colours, node);
  ctx.fillRect(layout.x[node]! - halfWidth, layout.y[node]! - halfHeight, halfWidth * 2, halfHeight * 2);
  ctx.globalAlpha = 1;
}

function meshColour(scene: Scene, colours: Palette, node: number): string {
  const mesh = scene.mesh[node]!;
  return mesh < 0 ? colours.kind.waiting : colours.mesh[mesh % colours.mesh.length]!;
}

function glyphs(ctx: CanvasRenderingContext2D, layout: Layout, colours: Palette, kind: Kind, nodes: readonly number[], look: Look): void {
  ctx.fillStyle = colours.bg;
  ctx.font = `700 10px ${colours.sans}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (const node of nodes) if (layout.small[node] && !(look.matches && !look.matches[node])) ctx.fillText(GLYPH[kind], layout.x[node]!, layout.y[node]! + 0.5);
}

/** A box with a coloured edge and a glyph; the name is text, so it is never in the colour of a state. */
function paintNamed(ctx: CanvasRenderingContext2D, scene: Scene, layout: Layout, colours: Palette, look: Look, node: number, kind: Kind): void {
  const x0 = layout.x[node]! - NODE.width / 2;
  const y0 = layout.y[node]! - NODE.height / 2;
  const colour = look.colour === "mesh" ? meshColour(scene, colours, node) : colours.kind[kind];
  const array = scene.arrays.get(node);
  ctx.globalAlpha = look.matches && !look.matches[node] ? 0.25 : 1;
  ctx.fillStyle = colours.raised;
  ctx.strokeStyle = kind === "failed" ? colours.kind.failed : colours.lineStrong;
  ctx.lineWidth = kind === "failed" ? 2 : 1;
  ctx.beginPath();
  ctx.roundRect(x0, y0, NODE.width, NODE.height, 5);
  ctx.fill();
  ctx.stroke();
  ctx.fillStyle = colour;
  ctx.beginPath();
  ctx.roundRect(x0, y0, 22, NODE.height, [5, 0, 0, 5]);
  ctx.fill();
  ctx.fillStyle = colours.bg;
  ctx.font = `700 12px ${colours.sans}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillText(GLYPH[kind], x0 + 11, layout.y[node]! + 1);
  ctx.fillStyle = colours.text;
  ctx.font = `12px ${colours.sans}`;
  ctx.textAlign = "left";
  if (array) {
    const done = array.counts["SUCCEEDED"] ?? 0;
    const words = array.elements === null ? "?" : `${count(done)}/${count(array.elements)}`;
    ctx.fillText(shortened(scene.names[node]!, Math.max(4, 17 - words.length)), x0 + 28, layout.y[node]! - 4);
    ctx.textAlign = "right";
    ctx.fillStyle = colours.muted;
    ctx.font = `10px ${colours.sans}`;
    ctx.fillText(words, x0 + NODE.width - 6, layout.y[node]! - 4);
    const width = NODE.width - 34;
    ctx.fillStyle = colours.line;
    ctx.fillRect(x0 + 28, y0 + NODE.height - 9, width, 4);
    for (const piece of pieces(byKind(array.counts), array.elements ?? 0)) {
      ctx.fillStyle = colours.kind[piece.kind];
      ctx.fillRect(x0 + 28 + (piece.from / 100) * width, y0 + NODE.height - 9, (piece.width / 100) * width, 4);
    }
  } else {
    const attempt = scene.attempt[node]! > 1 ? `×${scene.attempt[node]}` : "";
    ctx.fillText(shortened(scene.names[node]!, attempt ? 15 : 18), x0 + 28, layout.y[node]! + 1);
    if (attempt) {
      ctx.textAlign = "right";
      ctx.fillStyle = colours.muted;
      ctx.fillText(attempt, x0 + NODE.width - 6, layout.y[node]! + 1);
    }
  }
  ctx.globalAlpha = 1;
}

function outline(ctx: CanvasRenderingContext2D, camera: Camera, layout: Layout, node: number, colour: string, width: number): void {
  const [halfWidth, halfHeight] = halves(layout, node);
  const pad = 3 / camera.k;
  ctx.strokeStyle = colour;
  ctx.lineWidth = width / camera.k;
  ctx.beginPath();
  ctx.roundRect(layout.x[node]! - halfWidth - pad, layout.y[node]! - halfHeight - pad, (halfWidth + pad) * 2, (halfHeight + pad) * 2, 6);
  ctx.stroke();
}
