import { useState } from "preact/hooks";
import { call, wordsOf } from "../api/client.ts";
import type { ChangeView, PlanView, QueueView, StageExplanation, TenantsView, VictimView, WaitingView } from "../api/types.ts";
import { clock, count, counted, duration } from "../format.ts";
import { Age, Choice, Empty, Failed, Loading, Reason, Standing } from "../parts/basics.tsx";
import { AmountsText } from "../parts/LeaseTable.tsx";
import { ask, format, route } from "../routes.ts";
import { caller } from "../store/caller.ts";
import { usePolled } from "../store/poll.ts";

export function Queue() {
  const { tenant = "", mesh = "", tab = "" } = route.value.query;
  const path = tenant ? `/v1/queues/${tenant.split("/").map(encodeURIComponent).join("/")}` : "/v1/queues";
  const polled = usePolled((signal) => call<QueueView>(path, { query: { limit: 200 }, signal }), 3_000, [path]);
  const tenants = usePolled((signal) => call<TenantsView>("/v1/tenants", { signal }), 0, []);
  const view = polled.data.value;
  const names = (tenants.data.value?.tenants ?? []).map((each) => each.tenant);
  const waiting = view ? view.waiting.filter((each) => !mesh || each.mesh === mesh) : [];
  const meshes = [...new Set([...(view?.waiting.map((each) => each.mesh) ?? []), ...(mesh ? [mesh] : [])])];
  return (
    <div class="stack">
      <h1>Queue</h1>
      <div class="row tight tools">
        <Choice label="Tenant" value={tenant} onChange={(value) => ask({ tenant: value })} options={[["", "All tenants"], ...names.map((each) => [each, each] as const)]} />
        <Choice label="Mesh" value={mesh} onChange={(value) => ask({ mesh: value })} options={[["", "All meshes"], ...meshes.map((each) => [each, each] as const)]} />
        <button type="button" aria-expanded={tab === "what-if"} onClick={() => ask({ tab: tab === "what-if" ? "" : "what-if" })}>What if…</button>
        {view && <span class="push muted">{counted(waiting.length, "stage")} waiting{view.kept_back.length > 0 && `, ${counted(view.kept_back.length, "run")} held back`}</span>}
      </div>
      {tab === "what-if" && <WhatIf tenants={names} />}
      <Standing polled={polled} what="the queue" />
      {view && Object.entries(view.cut_short).map(([name, rest]) => <p key={name} class="note">{name}: {count(rest)} more stages behind the first 1,000 of its queue are not listed.</p>)}
      {view && !waiting.length && !view.kept_back.length && <Empty title="Nothing waits.">Whatever is submitted now starts as soon as its mesh has room.</Empty>}
      {waiting.length > 0 && (
        <div class="scroll">
          <table class="cards">
            <thead><tr><th class="num">Pos</th><th>Stage</th><th>Tenant</th><th>Mesh</th><th class="num">Priority</th><th>Reason</th><th>Needs</th><th>Starts about</th></tr></thead>
            <tbody>{waiting.map((each) => <Row key={each.stage} one={each} />)}</tbody>
          </table>
        </div>
      )}
      {view && view.kept_back.length > 0 && (
        <>
          <h2>Runs held back</h2>
          <div class="scroll">
            <table class="cards">
              <thead><tr><th class="num">Pos</th><th>Run</th><th>Tenant</th><th>Reason</th><th class="num">Age</th></tr></thead>
              <tbody>{view.kept_back.map((run) => <tr key={run.run}><td class="num" data-label="Pos">{run.position}</td><td data-label="Run"><a class="mono" href={format("runs", run.run)}>{run.run}</a></td><td data-label="Tenant">{run.tenant}</td><td data-label="Reason"><Reason code={run.reason} detail={run.detail} /></td><td class="num" data-label="Age"><Age ms={run.created_ms} /></td></tr>)}</tbody>
            </table>
          </div>
        </>
      )}
      {view && view.unmet.length > 0 && (
        <>
          <h2>Demands that are not met</h2>
          <ul class="plain">{view.unmet.map((one, place) => <li key={place}>{one.tenant} on {one.mesh}: {counted(one.slots, "slot")} of <AmountsText of={one.slot} /> for {duration(one.waiting_ms)} · <Reason code={one.reason} detail={one.detail} /></li>)}</ul>
        </>
      )}
    </div>
  );
}

