import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { counted } from "../format.ts";
import type { RunStore } from "../store/run.ts";
import { theme } from "../store/session.ts";
import { type Camera, fit, K_MAX, panned, type Size, toDrawing, zoomAt } from "./camera.ts";
import { Surface } from "./canvas.ts";
import { type Bundle, bundlesOf, halves, nodeAt, paintGraph } from "./graph.ts";
import type { CriticalPath } from "./critical.ts";
import type { Layout } from "./layout.ts";
import { layoutInWorker } from "./layouts.ts";
import { type MapDrawing, MiniMap } from "./MiniMap.tsx";
import { needsMap } from "./minimap.ts";
import { palette } from "./theme.ts";

interface Props { store: RunStore; chosen: string; find: string; colour: "state" | "mesh"; path: CriticalPath | null; onChoose: (node: string) => void }

/** The graph of a run. Beside it stands the list of nodes, with the same facts for screen readers. */
export function GraphCanvas({ store, chosen, find, colour, path, onChoose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const surface = useRef<Surface | null>(null);
  const layout = useRef<{ layout: Layout; bundles: Bundle[]; number: number } | null>(null);
  const camera = useRef<Camera>({ x: 0, y: 0, k: 1 });
  const hovered = useRef(-1);
  const latest = useRef({ chosen: -1, colour, matches: null as Uint8Array | null, path: [] as readonly number[] });
  const map = useRef<MapDrawing>(null);
  const isFitted = useRef(false);
  const [tip, setTip] = useState("");
  const [isReady, setReady] = useState(false);
  const [hasMap, setMap] = useState(false);
  const scene = store.scene.value;
  const matches = scene && find ? Uint8Array.from(scene.names, (name) => (name.toLowerCase().includes(find.toLowerCase()) ? 1 : 0)) : null;
  // What is found is more wanted than the path: both fade the other nodes.
  latest.current = { chosen: scene ? scene.find(chosen) : -1, colour, matches: matches ?? path?.isOn ?? null, path: path?.nodes ?? [] };
  const draw = (): void => surface.current?.draw();

  const show = (): void => {
    const there = layout.current;
    const drawn = surface.current;
    if (!there || !drawn) return;
    const whole = { x0: 0, y0: -24, x1: there.layout.width, y1: there.layout.height };
    camera.current = fit(whole, drawn.size);
    const first = latest.current.chosen >= 0 ? latest.current.chosen : startOf(store);
    // A picture that would be unreadably small begins where something happens; on a phone that is so sooner.
    const least = drawn.size.width < 500 ? 0.35 : 0.12;
    if (camera.current.k < least && first >= 0) camera.current = within(there.layout, drawn.size, there.layout.x[first]!, there.layout.y[first]!, 0.5);
    draw();
  };
  const centre = (node: number): void => {
    const there = layout.current;
    if (!there || node < 0) return;
    camera.current = { x: there.layout.x[node]!, y: there.layout.y[node]!, k: Math.max(camera.current.k, 0.7) };
    draw();
  };

  useEffect(() => {
    const at = (x: number, y: number): number => {
      const there = layout.current;
      if (!there || !surface.current) return -1;
      const [px, py] = toDrawing(camera.current, surface.current.size, x, y);
      return nodeAt(there.layout, px, py, there.layout.small.length > 200 ? 2 / camera.current.k : 0);
    };
    const moves = {
      pan: (dx: number, dy: number) => { camera.current = panned(camera.current, dx, dy); draw(); },
      zoom: (x: number, y: number, factor: number) => { camera.current = zoomAt(camera.current, surface.current!.size, x, y, factor); draw(); },
      hover: (x: number, y: number) => {
        const node = at(x, y);
        if (node === hovered.current) return;
        hovered.current = node;
        const now = store.scene.value;
        setTip(node >= 0 && now ? `${now.names[node]} · ${now.stateOf(node).toLowerCase()}${now.mesh[node]! >= 0 ? ` · ${now.meshes[now.mesh[node]!]}` : ""}` : "");
        draw();
      },
      leave: () => { hovered.current = -1; setTip(""); draw(); },
      press: (x: number, y: number) => {
        const node = at(x, y);
        onChoose(node >= 0 ? store.scene.value!.names[node]! : "");
      },
    };
    const paint = (ctx: CanvasRenderingContext2D): void => {
      const now = store.scene.value;
      const there = layout.current;
      if (!now || !there || !surface.current) {
        ctx.fillStyle = palette().bg;
        ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
        return;
      }
      const look = { ...latest.current, hovered: hovered.current };
      paintGraph(ctx, surface.current.size, surface.current.ratio, camera.current, now, there.layout, there.bundles, palette(), look);
      map.current?.paint(now, there.layout, `${there.number} ${store.version.value} ${theme.value}`, camera.current, surface.current.size);
    };
    const made = new Surface(canvas.current!, paint, moves, () => (isFitted.current ? draw() : show()));
    surface.current = made;
    return () => made.close();
  }, [store]);

  useSignalEffect(() => {
    void store.layoutVersion.value;
    const now = store.scene.value;
    const drawn = surface.current;
    if (!now) return;
    const down = drawn ? drawn.size.height > drawn.size.width : false;
    void layoutInWorker(now, down).then((made) => {
      if (store.scene.value !== now) return;
      layout.current = { layout: made, bundles: bundlesOf(now, made), number: (layout.current?.number ?? 0) + 1 };
      setReady(true);
      setMap(Boolean(surface.current && needsMap(made, surface.current.size)));
      if (!isFitted.current) {
        show();
        isFitted.current = Boolean(surface.current?.size.width);
      } else draw();
    });
  });
  useSignalEffect(() => {
    void store.version.value;
    void theme.value;
    draw();
  });
  useEffect(draw);
  useEffect(() => {
    if (scene && find && matches) centre(matches.indexOf(1));
  }, [find]);
  useEffect(() => {
    const node = scene?.find(chosen) ?? -1;
    const there = layout.current;
    if (node < 0 || !there || !surface.current) return;
    const [x0, y0] = toDrawing(camera.current, surface.current.size, 0, 0);
    const [x1, y1] = toDrawing(camera.current, surface.current.size, surface.current.size.width, surface.current.size.height);
    const [x, y] = [there.layout.x[node]!, there.layout.y[node]!];
    if (x < x0 || x > x1 || y < y0 || y > y1 || halves(there.layout, node)[0] * camera.current.k < 3) centre(node);
  }, [chosen, isReady]);

  const pressed = (event: KeyboardEvent): void => {
    if (!scene || !surface.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const { width, height } = surface.current.size;
    const step = 60;
    const pans: Record<string, [number, number]> = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    const pan = pans[event.key];
    if (pan) camera.current = panned(camera.current, ...pan);
    else if (event.key === "+" || event.key === "=") camera.current = zoomAt(camera.current, surface.current.size, width / 2, height / 2, 1.3);
    else if (event.key === "-") camera.current = zoomAt(camera.current, surface.current.size, width / 2, height / 2, 1 / 1.3);
    else if (event.key === "0") show();
    else if (event.key === "n" || event.key === "p") {
      const now = scene.find(chosen);
      const next = event.key === "n" ? now + 1 : now < 0 ? scene.count - 1 : now - 1;
      if (next >= 0 && next < scene.count) onChoose(scene.names[next]!);
    } else if (event.key === "Enter" && chosen) document.getElementById("node-panel")?.focus();
    else if (event.key === "Escape") onChoose("");
    else return;
    event.preventDefault();
    draw();
  };

  const zoomBy = (factor: number) => (): void => {
    const size = surface.current?.size;
    if (!size) return;
    camera.current = zoomAt(camera.current, size, size.width / 2, size.height / 2, Math.min(K_MAX, factor));
    draw();
  };
  const words = scene ? `Graph of ${store.id}: ${counted(scene.count, "node")}. Arrows move, plus and minus zoom, n and p walk the nodes, Enter opens one.` : "Graph";
  return (
    <div class="canvas-frame" data-ready={isReady}>
      <canvas ref={canvas} role="application" aria-label={words} tabIndex={0} onKeyDown={pressed} data-hovered={tip} />
      {!isReady && <p class="over muted">Laying out the graph…</p>}
      <p class="tip" aria-hidden="true">{tip}</p>
      {hasMap && <MiniMap drawing={map} layout={() => layout.current?.layout ?? null} onReady={draw} onMove={(x, y) => { camera.current = { ...camera.current, x, y }; draw(); }} />}
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={zoomBy(1.4)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={zoomBy(1 / 1.4)}>−</button>
        <button type="button" aria-label="Show the whole graph" title="Whole graph (0)" onClick={() => { const there = layout.current; if (there && surface.current) camera.current = fit({ x0: 0, y0: -24, x1: there.layout.width, y1: there.layout.height }, surface.current.size); draw(); }}>⤢</button>
      </div>
    </div>
  );
}

/** A camera on a point that does not show more of the outside than it must. */
function within(layout: Layout, size: Size, x: number, y: number, k: number): Camera {
  const between = (at: number, length: number, seen: number): number => {
    const half = seen / 2 / k;
    return length < seen / k ? length / 2 : Math.min(Math.max(at, half - 40), length - half + 40);
  };
  return { x: between(x, layout.width, size.width), y: between(y, layout.height, size.height), k };
}

/** Where to begin: the first failed or running node. */
function startOf(store: RunStore): number {
  const scene = store.scene.value;
  if (!scene) return -1;
  return ["FAILED", "RUNNING", "BLOCKED"].map((state) => scene.first(state)).find((node) => node >= 0) ?? 0;
}
