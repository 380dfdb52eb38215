import { useEffect, useMemo, useState } from "preact/hooks";
import { call, request } from "../api/client.ts";
import type { NodesView, NodeView, TimelineView } from "../api/types.ts";
import { criticalPath } from "../drawing/critical.ts";
import { GraphCanvas } from "../drawing/GraphCanvas.tsx";
import { TimelineCanvas } from "../drawing/TimelineCanvas.tsx";
import { clock, count, counted, duration, plain } from "../format.ts";
import { Action, Age, Badge, Choice, Empty, Failed, Glyph, Labels, Loading, Reason, Search, Standing, StateBar, Tabs } from "../parts/basics.tsx";
import { EventTable } from "../parts/EventTable.tsx";
import { LogText, saveAs } from "../parts/LogText.tsx";
import { NodePanel } from "../parts/NodePanel.tsx";
import { ask, format, go, route } from "../routes.ts";
import { isOver, kindOf, NODE_STATES } from "../states.ts";
import { may } from "../store/caller.ts";
import { now, type Polled, usePolled } from "../store/poll.ts";
import { RunStore } from "../store/run.ts";

const TABS = [["graph", "Graph"], ["timeline", "Timeline"], ["nodes", "Nodes"], ["log", "Log"], ["events", "Events"]] as const;

const TIMELINE_MS = 2_000;
/** Names of a critical path that are listed. */
const PATH_NAMED = 12;

export function Run({ id }: { id: string }) {
  const [store, setStore] = useState<RunStore | null>(null);
  useEffect(() => {
    const made = new RunStore(id);
    setStore(made);
    return () => made.close();
  }, [id]);
  if (!store || store.id !== id) return <Loading what="the run" />;
  if (store.isUnknown.value) return <Empty title={`There is no run ${id}.`}>It was removed, or your key does not reach it. <a href="#/runs">All runs</a></Empty>;
  return <Shown store={store} />;
}

function Shown({ store }: { store: RunStore }) {
  const { tab: asked, query } = route.value;
  const tab = TABS.some(([each]) => each === asked) ? asked : "graph";
  const node = query["node"] ?? "";
  const colour = query["colour"] === "mesh" ? "mesh" : "state";
  const view = store.view.value;
  const onChoose = (chosen: string): void => ask({ node: chosen });
  const scene = store.scene.value;
  void store.version.value;
  const failed = scene ? scene.first("FAILED") : -1;
  const hasPath = query["path"] === "critical";
  const isPicture = tab === "graph" || tab === "timeline";
  const ended = view ? isOver(view.state) : false;
  const isTimed = tab === "timeline" || (tab === "graph" && hasPath);
  const timed = usePolled(async (signal) => (isTimed ? call<TimelineView>(`${store.path}/timeline`, { signal }) : null), ended || !isTimed ? 0 : TIMELINE_MS, [store.id, ended, isTimed]);
  const timeline = isTimed ? timed.data.value : null;
  const path = useMemo(() => (scene && timeline && hasPath ? criticalPath(scene, timeline, timeline.end_ms < 0 ? timeline.now_ms : timeline.end_ms) : null), [scene, timeline, hasPath]);
  const pathNames = useMemo(() => (path && scene ? new Set(path.nodes.map((each) => scene.names[each]!)) : null), [path]);
  return (
    <div class="run">
      <Head store={store} />
      <div class="row tight tools">
        <Tabs label="Views of the run" chosen={tab} tabs={TABS} onChoose={(next) => go(format("runs", store.id, next, query), true)} />
        {isPicture && (
          <>
            <Choice label="Colour" value={colour} onChange={(value) => ask({ colour: value === "state" ? "" : value })} options={[["state", "Colour: state"], ["mesh", "Colour: mesh"]]} />
            {tab === "graph" && <Search id="search" label="Find node" value={query["find"] ?? ""} onChange={(find) => ask({ find })} />}
            <label class="check"><input type="checkbox" checked={hasPath} onChange={(event) => ask({ path: event.currentTarget.checked ? "critical" : "" })} />Critical path</label>
            {failed >= 0 && <button type="button" onClick={() => onChoose(scene!.names[failed]!)}><Glyph kind="failed" /> First failure</button>}
          </>
        )}
      </div>
      {hasPath && isPicture && path && (
        <p class="small" role="status" aria-label="Critical path">{path.nodes.length
          ? <><b>{counted(path.nodes.length, "node")}</b> decided when the run {ended ? "ended" : "ends"}, <b>{duration(path.ms)}</b> from the first start: <PathNames names={[...pathNames!]} onChoose={onChoose} /></>
          : <>Nothing has run yet, so there is no critical path.</>}</p>
      )}
      <div class={`run-body${node ? " with-panel" : ""}`}>
        <div class="run-main">
          {tab === "graph" && <><GraphCanvas store={store} chosen={node} find={query["find"] ?? ""} colour={colour} path={path} onChoose={onChoose} /><Legend store={store} colour={colour} /></>}
          {tab === "timeline" && <TimelineCanvas polled={timed as Polled<TimelineView>} path={pathNames} chosen={node} colour={colour} onChoose={onChoose} />}
          {tab === "nodes" && <Nodes store={store} onChoose={onChoose} chosen={node} />}
          {tab === "log" && <div class="panel"><LogText store={store} node="" attempt={0} isLive={view ? !isOver(view.state) : true} /></div>}
          {tab === "events" && <Events store={store} onChoose={onChoose} />}
        </div>
        {node && <NodePanel store={store} node={node} onChoose={onChoose} />}
      </div>
    </div>
  );
}

