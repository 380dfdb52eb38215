import { useEffect, useState } from "preact/hooks";
import { call, wordsOf } from "../api/client.ts";
import type { ElementsView, ElementView, NodeView } from "../api/types.ts";
import { bytes, clock, count, duration, plain } from "../format.ts";
import { isOver } from "../states.ts";
import { may } from "../store/caller.ts";
import { now, usePolled } from "../store/poll.ts";
import type { RunStore } from "../store/run.ts";
import { Action, Badge, Choice, Reason, Standing, StateBar } from "./basics.tsx";
import { LogText } from "./LogText.tsx";

const POLL_MS = 2_000;

/** Everything about one node: state, attempts, why here, error, log, inputs. */
export function NodePanel({ store, node, onChoose }: { store: RunStore; node: string; onChoose: (node: string) => void }) {
  const [isEnded, setEnded] = useState(false);
  const polled = usePolled(
    async (signal) => {
      const found = await call<NodeView>(`${store.path}/nodes/${encodeURIComponent(node)}`, { signal });
      setEnded(isOver(found.state) || found.state === "SKIPPED");
      return found;
    },
    isEnded ? 0 : POLL_MS,
    [store.id, node, isEnded],
  );
  const found = polled.data.value;
  const run = store.view.value;
  const stage = found?.stage ? run?.stages.find((each) => each.id === found.stage) : undefined;
  const why = found?.stage ? store.why.value?.stages.find((each) => each.stage === found.stage) : undefined;
  return (
    <aside class="panel node-panel" id="node-panel" tabIndex={-1} aria-label={`Node ${node}`} onKeyDown={(event) => event.key === "Escape" && onChoose("")}>
      <div class="row between">
        <h2 class="mono wrap">{node}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => onChoose("")}>✕</button>
      </div>
      <Standing polled={polled} what="the node" />
      {found && (
        <>
          <p class="row tight"><Badge state={found.state} />{took(found) && <span class="muted">{took(found)}</span>}{found.control && <span class="label">{found.control}</span>}{found.cache && <span class="label" title={found.cache}>cache: {plain(found.cache)}</span>}</p>
          {found.progress !== null && found.state === "RUNNING" && <p><progress max={1} value={found.progress} aria-label="Progress" /> {Math.round(found.progress * 100)} %</p>}
          {found.array && <ArrayPart key={node} store={store} found={found} />}
          <dl class="facts">
            {found.mesh && <><dt>Mesh</dt><dd>{found.mesh}</dd></>}
            {found.stage && <><dt>Stage</dt><dd class="mono wrap">{found.stage}</dd></>}
            {(found.reason || found.detail) && !found.failure && <><dt>{found.state === "BLOCKED" ? "Refused by" : "Reason"}</dt><dd><Reason code={found.reason} detail={found.detail} /></dd></>}
            {stage?.why_here && <><dt>Why here</dt><dd>{stage.why_here}</dd></>}
            {why && !found.started_ms && <><dt>Waits for</dt><dd><Reason code={why.reason} detail={why.detail} />{why.position ? <span> · position {count(why.position)}</span> : null}{why.start_ms ? <span> · starts about {clock(why.start_ms)}</span> : null}</dd></>}
            {found.not_before_ms > now.value && <><dt>Next attempt</dt><dd>in {duration(found.not_before_ms - now.value)}</dd></>}
            {found.retries_used + found.losses > 0 && <><dt>Retries</dt><dd>{count(found.retries_used)} after errors, {count(found.losses)} after losses</dd></>}
            {found.needs.length > 0 && <><dt>Inputs</dt><dd>{found.needs.slice(0, 20).map((need) => <button key={need} type="button" class="link mono" onClick={() => onChoose(need)}>{need}</button>)}{found.needs.length > 20 && <span class="muted"> and {count(found.needs.length - 20)} more</span>}</dd></>}
            {found.value_bytes !== null && <><dt>Value</dt><dd>{bytes(found.value_bytes)}, stored</dd></>}
            {found.roots.length > 0 && <><dt>Because of</dt><dd>{found.roots.slice(0, 10).map((root) => <button key={root} type="button" class="link mono" onClick={() => onChoose(root)}>{root}</button>)}</dd></>}
          </dl>
          {found.state === "FAILED" && run && isOver(run.state) && may("cancel") && (
            <p><Action words="Run again" confirm={`Resume ${store.id}? ${node} and all else that has not succeeded run again.`} run={(reason) => call(`${store.path}/resume`, { method: "POST", body: { reason } })} onDone={() => { setEnded(false); store.again(); }} /></p>
          )}
          <Attempts key={node} store={store} found={found} isLive={!isEnded} />
        </>
      )}
    </aside>
  );
}

