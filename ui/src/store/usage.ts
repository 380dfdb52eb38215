// Use by day, tenant, user and flavor: ranges of days, amounts, and the file for spreadsheets. Pure.
import type { UsageRowView, UsageView } from "../api/types.ts";

export const COLUMNS = ["day", "tenant", "user", "flavor"] as const;
export type Column = (typeof COLUMNS)[number];
const AMOUNTS = ["used", "borrowed", "lost"] as const;
const DAY_MS = 86_400_000;

export const RANGES = [
  ["", "Last 30 days"], ["today", "Today"], ["7", "Last 7 days"], ["90", "Last 90 days"], ["month", "This month"], ["last-month", "Last month"],
] as const;

/** First and last day of a range, in UTC as the root counts. */
export function daysOf(range: string, nowMs: number): { from: string; to: string } {
  const now = new Date(nowMs);
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()];
  if (range === "month") return { from: dayOf(Date.UTC(year, month, 1)), to: dayOf(nowMs) };
  if (range === "last-month") return { from: dayOf(Date.UTC(year, month - 1, 1)), to: dayOf(Date.UTC(year, month, 0)) };
  const days = range === "today" ? 1 : Number(range) || 30;
  return { from: dayOf(nowMs - (days - 1) * DAY_MS), to: dayOf(nowMs) };
}

function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

/** Columns by which the rows differ, in their order; none is named twice. */
export function columnsOf(text: string | undefined): Column[] {
  const named = (text ?? "tenant").split(",");
  return COLUMNS.filter((column) => named.includes(column));
}

/** An amount with the digits that a bill needs; `<0.001` for what rounds to nothing. */
export function hours(amount: number): string {
  if (!amount) return "0";
  return Math.abs(amount) < 0.0005 ? "<0.001" : amount.toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
}

/** The most that one row has used, by resource: the length of a bar. */
export function mostUsed(rows: readonly UsageRowView[]): Map<string, number> {
  const most = new Map<string, number>();
  for (const row of rows) most.set(row.resource, Math.max(most.get(row.resource) ?? 0, row.used));
  return most;
}

/** The rows as `schedulemesh usage --csv` prints them. A name that a spreadsheet would take for a formula begins with an apostrophe. */
export function csvOf(view: UsageView): string {
  const lines = [[...COLUMNS, "resource", "unit", ...AMOUNTS].join(",")];
  for (const row of view.rows) {
    const names = [...COLUMNS.map((column) => row[column]), row.resource, row.unit].map((name) => quoted(name ?? ""));
    lines.push([...names, ...AMOUNTS.map((amount) => exactly(row[amount]))].join(","));
  }
  return `${lines.join("\n")}\n`;
}

function exactly(amount: number): string {
  return amount.toFixed(9).replace(/\.?0+$/, "") || "0";
}

function quoted(name: string): string {
  const harmless = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
