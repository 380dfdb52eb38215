import { useEffect, useState } from "preact/hooks";
import { call } from "../api/client.ts";
import type { MeshesView, RunLine, TenantsView } from "../api/types.ts";
import { count, counted, duration } from "../format.ts";
import { Action, Age, Badge, Choice, Empty, Labels, Reason, Search, Standing, StateBar } from "../parts/basics.tsx";
import { ask, format, route } from "../routes.ts";
import { isOver, RUN_STATES } from "../states.ts";
import { may } from "../store/caller.ts";
import { now, usePolled } from "../store/poll.ts";
import { cancellable, RunsStore } from "../store/runs.ts";

const SINCE = [["", "Any time"], ["1", "Last hour"], ["24", "Last day"], ["168", "Last week"]] as const;

export function Runs() {
  const { query } = route.value;
  const { text = "", state = "", tenant = "", mesh = "", since = "" } = query;
  const [store, setStore] = useState<RunsStore | null>(null);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => {
    const made = new RunsStore({ text, state, tenant, mesh, since });
    setStore(made);
    setChosen(new Set());
    return () => made.close();
  }, [text, state, tenant, mesh, since]);
  const tenants = usePolled((signal) => call<TenantsView>("/v1/tenants", { signal }), 0, []);
  const meshes = usePolled((signal) => call<MeshesView>("/v1/meshes", { signal }), 0, []);
  const isFiltered = [text, state, tenant, mesh, since].some(Boolean);
  const runs = store?.runs.value ?? null;
  const open = runs ? cancellable(runs, chosen) : [];
  const choose = (ids: readonly string[], isOn: boolean): void => {
    const next = new Set(chosen);
    for (const id of ids) if (isOn) next.add(id); else next.delete(id);
    setChosen(next);
  };
  return (
    <div class="stack">
      <h1>Runs</h1>
      <div class="row tight tools" role="search">
        <Search id="search" label="Search runs  ( / )" value={text} onChange={(value) => ask({ text: value })} />
        <Choice label="State" value={state} onChange={(value) => ask({ state: value })} options={[["", "Any state"], ...RUN_STATES.map((each) => [each, each.toLowerCase()] as const)]} />
        <Choice label="Tenant" value={tenant} onChange={(value) => ask({ tenant: value })} options={[["", "All tenants"], ...(tenants.data.value?.tenants ?? []).map((each) => [each.tenant, each.tenant] as const)]} />
        <Choice label="Mesh" value={mesh} onChange={(value) => ask({ mesh: value })} options={[["", "All meshes"], ...(meshes.data.value?.meshes ?? []).map((each) => [each.mesh, each.mesh] as const)]} />
        <Choice label="Since" value={since} onChange={(value) => ask({ since: value })} options={SINCE} />
        {isFiltered && <button type="button" class="quiet" onClick={() => ask({ text: "", state: "", tenant: "", mesh: "", since: "" })}>Clear filters</button>}
        <span class="push muted">{runs && <>{counted(runs.length, "run")}{store?.next.value ? " and more" : ""}{store?.isLive.value ? <span class="live" title="Changes are shown as they happen"> live</span> : ""}</>}</span>
      </div>
      {may("cancel") && open.length > 0 && (
        <div class="row tight chosen-bar">
          <span><b>{count(open.length)}</b> chosen</span>
          <Action words={`Cancel ${counted(open.length, "run")}`} danger confirm={`Cancel ${counted(open.length, "run")}? Their running tasks are stopped.`} onDone={() => { setChosen(new Set()); store?.again(); }} run={async (reason) => {
            for (const run of open) await call(`/v1/runs/${encodeURIComponent(run.id)}/cancel`, { method: "POST", body: { reason } });
          }} />
          <button type="button" class="quiet" onClick={() => setChosen(new Set())}>Choose none</button>
        </div>
      )}
      {store && <Standing polled={{ data: store.runs, error: store.error, again: store.again }} what="runs" />}
      {runs && !runs.length && (isFiltered
        ? <Empty title="No run matches these filters."><button type="button" onClick={() => ask({ text: "", state: "", tenant: "", mesh: "", since: "" })}>Clear filters</button></Empty>
        : <Empty title="No runs yet.">Submit one: <code>schedulemesh submit examples/hello/hello.json</code>, or <code>dag.submit(…)</code> in Python. It appears here by itself.</Empty>)}
      {runs && runs.length > 0 && <Table runs={runs} chosen={chosen} choose={choose} />}
      {store?.next.value && <button type="button" class="centre" onClick={() => void store.more()}>More runs</button>}
    </div>
  );
}

function Table({ runs, chosen, choose }: { runs: readonly RunLine[]; chosen: ReadonlySet<string>; choose: (ids: readonly string[], isOn: boolean) => void }) {
  const open = runs.filter((run) => !isOver(run.state)).map((run) => run.id);
  const isAll = open.length > 0 && open.every((id) => chosen.has(id));
  return (
    <div class="scroll">
      <table class="cards runs">
        <thead>
          <tr>
            <th class="tick"><input type="checkbox" aria-label="Choose all open runs" checked={isAll} disabled={!open.length || !may("cancel")} onChange={(event) => choose(open, event.currentTarget.checked)} /></th>
            <th>Run</th><th>Tenant</th><th>State</th><th>Nodes</th><th>Why</th><th class="num">Time</th><th class="num">Age</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((run) => (
            <tr key={run.id}>
              <td class="tick">{may("cancel") && !isOver(run.state) && <input type="checkbox" aria-label={`Choose ${run.id}`} checked={chosen.has(run.id)} onChange={(event) => choose([run.id], event.currentTarget.checked)} />}</td>
              <td data-label="Run" class="main"><a class="mono" href={format("runs", run.id)}>{run.id}</a> <Labels of={run.labels} /></td>
              <td data-label="Tenant">{run.tenant}</td>
              <td data-label="State"><Badge state={run.state} /></td>
              <td data-label="Nodes" class="nodes"><StateBar counts={run.counts} total={run.nodes_total} /><span class="small">{count(run.nodes_succeeded)}/{count(run.nodes_total)}{run.nodes_failed > 0 && <b> · {count(run.nodes_failed)} failed</b>}</span></td>
              <td data-label="Why" class={run.reason || run.detail ? "why" : "why none"}>{run.reason || run.detail ? <Reason code={run.reason} detail={run.detail} /> : <span class="muted">–</span>}</td>
              <td data-label="Time" class="num wide-only">{duration(Math.max(0, (run.ended_ms || now.value) - run.created_ms))}</td>
              <td data-label="Age" class="num"><Age ms={run.created_ms} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
