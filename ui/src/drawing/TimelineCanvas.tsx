import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TimelineView } from "../api/types.ts";
import { count, counted, duration, plain } from "../format.ts";
import { Choice, Empty, Standing } from "../parts/basics.tsx";
import type { Polled } from "../store/poll.ts";
import { theme } from "../store/session.ts";
import { Surface } from "./canvas.ts";
import { Axis, barAt, type Fold, type GanttView, HEAD, idleOf, LABELS, paintGantt, rowHeight, type Rows, rowsOf, stopOf } from "./gantt.ts";
import { palette } from "./theme.ts";

interface Drawn { timeline: TimelineView; rows: Rows; folds: Fold[]; axis: Axis; endMs: number }

/** What ran when, by mesh. */
export function TimelineCanvas({ polled, path, chosen, colour, onChoose }: { polled: Polled<TimelineView>; path: ReadonlySet<string> | null; chosen: string; colour: "state" | "mesh"; onChoose: (node: string) => void }) {
  const timeline = polled.data.value;
  const [folds, setFolds] = useState(true);
  const [attempt, setAttempt] = useState("0");
  const attempts = timeline ? Math.max(1, ...new Set(timeline.attempt)) : 1;
  return (
    <div class="stack fill">
      <div class="row tight">
        {attempts > 1 && (
          <Choice label="Attempt" value={attempt} onChange={setAttempt} options={[["0", "All attempts"], ...Array.from({ length: attempts }, (_, place) => [`${place + 1}`, `Attempt ${place + 1}`] as const)]} />
        )}
        <label class="check"><input type="checkbox" checked={folds} onChange={(event) => setFolds(event.currentTarget.checked)} />Fold idle time</label>
        {timeline && <span class="muted">{counted(timeline.from_ms.length, "attempt")} on {counted(timeline.meshes.length, "mesh", "meshes")}</span>}
      </div>
      <Standing polled={polled} what="the timeline" />
      {timeline && !timeline.from_ms.length && <Empty title="Nothing has run yet.">A bar appears with the first node that starts.</Empty>}
      {timeline && timeline.from_ms.length > 0 && <Gantt timeline={timeline} folded={folds} attempt={Number(attempt)} path={path} chosen={chosen} colour={colour} onChoose={onChoose} />}
    </div>
  );
}

