// The worker that computes layouts, shared by all graphs of the page.
import { type Layout, type LayoutInput } from "./layout.ts";
import type { Scene } from "./scene.ts";

declare const LAYOUT_WORKER: string;

let worker: Worker | null = null;
let tickets = 0;
const waiting = new Map<number, (layout: Layout) => void>();

export function layoutInWorker(scene: Scene, down: boolean): Promise<Layout> {
  if (!worker) {
    worker = new Worker(`assets/${LAYOUT_WORKER}`);
    worker.onmessage = (event: MessageEvent<{ ticket: number; layout: Layout }>) => {
      waiting.get(event.data.ticket)?.(event.data.layout);
      waiting.delete(event.data.ticket);
    };
  }
  const input: LayoutInput = { count: scene.count, from: scene.from, to: scene.to, stage: scene.stage, stages: scene.stages.length, down };
  const ticket = ++tickets;
  worker.postMessage({ ticket, input });
  return new Promise((resolve) => waiting.set(ticket, resolve));
}