function Row({ one }: { one: WaitingView }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <tr>
        <td class="num" data-label="Pos"><b>{one.position}</b></td>
        <td data-label="Stage"><button type="button" class="link mono" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? "▾" : "▸"} {one.stage}</button></td>
        <td data-label="Tenant">{one.tenant}{one.tenant_position !== null && <span class="muted"> #{one.tenant_position}</span>}</td>
        <td data-label="Mesh">{one.mesh}</td>
        <td class="num" data-label="Priority">{one.priority}</td>
        <td data-label="Reason"><Reason code={one.reason} /></td>
        <td data-label="Needs"><AmountsText of={one.slot} />{one.width > 1 && <span class="muted"> × up to {count(one.width)}</span>}</td>
        <td data-label="Starts about"><Start startMs={one.start_ms} overdueMs={one.overdue_ms} /></td>
      </tr>
      {isOpen && <tr class="open"><td colSpan={8}><Why one={one} /></td></tr>}
    </>
  );
}

function Start({ startMs, overdueMs }: { startMs: number | null; overdueMs: number }) {
  if (startMs) return <span title={new Date(startMs).toISOString()}>{startMs <= Date.now() + 1_000 ? "now" : `${clock(startMs)} (in ${duration(startMs - Date.now())})`}</span>;
  if (overdueMs) return <span class="muted">what must end first is {duration(overdueMs)} over its estimate</span>;
  return <span class="muted">no estimate yet</span>;
}

function Why({ one }: { one: WaitingView }) {
  const polled = usePolled((signal) => call<StageExplanation>(`/v1/runs/${encodeURIComponent(one.run)}/stages/${encodeURIComponent(one.stage)}/explain`, { signal }), 3_000, [one.stage]);
  const found = polled.data.value;
  return (
    <div class="why-open">
      <Standing polled={polled} what="the explanation" />
      {found && (
        <>
          <p>Run <a class="mono" href={format("runs", one.run)}>{one.run}</a>. {found.detail || (found.reason ? <Reason code={found.reason} /> : "Nothing blocks it.")}</p>
          {found.why_here && <p class="muted">Why there: {found.why_here}</p>}
          <Changes changes={found.changes} />
          <Victims victims={found.victims} />
        </>
      )}
    </div>
  );
}

function Changes({ changes }: { changes: readonly ChangeView[] }) {
  if (!changes.length) return null;
  return <><p class="strong">It would start if</p><ul>{changes.map((change, place) => <li key={place}>{change.words}</li>)}</ul></>;
}

function Victims({ victims }: { victims: readonly VictimView[] }) {
  if (!victims.length) return null;
  return (
    <>
      <p class="strong">Would be preempted</p>
      <ul>{victims.map((victim, place) => <li key={place}><AmountsText of={victim.amounts} /> of {victim.tenant ?? "another tenant"} on {victim.mesh}{victim.stages.length > 0 && <>, stopping <span class="mono">{victim.stages.join(", ")}</span></>}{victim.shrinking.length > 0 && <>, slots of <span class="mono">{victim.shrinking.join(", ")}</span></>}</li>)}</ul>
    </>
  );
}

/** A task as the dry run takes it: a function that every tenant may call, with the asked resources. */
export function specOf(cpu: string, gpu: string, memory: string, labels: string, tenant: string, copies: string): Record<string, unknown> {
  const wanted = Object.fromEntries(labels.split(",").map((part) => part.split("=").map((each) => each.trim())).filter((part) => part.length === 2 && part[0]));
  const options: Record<string, unknown> = { num_cpus: Number(cpu) || 0 };
  if (Number(gpu)) options["num_gpus"] = Number(gpu);
  if (memory) options["memory"] = memory;
  if (Object.keys(wanted).length) options["labels"] = wanted;
  const nodes: Record<string, unknown> = {};
  for (let copy = 1; copy <= Math.max(1, Math.min(1_000, Number(copies) || 1)); copy++) nodes[`task-${copy}`] = { call: "mesh.core.functions:selected", args: [0], options };
  return { spec: "dag/1", nodes, outputs: { out: { $ref: "task-1" } }, ...(tenant ? { tenant } : {}) };
}

