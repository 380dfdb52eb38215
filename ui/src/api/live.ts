// Server-sent events by fetch: `EventSource` cannot send a key.
import { Refused, request } from "./client.ts";
import { withTimes } from "./times.ts";

/** The data of an event. */
export function dataOf<T>(event: ServerEvent): T {
  return withTimes(JSON.parse(event.data)) as T;
}

export interface ServerEvent { id: string; event: string; data: string }

/** Parser of `text/event-stream`; chunks may be cut anywhere, within a line end too. */
export class EventParser {
  private rest = "";
  private id = "";
  private event = "";
  private data: string[] = [];
  private endedInReturn = false;

  push(chunk: string): ServerEvent[] {
    const found: ServerEvent[] = [];
    // A line end may be \r\n: a \n after a \r that ended the last chunk belongs to it.
    let text = this.endedInReturn && chunk.startsWith("\n") ? chunk.slice(1) : chunk;
    if (chunk !== "") this.endedInReturn = text.endsWith("\r");
    text = this.rest + text;
    const lines = text.split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.take(line, found);
    return found;
  }

  private take(line: string, found: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length) found.push({ id: this.id, event: this.event || "message", data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    else if (field === "event") this.event = value;
    else if (field === "id") this.id = value;
  }
}

export interface Following {
  path: string;
  query?: Record<string, string | number>;
  after: string;
  onEvents: (events: ServerEvent[]) => void;
  /** Called when a stream ended in order: return true to stop. */
  isOver: () => boolean;
  onState?: (state: "live" | "reconnecting") => void;
  signal: AbortSignal;
}

const WAIT_MS_MIN = 500;
const WAIT_MS_MAX = 8_000;

/** Follow a stream until it is over or aborted; resume after the last event that was read. */
export async function follow(following: Following): Promise<void> {
  let after = following.after;
  let waitMs = WAIT_MS_MIN;
  while (!following.signal.aborted) {
    try {
      const headers: Record<string, string> = after ? { "Last-Event-ID": after } : {};
      const asked = { accept: "text/event-stream", headers, signal: following.signal, query: following.query ?? {} };
      const answer = await request(following.path, asked);
      following.onState?.("live");
      const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const events = parser.push(value);
        if (!events.length) continue;
        waitMs = WAIT_MS_MIN;
        after = events[events.length - 1]!.id || after;
        following.onEvents(events);
      }
      if (following.isOver()) return;
    } catch (broken) {
      if (following.signal.aborted) return;
      if (broken instanceof Refused && broken.status < 500 && broken.status !== 429) throw broken;
    }
    following.onState?.("reconnecting");
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    waitMs = Math.min(waitMs * 2, WAIT_MS_MAX);
  }
}
