// A canvas that fills its frame, is drawn once a frame when something changed, and is moved by pointer, wheel and two fingers.
import type { Size } from "./camera.ts";

export interface Moves {
  pan: (dx: number, dy: number) => void;
  zoom: (x: number, y: number, factor: number) => void;
  hover: (x: number, y: number) => void;
  leave: () => void;
  press: (x: number, y: number) => void;
}

const CLICK_PX = 5;

export class Surface {
  readonly size: Size = { width: 0, height: 0 };
  ratio = 1;
  /** Milliseconds of own work in the last frames, for tests. */
  readonly frames: number[] = [];
  private readonly canvas: HTMLCanvasElement;
  private readonly paint: (ctx: CanvasRenderingContext2D) => void;
  private frame = 0;
  private isClosed = false;
  private readonly observer: ResizeObserver;
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;

  constructor(canvas: HTMLCanvasElement, paint: (ctx: CanvasRenderingContext2D) => void, moves: Moves, onSize: () => void) {
    this.canvas = canvas;
    this.paint = paint;
    this.observer = new ResizeObserver(() => {
      this.measure();
      onSize();
    });
    this.observer.observe(canvas.parentElement!);
    this.measure();
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = this.place(event);
      if (event.shiftKey) moves.pan(-event.deltaY - event.deltaX, 0);
      else moves.zoom(x, y, Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const [x, y] = this.place(event);
      this.pointers.set(event.pointerId, { x, y });
      this.moved = this.pointers.size > 1 ? CLICK_PX * 2 : 0;
    });
    canvas.addEventListener("pointermove", (event) => this.move(event, moves));
    const up = (event: PointerEvent): void => {
      const [x, y] = this.place(event);
      if (this.pointers.delete(event.pointerId) && this.moved < CLICK_PX && event.type === "pointerup") moves.press(x, y);
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => moves.leave());
  }

  draw(): void {
    if (this.frame || this.isClosed) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const ctx = this.canvas.getContext("2d", { alpha: false });
      if (!ctx || !this.size.width) return;
      const begun = performance.now();
      this.paint(ctx);
      this.frames.push(performance.now() - begun);
      if (this.frames.length > 120) this.frames.shift();
      this.canvas.dataset["frameMs"] = this.frames.slice().sort((a, b) => a - b)[Math.floor(this.frames.length * 0.95)]!.toFixed(2);
    });
  }

  /** Draw no more: what comes later, such as a layout, finds no canvas. */
  close(): void {
    this.isClosed = true;
    cancelAnimationFrame(this.frame);
    this.observer.disconnect();
  }

  private measure(): void {
    const box = this.canvas.parentElement!.getBoundingClientRect();
    this.ratio = window.devicePixelRatio || 1;
    this.size.width = Math.floor(box.width);
    this.size.height = Math.floor(box.height);
    this.canvas.width = this.size.width * this.ratio;
    this.canvas.height = this.size.height * this.ratio;
    this.canvas.style.width = `${this.size.width}px`;
    this.canvas.style.height = `${this.size.height}px`;
  }

  private place(event: MouseEvent): [number, number] {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  private move(event: PointerEvent, moves: Moves): void {
    const [x, y] = this.place(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) {
      moves.hover(x, y);
      return;
    }
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const other = others[0];
    if (other) {
      const was = Math.hypot(before.x - other.x, before.y - other.y);
      const is = Math.hypot(x - other.x, y - other.y);
      if (was > 0) moves.zoom((x + other.x) / 2, (y + other.y) / 2, is / was);
      moves.pan((x - before.x) / 2, (y - before.y) / 2);
    } else {
      this.moved += Math.abs(x - before.x) + Math.abs(y - before.y);
      if (this.moved >= CLICK_PX) moves.pan(x - before.x, y - before.y);
    }
    this.pointers.set(event.pointerId, { x, y });
  }
}