/** The nodes of a path in their order; of a long one the ends. */
function PathNames({ names, onChoose }: { names: readonly string[]; onChoose: (node: string) => void }) {
  const half = PATH_NAMED / 2;
  const link = (name: string) => <button key={name} type="button" class="link mono" onClick={() => onChoose(name)}>{name}</button>;
  if (names.length <= PATH_NAMED) return <>{names.map(link)}</>;
  return <>{names.slice(0, half).map(link)}<span class="muted">… {count(names.length - PATH_NAMED)} more … </span>{names.slice(-half).map(link)}</>;
}

function Head({ store }: { store: RunStore }) {
  const view = store.view.value;
  if (!view) return store.error.value ? <Failed words={store.error.value} again={store.again} /> : <Loading what="the run" />;
  const scene = store.scene.value;
  void store.version.value;
  const counts = scene && scene.count === view.nodes_total ? scene.counts() : view.counts;
  const done = counts["SUCCEEDED"] ?? 0;
  const failures = counts["FAILED"] ?? 0;
  const waits = store.why.value?.stages.find((stage) => stage.reason);
  const canResume = view.state === "FAILED" || view.state === "CANCELLED";
  const path = store.path;
  return (
    <header class="run-head">
      <div class="row between">
        <h1 class="mono wrap">{view.id}</h1>
        <div class="row tight">
          {store.live.value === "reconnecting" && !isOver(view.state) && <span class="muted small"><span class="pulse" aria-hidden="true" /> connecting</span>}
          {may("cancel") && !isOver(view.state) && <Action words="Cancel run" danger confirm={`Cancel ${view.id}? Its running tasks are stopped.`} run={(reason) => call(`${path}/cancel`, { method: "POST", body: { reason } })} onDone={store.again} />}
          {may("cancel") && canResume && <Action words="Resume run" confirm={`Resume ${view.id}? What has not succeeded runs again.`} run={(reason) => call(`${path}/resume`, { method: "POST", body: { reason } })} onDone={store.again} />}
        </div>
      </div>
      <p class="row wide">
        <Badge state={view.state} />
        <span><b>{count(done)}</b> of {counted(view.nodes_total, "node")}</span>
        {failures > 0 && <span class="strong">{count(failures)} failed</span>}
        <a href={format("tenants", "", "", { tenant: view.tenant })}>{view.tenant}</a>
        {view.user && <span class="muted">by {view.user}</span>}
        <span class="muted">submitted <Age ms={view.created_ms} /></span>
        <span class="muted">{view.ended_ms ? `took ${duration(view.ended_ms - view.created_ms)}` : `for ${duration(Math.max(0, now.value - view.created_ms))}`}</span>
        {view.state === "RUNNING" && <span class="muted" title="If it keeps its slots and its nodes run as long as they usually do">ends about {view.estimated_end_ms ? clock(view.estimated_end_ms) : "–"}</span>}
        <Labels of={view.labels} />
      </p>
      <StateBar counts={counts} total={view.nodes_total} />
      {view.state === "SUCCEEDED" && view.outputs.length > 0 && <Outputs store={store} outputs={view.outputs} />}
      {view.detail && isOver(view.state) && <p class="note wrap">{view.reason && <b title={view.reason}>{plain(view.reason)}: </b>}{view.detail}</p>}
      {waits && (
        <p class="note wrap">
          Waits: <Reason code={waits.reason} detail={waits.detail} />
          {waits.position ? ` · position ${count(waits.position)}` : ""}{waits.start_ms ? ` · starts about ${clock(waits.start_ms)}` : ""}
          {waits.changes.length > 0 && <> · would start if {waits.changes.map((change) => change.words).join(" and ")}</>}
        </p>
      )}
      {view.blocked.map((blocked) => <p key={blocked.detail} class="note wrap"><Glyph kind="blocked" /> {counted(blocked.count, "node")} fit no mesh: <Reason code={blocked.reason} detail={blocked.detail} /></p>)}
    </header>
  );
}

