// Times of `/v1` as numbers: the page counts in milliseconds since the epoch, JSON has RFC 3339 text, and null for "not yet".

/** Names in JSON, as in `serve_apps/schemas/moments.py`. */
const WIRE: Record<string, string> = { at: "at_ms", not_before: "not_before_ms", since: "since_ms", estimated_end: "estimated_end_ms" };
for (const word of ["created", "started", "ended", "finished", "sent", "saved", "granted", "drained", "stopped", "last_heard", "start"]) WIRE[`${word}_at`] = `${word}_ms`;

/** Add to each object its times as numbers (0: not yet), in place. */
export function withTimes(value: unknown): unknown {
  if (Array.isArray(value)) {
    if (typeof value[0] === "object") for (const each of value) withTimes(each);
  } else if (value !== null && typeof value === "object") {
    const object = value as Record<string, unknown>;
    for (const [name, each] of Object.entries(object)) {
      const here = WIRE[name];
      if (here && (each === null || typeof each === "string")) object[here] = each === null ? 0 : Date.parse(each);
      else if (typeof each === "object") withTimes(each);
    }
  }
  return value;
}