function ArrayPart({ store, found }: { store: RunStore; found: NodeView }) {
  const array = found.array!;
  return (
    <div>
      <StateBar counts={array.counts} total={array.elements ?? 0} />
      <p class="small">{count(array.counts["SUCCEEDED"] ?? 0)} of {array.elements === null ? "a number not known yet" : count(array.elements)} elements, in {count(array.parts)} parts</p>
      {array.failed && <p class="small">Failed: <span class="mono">{array.failed}</span></p>}
      <Elements store={store} node={found.node} counts={array.counts} />
    </div>
  );
}

/** Elements of an array in one state, page by page; failed ones first. */
function Elements({ store, node, counts }: { store: RunStore; node: string; counts: Record<string, number> }) {
  const [state, setState] = useState(counts["FAILED"] ? "FAILED" : "");
  const [found, setFound] = useState<ElementView[]>([]);
  const [next, setNext] = useState<number | null>(null);
  const [failed, setFailed] = useState("");
  const load = async (after: number, before: readonly ElementView[]): Promise<void> => {
    try {
      const page = await call<ElementsView>(`${store.path}/nodes/${encodeURIComponent(node)}/elements`, { query: { state, after: after < 0 ? null : after, limit: 50 } });
      setFound([...before, ...page.elements]);
      setNext(page.next);
      setFailed("");
    } catch (broken) {
      setFailed(wordsOf(broken));
    }
  };
  useEffect(() => void (state && load(-1, [])), [state, counts[state]]);
  const options = [["", "Elements…"] as const, ...Object.entries(counts).map(([name, number]) => [name, `${name.toLowerCase()} (${count(number)})`] as const)];
  return (
    <div class="stack">
      <Choice label="Elements by state" value={state} options={options} onChange={(value) => { setState(value); setFound([]); setNext(null); }} />
      {failed && <p class="refused" role="alert">{failed}</p>}
      {state && found.length > 0 && (
        <ul class="lines-of">
          {found.map((one) => <li key={one.index}><b class="mono">{one.index}</b> {one.attempt > 1 && <span class="muted">×{one.attempt} </span>}{one.type && <span class="strong">{one.type}: </span>}<span class="wrap">{one.message}</span></li>)}
        </ul>
      )}
      {next !== null && state && <button type="button" onClick={() => void load(next, found)}>More elements ({count(found.length)} of {count(counts[state] ?? 0)} shown)</button>}
    </div>
  );
}

function took(found: NodeView): string {
  if (!found.started_ms) return "";
  const words = duration((found.finished_ms || now.value) - found.started_ms);
  return found.finished_ms ? `took ${words}` : `since ${words}`;
}

/** One attempt at a time: its error and its log. */
function Attempts({ store, found, isLive }: { store: RunStore; found: NodeView; isLive: boolean }) {
  const [chosen, setChosen] = useState(0);
  const attempt = chosen || found.attempt;
  useEffect(() => setChosen(0), [found.attempt]);
  const past = found.attempts.find((each) => each.attempt === attempt);
  const failure = attempt === found.attempt ? found.failure : null;
  const numbers = [...found.attempts.map((each) => each.attempt), found.attempt];
  return (
    <>
      {numbers.length > 1 && (
        <div class="row tight">
          <Choice label="Attempt" value={String(attempt)} onChange={(value) => setChosen(Number(value))} options={numbers.map((number) => [String(number), `Attempt ${number}${number === found.attempt ? " (last)" : ""}`] as const)} />
          {past && <span class="muted small">{past.mesh ?? "no mesh"}{past.started_ms ? `, ${duration(Math.max(0, past.ended_ms - past.started_ms))}` : ", not begun"}</span>}
        </div>
      )}
      {past && <div class="error"><p class="strong">{past.type || "Ended"}</p><Reason code={past.reason} detail={past.detail} /></div>}
      {failure && (
        <div class="error">
          <p class="strong wrap">{failure.type || failure.reason}</p>
          <p class="wrap">{failure.message}</p>
          {failure.traceback && <details open><summary>Traceback</summary><pre tabIndex={0} aria-label="Traceback">{failure.traceback}</pre></details>}
        </div>
      )}
      {found.control === null && <LogText key={`${found.node} ${attempt}`} store={store} node={found.array ? "" : found.node} attempt={found.array ? 0 : attempt} isLive={isLive && attempt === found.attempt} />}
    </>
  );
}
