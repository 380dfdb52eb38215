// States with their glyphs: colour never says it alone.

export const NODE_STATES = ["WAITING", "BLOCKED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"] as const;
export const RUN_STATES = ["PENDING", "WAITING", "BLOCKED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"] as const;
const ENDS = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);

export type Kind = "waiting" | "assigned" | "running" | "succeeded" | "failed" | "blocked" | "skipped" | "cancelled";

const KIND: Record<string, Kind> = {
  WAITING: "waiting", PENDING: "waiting", PLANNED: "waiting", QUEUED: "waiting",
  ASSIGNED: "assigned",
  RUNNING: "running", CANCELLING: "running",
  SUCCEEDED: "succeeded", ENDED: "succeeded",
  FAILED: "failed", LOST: "failed",
  BLOCKED: "blocked",
  SKIPPED: "skipped", STOPPED: "skipped",
  CANCELLED: "cancelled",
};

export const GLYPH: Record<Kind, string> = {
  waiting: "○", assigned: "◔", running: "▶", succeeded: "✓", failed: "✕", blocked: "!", skipped: "↷", cancelled: "⊘",
};

/** Order in which a bar and a list show states: failed first. */
export const KINDS: readonly Kind[] = ["failed", "blocked", "running", "assigned", "waiting", "skipped", "cancelled", "succeeded"];

export function kindOf(state: string): Kind {
  return KIND[state] ?? "waiting";
}

export function isOver(state: string): boolean {
  return ENDS.has(state);
}

/** Counts by state as counts by kind. */
export function byKind(counts: Record<string, number>): Partial<Record<Kind, number>> {
  const found: Partial<Record<Kind, number>> = {};
  for (const [state, value] of Object.entries(counts)) found[kindOf(state)] = (found[kindOf(state)] ?? 0) + value;
  return found;
}
