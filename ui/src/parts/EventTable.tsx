import { useState } from "preact/hooks";
import type { EventView } from "../api/types.ts";
import { clock, count, exact } from "../format.ts";
import { Badge, Reason } from "./basics.tsx";

const PAGE = 200;

/** Events, the newest first. */
export function EventTable({ events, onNode }: { events: readonly EventView[]; onNode: (node: string) => void }) {
  const [shown, setShown] = useState(PAGE);
  const newest = events.slice(-shown).reverse();
  return (
    <>
      <div class="scroll">
        <table class="cards">
          <thead><tr><th class="num">#</th><th>Time</th><th>What</th><th>State</th><th>Mesh</th><th>Reason</th></tr></thead>
          <tbody>
            {newest.map((event) => (
              <tr key={event.seq}>
                <td class="num muted" data-label="#">{event.seq}</td>
                <td data-label="Time"><time dateTime={exact(event.at_ms)}>{clock(event.at_ms)}</time></td>
                <td data-label="What">
                  {event.kind === "node" && event.node ? <button type="button" class="link mono" onClick={() => onNode(event.node!.replace(/@\d+$/, ""))}>{event.node}</button> : <span class="mono">{event.stage ?? "run"}</span>}
                  {event.attempt > 1 && <span class="muted"> ×{event.attempt}</span>}
                </td>
                <td data-label="State"><Badge state={event.after} quiet /></td>
                <td data-label="Mesh">{event.mesh ?? "–"}</td>
                <td data-label="Reason"><Reason code={event.reason} detail={event.detail} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown < events.length && <button type="button" onClick={() => setShown(shown + PAGE)}>Earlier ({count(Math.min(shown, events.length))} of {count(events.length)} shown)</button>}
    </>
  );
}
