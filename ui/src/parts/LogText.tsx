import { useEffect, useRef, useState } from "preact/hooks";
import { call, wordsOf } from "../api/client.ts";
import type { LogEntry, LogsView } from "../api/types.ts";
import { count, counted } from "../format.ts";
import type { RunStore } from "../store/run.ts";

const PAGE = 200;
const POLL_MS = 2_000;
/** More lines than this are not kept on the page at once; the raw log has all. */
const LINES_MAX = 5_000;

interface Line { key: string; text: string; isError: boolean }

/** The log of an attempt (or of the whole run) as plain text, page by page, so that it can be searched and copied. */
export function LogText({ store, node, attempt, isLive }: { store: RunStore; node: string; attempt: number; isLive: boolean }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [dropped, setDropped] = useState(0);
  const [isLoaded, setLoaded] = useState(false);
  const [hasMore, setMore] = useState(false);
  const [failed, setFailed] = useState("");
  const next = useRef(0);
  const box = useRef<HTMLPreElement>(null);
  const query = { node, attempt: attempt || null };

  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const load = async (): Promise<void> => {
      try {
        const page = await call<LogsView>(`${store.path}/logs`, { query: { ...query, after: next.current, limit: PAGE }, signal: stop.signal });
        take(page);
        setFailed("");
      } catch (broken) {
        if (!stop.signal.aborted) setFailed(wordsOf(broken));
      }
      if (isLive && !stop.signal.aborted) timer = window.setTimeout(() => (document.hidden ? (timer = window.setTimeout(() => void load(), POLL_MS)) : void load()), POLL_MS);
    };
    void load();
    return () => {
      stop.abort();
      window.clearTimeout(timer);
    };
  }, [store.id, node, attempt, isLive]);

  const take = (page: LogsView): void => {
    next.current = page.next;
    setLoaded(true);
    setMore(page.more);
    if (!page.entries.length) return;
    const isAtEnd = box.current ? box.current.scrollTop + box.current.clientHeight >= box.current.scrollHeight - 8 : true;
    setLines((before) => {
      const all = [...before, ...page.entries.flatMap(linesOf)];
      if (all.length > LINES_MAX) setDropped((number) => number + all.length - LINES_MAX);
      return all.slice(-LINES_MAX);
    });
    if (isLive && isAtEnd) requestAnimationFrame(() => box.current && (box.current.scrollTop = box.current.scrollHeight));
  };
  const more = async (): Promise<void> => {
    try {
      take(await call<LogsView>(`${store.path}/logs`, { query: { ...query, after: next.current, limit: PAGE } }));
    } catch (broken) {
      setFailed(wordsOf(broken));
    }
  };
  const save = (): void => {
    saveAs(new Blob([lines.map((line) => line.text).join("\n")], { type: "text/plain" }), `${store.id}${node ? `-${node}` : ""}.log`);
  };
  return (
    <section class="log" aria-label="Log">
      <div class="row between">
        <h3>Log {isLive && <span class="muted small">live</span>}</h3>
        {lines.length > 0 && <button type="button" class="quiet small" onClick={save}>Save</button>}
      </div>
      {failed && <p class="refused" role="alert">{failed}</p>}
      {dropped > 0 && <p class="muted small">The first {counted(dropped, "line")} are not shown; `schedulemesh logs {store.id}` has all.</p>}
      {lines.length > 0 && (
        <pre ref={box} tabIndex={0} aria-label="Lines of the log">
          {lines.map((line) => <span key={line.key} class={line.isError ? "err" : ""}>{line.text}{"\n"}</span>)}
        </pre>
      )}
      {isLoaded && !lines.length && <p class="muted small">{isLive ? "Nothing printed yet." : "Nothing was printed."}</p>}
      {hasMore && <button type="button" onClick={() => void more()}>More lines ({count(lines.length)} shown)</button>}
    </section>
  );
}

/** Let the browser save a file. */
export function saveAs(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function linesOf(entry: LogEntry): Line[] {
  return entry.lines.map((text, place) => ({ key: `${entry.seq}.${place}`, text, isError: entry.stream === "stderr" }));
}
