// What part of a drawing is seen: a point of the drawing in the middle, and pixels per unit. Pure.

export interface Camera { x: number; y: number; k: number }
export interface Box { x0: number; y0: number; x1: number; y1: number }
export interface Size { width: number; height: number }

export const K_MIN = 0.01;
export const K_MAX = 2.5;

export function toScreen(camera: Camera, size: Size, x: number, y: number): [number, number] {
  return [(x - camera.x) * camera.k + size.width / 2, (y - camera.y) * camera.k + size.height / 2];
}

export function toDrawing(camera: Camera, size: Size, x: number, y: number): [number, number] {
  return [(x - size.width / 2) / camera.k + camera.x, (y - size.height / 2) / camera.k + camera.y];
}

/** Show the whole box, no larger than life. */
export function fit(box: Box, size: Size, pad = 32): Camera {
  const width = Math.max(1, box.x1 - box.x0);
  const height = Math.max(1, box.y1 - box.y0);
  const k = clamp(Math.min((size.width - 2 * pad) / width, (size.height - 2 * pad) / height, 1));
  return { x: (box.x0 + box.x1) / 2, y: (box.y0 + box.y1) / 2, k };
}

/** Zoom by a factor; the point of the drawing under the pointer stays there. */
export function zoomAt(camera: Camera, size: Size, x: number, y: number, factor: number): Camera {
  const [px, py] = toDrawing(camera, size, x, y);
  const k = clamp(camera.k * factor);
  return { x: px - (x - size.width / 2) / k, y: py - (y - size.height / 2) / k, k };
}

export function panned(camera: Camera, dx: number, dy: number): Camera {
  return { ...camera, x: camera.x - dx / camera.k, y: camera.y - dy / camera.k };
}

/** The part of the drawing that is seen. */
export function seen(camera: Camera, size: Size): Box {
  const [x0, y0] = toDrawing(camera, size, 0, 0);
  const [x1, y1] = toDrawing(camera, size, size.width, size.height);
  return { x0, y0, x1, y1 };
}

function clamp(k: number): number {
  return Math.min(K_MAX, Math.max(K_MIN, k));
}
