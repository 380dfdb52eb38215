import assert from "node:assert/strict";
import { test } from "node:test";
import { fit, K_MAX, K_MIN, panned, toDrawing, toScreen, zoomAt } from "../src/drawing/camera.ts";

const size = { width: 800, height: 600 };

test("the point under the pointer stays there while zooming", () => {
  let camera = { x: 40, y: -7, k: 0.8 };
  const before = toDrawing(camera, size, 123, 456);
  for (const factor of [1.3, 0.2, 3]) camera = zoomAt(camera, size, 123, 456, factor);
  const after = toDrawing(camera, size, 123, 456);
  assert.ok(Math.abs(before[0] - after[0]) < 1e-6 && Math.abs(before[1] - after[1]) < 1e-6);
});

test("zoom has limits", () => {
  assert.equal(zoomAt({ x: 0, y: 0, k: 1 }, size, 0, 0, 1e9).k, K_MAX);
  assert.equal(zoomAt({ x: 0, y: 0, k: 1 }, size, 0, 0, 1e-9).k, K_MIN);
});

test("a fitted drawing is seen as a whole, and small ones are not blown up", () => {
  const box = { x0: -100, y0: 0, x1: 5_000, y1: 90 };
  const camera = fit(box, size);
  for (const [x, y] of [[box.x0, box.y0], [box.x1, box.y1]] as const) {
    const [sx, sy] = toScreen(camera, size, x, y);
    assert.ok(sx >= 0 && sx <= size.width && sy >= 0 && sy <= size.height);
  }
  assert.equal(fit({ x0: 0, y0: 0, x1: 10, y1: 10 }, size).k, 1);
});

test("a pan moves the drawing with the pointer", () => {
  const camera = panned({ x: 0, y: 0, k: 2 }, 30, -10);
  assert.deepEqual(toScreen(camera, size, 0, 0), [430, 290]);
});
