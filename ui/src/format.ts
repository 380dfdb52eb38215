// Numbers and times in words.

const WHOLE = new Intl.NumberFormat("en");

export function count(value: number): string {
  return WHOLE.format(value);
}

/** A number with its noun: `1 node`, `3 nodes`. */
export function counted(value: number, noun: string, many = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : many}`;
}

/** A duration in its two largest units: `820 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  const s = Math.round(ms / 1_000);
  if (s < 60) return `${s} s`;
  if (s < 3_600) return both(s, 60, "min", "s");
  if (s < 86_400) return both(Math.round(s / 60), 60, "h", "min");
  return both(Math.round(s / 3_600), 24, "d", "h");
}

function both(value: number, base: number, large: string, small: string): string {
  const rest = value % base;
  return `${Math.floor(value / base)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

/** Bytes in binary units: `812 B`, `1.2 KiB`. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(value) / 10));
  const amount = value / 1024 ** power;
  return `${power && amount < 10 ? amount.toFixed(1) : Math.round(amount)} ${units[power]}`;
}

/** The time of day, with the day if it is another one. */
export function clock(ms: number, nowMs = Date.now()): string {
  const at = new Date(ms);
  const time = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date(nowMs).toDateString() ? time : `${at.toISOString().slice(0, 10)} ${time}`;
}

export function exact(ms: number): string {
  return new Date(ms).toISOString();
}

/** `QUOTA_EXHAUSTED` as `quota exhausted`: a reason code in a sentence; the code itself is its title. */
export function plain(code: string): string {
  return code.toLowerCase().replaceAll("_", " ");
}