function Gantt({ timeline, folded, attempt, path, chosen, colour, onChoose }: {
  timeline: TimelineView; folded: boolean; attempt: number; path: ReadonlySet<string> | null; chosen: string; colour: "state" | "mesh"; onChoose: (node: string) => void;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const surface = useRef<Surface | null>(null);
  const drawn = useRef<Drawn | null>(null);
  const view = useRef<GanttView | null>(null);
  const hovered = useRef(-1);
  const latest = useRef({ attempt, path, chosen, colour });
  const [tip, setTip] = useState("");
  latest.current = { attempt, path, chosen, colour };

  const endMs = timeline.end_ms < 0 ? timeline.now_ms : timeline.end_ms;
  if (drawn.current?.timeline !== timeline || folded !== drawn.current.folds.length > 0) {
    const folds = folded ? idleOf(timeline, endMs) : [];
    const before = drawn.current?.axis.length;
    drawn.current = { timeline, rows: rowsOf(timeline), folds, axis: new Axis(endMs, folds), endMs };
    // A view of the whole stays one of the whole.
    if (!view.current || before === undefined || view.current.right >= before) view.current = { left: 0, right: drawn.current.axis.length, top: 0 };
  }
  const clamp = (): void => {
    const [there, seen, size] = [drawn.current!, view.current!, surface.current!.size];
    const length = Math.min(seen.right - seen.left, there.axis.length);
    seen.left = Math.max(0, Math.min(seen.left, there.axis.length - length));
    seen.right = seen.left + length;
    seen.top = Math.max(0, Math.min(seen.top, there.rows.count * rowHeight(there.rows.count, size) - (size.height - HEAD) + 8));
    surface.current!.draw();
  };
  const at = (x: number, y: number): number =>
    barAt(surface.current!.size, drawn.current!.timeline, drawn.current!.rows, drawn.current!.axis, view.current!, drawn.current!.endMs, x, y, latest.current.attempt);
  useEffect(() => {
    const moves = {
      pan: (dx: number, dy: number) => {
        const seen = view.current!;
        const by = (dx * (seen.right - seen.left)) / Math.max(1, surface.current!.size.width - LABELS);
        seen.left -= by;
        seen.right -= by;
        seen.top -= dy;
        clamp();
      },
      zoom: (x: number, _: number, factor: number) => {
        const seen = view.current!;
        const share = Math.max(0, (x - LABELS) / Math.max(1, surface.current!.size.width - LABELS));
        const length = Math.min(drawn.current!.axis.length, Math.max(5, (seen.right - seen.left) / factor));
        seen.left += (seen.right - seen.left - length) * share;
        seen.right = seen.left + length;
        clamp();
      },
      hover: (x: number, y: number) => {
        const bar = at(x, y);
        if (bar === hovered.current) return;
        hovered.current = bar;
        setTip(bar < 0 ? "" : wordsOf(drawn.current!, bar));
        surface.current!.draw();
      },
      leave: () => { hovered.current = -1; setTip(""); surface.current!.draw(); },
      press: (x: number, y: number) => {
        const bar = at(x, y);
        onChoose(bar < 0 ? "" : drawn.current!.timeline.nodes[drawn.current!.timeline.node[bar]!]!.replace(/@\d+$/, ""));
      },
    };
    const paint = (ctx: CanvasRenderingContext2D): void => {
      const there = drawn.current!;
      const node = (bar: number): number => (bar < 0 ? -1 : there.timeline.node[bar]!);
      const onPath = latest.current.path;
      const isOnPath = onPath && ((each: number): boolean => onPath.has(there.timeline.nodes[each]!.replace(/@\d+$/, "")));
      const look = { isOnPath, attempt: latest.current.attempt, colour: latest.current.colour, hovered: node(hovered.current), chosen: there.timeline.nodes.indexOf(latest.current.chosen) };
      paintGantt(ctx, surface.current!.size, surface.current!.ratio, there.timeline, there.rows, there.axis, view.current!, there.endMs, there.folds, palette(), look);
    };
    const made = new Surface(canvas.current!, paint, moves, () => clamp());
    surface.current = made;
    made.draw();
    return () => made.close();
  }, []);
  useEffect(() => surface.current?.draw());
  useSignalEffect(() => { void theme.value; surface.current?.draw(); });
  const pressed = (event: KeyboardEvent): void => {
    const seen = view.current!;
    const step = (seen.right - seen.left) / 10;
    if (event.key === "ArrowLeft") [seen.left, seen.right] = [seen.left - step, seen.right - step];
    else if (event.key === "ArrowRight") [seen.left, seen.right] = [seen.left + step, seen.right + step];
    else if (event.key === "ArrowUp") seen.top -= 40;
    else if (event.key === "ArrowDown") seen.top += 40;
    else if (event.key === "+" || event.key === "=") [seen.left, seen.right] = [seen.left + step, seen.right - step];
    else if (event.key === "-") [seen.left, seen.right] = [seen.left - step, seen.right + step];
    else if (event.key === "0") [seen.left, seen.right, seen.top] = [0, drawn.current!.axis.length, 0];
    else return;
    event.preventDefault();
    clamp();
  };
  return (
    <div class="canvas-frame" data-ready="true">
      <canvas ref={canvas} role="application" tabIndex={0} aria-label={`Timeline: ${count(timeline.from_ms.length)} attempts. Arrows move, plus and minus zoom.`} onKeyDown={pressed} />
      <p class="tip" aria-hidden="true">{tip}</p>
    </div>
  );
}

function wordsOf({ timeline, endMs }: Drawn, bar: number): string {
  const stop = stopOf(timeline, bar, endMs);
  const reason = timeline.reasons[timeline.reason[bar]!];
  const parts = [
    timeline.nodes[timeline.node[bar]!], `attempt ${timeline.attempt[bar]}`, timeline.states[timeline.bar_state[bar]!]!.toLowerCase(),
    duration(stop - timeline.from_ms[bar]!), timeline.meshes[timeline.mesh[bar]!], reason && plain(reason),
  ];
  return parts.filter(Boolean).join(" · ");
}