function WhatIf({ tenants }: { tenants: readonly string[] }) {
  const [isGraph, setGraph] = useState(false);
  const [fields, setFields] = useState({ cpu: "1", gpu: "", memory: "", labels: "", tenant: "", copies: "1", graph: "" });
  const [plan, setPlan] = useState<PlanView | null>(null);
  const [failed, setFailed] = useState("");
  const [isBusy, setBusy] = useState(false);
  // A key of all tenants has none of its own.
  const tenant = fields.tenant || (caller.value?.operator ? (tenants[0] ?? "") : "");
  const set = (name: keyof typeof fields) => (event: { currentTarget: { value: string } }): void => setFields({ ...fields, [name]: event.currentTarget.value });
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFailed("");
    try {
      const body = isGraph ? fields.graph : specOf(fields.cpu, fields.gpu, fields.memory, fields.labels, tenant, fields.copies);
      setPlan(await call<PlanView>("/v1/plan", { method: "POST", body }));
    } catch (broken) {
      setPlan(null);
      setFailed(wordsOf(broken));
    } finally {
      setBusy(false);
    }
  };
  return (
    <section class="panel" aria-label="What if">
      <form onSubmit={(event) => void submit(event)}>
        <div class="row tight"><h2>What if this were submitted now?</h2><Choice label="Form" value={isGraph ? "graph" : "task"} onChange={(value) => setGraph(value === "graph")} options={[["task", "Tasks of one size"], ["graph", "A graph as JSON"]]} /></div>
        {isGraph ? (
          <>
            <label>Graph (dag/1) <textarea rows={8} value={fields.graph} spellcheck={false} required onInput={set("graph")} placeholder='{"spec": "dag/1", "nodes": {…}, "outputs": {…}}' /></label>
            <label>or a file <input type="file" accept=".json,application/json" onChange={(event) => { const file = event.currentTarget.files?.[0]; if (file) void file.text().then((graph) => setFields({ ...fields, graph })); }} /></label>
          </>
        ) : (
          <div class="fields">
            <label>Tenant<select value={tenant} onChange={set("tenant")}>{!caller.value?.operator && <option value="">that of the key</option>}{tenants.map((each) => <option key={each}>{each}</option>)}</select></label>
            <label>CPUs<input inputMode="decimal" value={fields.cpu} onInput={set("cpu")} /></label>
            <label>GPUs<input inputMode="decimal" value={fields.gpu} onInput={set("gpu")} placeholder="0" /></label>
            <label>Memory<input value={fields.memory} onInput={set("memory")} placeholder="4GiB" /></label>
            <label>Labels of the mesh<input value={fields.labels} onInput={set("labels")} placeholder="zone=eu, gpu=a100" /></label>
            <label>Tasks<input inputMode="numeric" value={fields.copies} onInput={set("copies")} /></label>
          </div>
        )}
        <div class="row end"><button type="submit" class="primary" disabled={isBusy}>Ask</button></div>
      </form>
      {isBusy && <Loading what="the plan" />}
      {failed && <Failed words={failed} />}
      {plan && !isBusy && <Plan plan={plan} />}
    </section>
  );
}

function Plan({ plan }: { plan: PlanView }) {
  return (
    <div role="status">
      {plan.reason && <p class="note">The whole run would wait: <Reason code={plan.reason} detail={plan.detail} /></p>}
      {plan.blocked.map((blocked) => <p key={blocked.detail} class="note">{counted(blocked.count, "node")} would fit no mesh: <Reason code={blocked.reason} detail={blocked.detail} /></p>)}
      {plan.stages.map((stage) => (
        <div key={stage.stage} class="why-open">
          <p>
            <b>{stage.mesh}</b>: {counted(stage.count, "node")} of <AmountsText of={stage.slot} />.{" "}
            {!stage.goes_first ? "Starts after the stages before it." : stage.reason
              ? <>Position {count(stage.position)}: <Reason code={stage.reason} detail={stage.detail} /> · <Start startMs={stage.start_ms} overdueMs={stage.overdue_ms} /></>
              : <b>Starts at once.</b>}
          </p>
          <p class="muted">{stage.why_here}</p>
          <Changes changes={stage.changes} />
          <Victims victims={stage.victims} />
        </div>
      ))}
    </div>
  );
}