/** Values of the run, to be saved: the key goes with the request, so they are no plain links. */
function Outputs({ store, outputs }: { store: RunStore; outputs: readonly string[] }) {
  const save = (output: string) => async (): Promise<void> => {
    const answer = await request(`${store.path}/result/${encodeURIComponent(output)}`, { accept: "*/*" });
    const isJson = answer.headers.get("X-Value-Encoding") === "json";
    saveAs(await answer.blob(), `${store.id}-${output}.${isJson ? "json" : "pickle"}`);
  };
  return (
    <div class="row tight">
      <span class="muted">{outputs.length === 1 ? "Output" : "Outputs"}:</span>
      {outputs.slice(0, 12).map((output) => <Action key={output} words={`↓ ${output}`} run={save(output)} />)}
      {outputs.length > 12 && <span class="muted">and {count(outputs.length - 12)} more: <code>schedulemesh result {store.id}</code></span>}
    </div>
  );
}

function Legend({ store, colour }: { store: RunStore; colour: "state" | "mesh" }) {
  const scene = store.scene.value;
  void store.version.value;
  if (!scene) return null;
  const counts = scene.counts();
  return (
    <ul class="legend" aria-label="Nodes by state">
      {colour === "mesh" && scene.meshes.map((mesh, place) => <li key={mesh}><span class={`swatch m-${place % 4}`} />{mesh}</li>)}
      {NODE_STATES.filter((state) => counts[state]).map((state) => <li key={state}><Glyph kind={kindOf(state)} />{state.toLowerCase()} <b>{count(counts[state]!)}</b></li>)}
    </ul>
  );
}

const PAGE = 100;

function Nodes({ store, chosen, onChoose }: { store: RunStore; chosen: string; onChoose: (node: string) => void }) {
  const counts = store.view.value?.counts ?? {};
  const [state, setState] = useState<string | null>(null);
  // Failed first: they are what people come for.
  const shown = state ?? (counts["FAILED"] ? "FAILED" : "");
  const [pages, setPages] = useState<string[]>([""]);
  const after = pages[pages.length - 1]!;
  const ended = store.view.value ? isOver(store.view.value.state) : false;
  const polled = usePolled((signal) => call<NodesView>(`${store.path}/nodes`, { query: { state: shown, after, limit: PAGE }, signal }), ended ? 0 : 3_000, [store.id, shown, after, ended]);
  const found = polled.data.value;
  const total = shown ? (counts[shown] ?? 0) : (store.view.value?.nodes_total ?? 0);
  const options = [["", "All states"] as const, ...NODE_STATES.filter((each) => counts[each] || each === shown).map((each) => [each, `${each.toLowerCase()} (${count(counts[each] ?? 0)})`] as const)];
  return (
    <div class="stack">
      <div class="row tight">
        <Choice label="State" value={shown} options={options} onChange={(value) => { setState(value); setPages([""]); }} />
        {found && <span class="muted">{count((pages.length - 1) * PAGE + (found.nodes.length ? 1 : 0))}–{count((pages.length - 1) * PAGE + found.nodes.length)} of {count(total)}</span>}
        <button type="button" disabled={pages.length < 2} onClick={() => setPages(pages.slice(0, -1))}>Back</button>
        <button type="button" disabled={!found?.next} onClick={() => setPages([...pages, found!.next!])}>Next</button>
      </div>
      <Standing polled={polled} what="nodes" />
      {found && !found.nodes.length && <Empty title={shown ? `No node is ${shown.toLowerCase()}.` : "The run has no nodes."} />}
      {found && found.nodes.length > 0 && (
        <div class="scroll">
          <table class="cards">
            <thead><tr><th>Node</th><th>State</th><th>Mesh</th><th class="num">Attempt</th><th class="num">Time</th><th>Reason</th></tr></thead>
            <tbody>
              {found.nodes.map((node) => (
                <tr key={node.node} class={node.node === chosen ? "chosen" : ""}>
                  <td data-label="Node"><button type="button" class="link mono" onClick={() => onChoose(node.node)}>{node.node}</button></td>
                  <td data-label="State"><Badge state={node.state} />{node.array && <StateBar counts={node.array.counts} total={node.array.elements ?? 0} />}</td>
                  <td data-label="Mesh">{node.mesh ?? "–"}</td>
                  <td data-label="Attempt" class="num">{node.attempt}</td>
                  <td data-label="Time" class="num">{node.started_ms ? duration((node.finished_ms || now.value) - node.started_ms) : "–"}</td>
                  <td data-label="Reason">{reasonOf(node)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function reasonOf(node: NodeView) {
  if (node.failure) return <span class="wrap"><span title={node.failure.reason}>{node.failure.type || plain(node.failure.reason)}</span> <span class="muted">{node.failure.message.slice(0, 200)}</span></span>;
  return <Reason code={node.reason} detail={node.detail} />;
}

function Events({ store, onChoose }: { store: RunStore; onChoose: (node: string) => void }) {
  const events = store.events.value;
  if (!events.length) return store.live.value === "ended" ? <Empty title="The run has no events." /> : <Loading what="events" />;
  return (
    <div class="stack">
      <p class="muted">{counted(events.length, "event")}, newest first{store.earlier.value > 0 && <>; the {count(store.earlier.value)} before them: <code>schedulemesh events {store.id}</code></>}</p>
      <EventTable events={events} onNode={onChoose} />
    </div>
  );
}
