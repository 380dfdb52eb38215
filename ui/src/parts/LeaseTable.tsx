import type { Amounts, LeaseEventView } from "../api/types.ts";
import { clock, exact } from "../format.ts";
import { Empty } from "./basics.tsx";

/** Changes of leases, the newest first. */
export function LeaseTable({ events }: { events: readonly LeaseEventView[] }) {
  if (!events.length) return <Empty title="No lease has changed yet." />;
  return (
    <div class="scroll">
      <table class="cards">
        <thead><tr><th>Time</th><th>Verb</th><th>Tenant</th><th>Mesh</th><th>Held</th><th>Target</th><th>Why</th></tr></thead>
        <tbody>
          {[...events].reverse().map((event, place) => (
            <tr key={`${event.at_ms} ${events.length - place}`}>
              <td data-label="Time"><time dateTime={exact(event.at_ms)}>{clock(event.at_ms)}</time></td>
              <td data-label="Verb"><b>{event.verb}</b></td>
              <td data-label="Tenant">{event.tenant ?? "–"}</td>
              <td data-label="Mesh">{event.mesh ? `${event.mesh} ${event.flavor ?? ""}` : "–"}</td>
              <td data-label="Held"><AmountsText of={event.held} /></td>
              <td data-label="Target"><AmountsText of={event.target} /></td>
              <td data-label="Why" class="muted">{event.why || "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The same in lines, for narrow places. */
export function LeaseLines({ events }: { events: readonly LeaseEventView[] }) {
  if (!events.length) return <p class="muted small">No lease has changed yet.</p>;
  return (
    <ul class="lines-of">
      {[...events].reverse().map((event, place) => (
        <li key={`${event.at_ms} ${events.length - place}`}>
          <time class="muted" dateTime={exact(event.at_ms)}>{clock(event.at_ms)}</time> <b>{event.verb}</b> {event.tenant} <AmountsText of={event.held} />
          {event.mesh && <span class="muted"> on {event.mesh} {event.flavor}</span>}{event.why && <span class="muted">: {event.why}</span>}
        </li>
      ))}
    </ul>
  );
}

export function AmountsText({ of }: { of: Amounts }) {
  const parts = Object.entries(of).map(([resource, amount]) => `${amount.text} ${resource}`);
  return <span>{parts.join(", ") || "–"}</span>;
}
