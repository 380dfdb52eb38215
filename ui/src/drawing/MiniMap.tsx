import { useEffect, useRef } from "preact/hooks";
import type { Camera, Size } from "./camera.ts";
import type { Layout } from "./layout.ts";
import { onMap, paintMap, paintView } from "./minimap.ts";
import type { Scene } from "./scene.ts";
import { palette } from "./theme.ts";

const MAP: Size = { width: 200, height: 132 };

export interface MapDrawing { paint: (scene: Scene, layout: Layout, version: string, camera: Camera, size: Size) => void }

/** The map of a large graph: a press or a drag on it moves the view. The arrows do the same for the keyboard. */
export function MiniMap({ drawing, layout, onReady, onMove }: { drawing: { current: MapDrawing | null }; layout: () => Layout | null; onReady: () => void; onMove: (x: number, y: number) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const ratio = window.devicePixelRatio || 1;
    const cells = document.createElement("canvas");
    for (const each of [cells, canvas.current!]) [each.width, each.height] = [MAP.width * ratio, MAP.height * ratio];
    let painted = "";
    drawing.current = {
      paint: (scene, there, version, camera, size) => {
        const [below, above] = [cells.getContext("2d"), canvas.current?.getContext("2d")];
        if (!below || !above) return;
        if (painted !== version) paintMap(below, MAP, ratio, scene, there, palette());
        painted = version;
        above.setTransform(1, 0, 0, 1, 0, 0);
        above.drawImage(cells, 0, 0);
        paintView(above, MAP, ratio, there, camera, size, palette());
      },
    };
    onReady();
    return () => { drawing.current = null; };
  }, []);
  const moved = (event: PointerEvent): void => {
    const there = layout();
    if (!event.buttons || !there) return;
    const box = canvas.current!.getBoundingClientRect();
    onMove(...onMap(there, MAP, event.clientX - box.left, event.clientY - box.top));
  };
  return <canvas ref={canvas} class="minimap" aria-hidden="true" onPointerDown={(event) => { canvas.current!.setPointerCapture(event.pointerId); moved(event); }} onPointerMove={moved} />;
}
