import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client.ts";
import type { HistoryView, TenantsView, TenantView } from "../api/types.ts";
import { duration } from "../format.ts";
import { Action, Age, Choice, Empty, Standing } from "../parts/basics.tsx";
import { LeaseLines } from "../parts/LeaseTable.tsx";
import { QuotaBar } from "../parts/QuotaBar.tsx";
import { ask, format, route } from "../routes.ts";
import { may } from "../store/caller.ts";
import { usePolled } from "../store/poll.ts";
import { borrowingOf, depthOf, lentUnits, shownQuotas, treeOf } from "../store/quota.ts";

export function Tenants() {
  const { query } = route.value;
  const { flavor = "", resource = "", tenant: chosen = "" } = query;
  const polled = usePolled((signal) => call<TenantsView>("/v1/tenants", { signal }), 2_000, []);
  const samples = useSamples(polled.data.value);
  const tenants = polled.data.value ? treeOf(polled.data.value.tenants) : [];
  const all = new Map(tenants.map((tenant) => [tenant.tenant, tenant]));
  const of = (name: "flavor" | "resource"): string[] => [...new Set(tenants.flatMap((tenant) => tenant.quotas.map((quota) => quota[name])))].sort();
  const found = all.get(chosen);
  const borrowing = borrowingOf(tenants);
  return (
    <div class="stack">
      <h1>Tenants</h1>
      <div class="row tight tools">
        <Choice label="Flavor" value={flavor} onChange={(value) => ask({ flavor: value })} options={[["", "All flavors"], ...of("flavor").map((each) => [each, each] as const)]} />
        <Choice label="Resource" value={resource} onChange={(value) => ask({ resource: value })} options={[["", "All resources"], ...of("resource").map((each) => [each, each] as const)]} />
        <ul class="legend push" aria-label="Meaning of the bars"><li><span class="swatch q-used" />used</li><li><span class="swatch q-borrowed" />borrowed</li><li><span class="swatch q-nominal" />nominal, free</li></ul>
      </div>
      <Standing polled={polled} what="tenants" />
      {polled.data.value && !tenants.length && <Empty title="Your key reaches no tenant.">An operator's file lists the tenants: <code>schedulemesh apply</code>.</Empty>}
      <div class={`run-body${found ? " with-panel" : ""}`}>
        <div class="run-main stack">
          {borrowing.map((one) => (
            <p key={`${one.flavor} ${one.resource}`} class="note">
              {one.borrowers.map(({ tenant, text }) => `${tenant} borrows ${text}`).join(", ")} {one.resource} of {one.flavor}
              {one.lenders.length > 0 && <> from the quota of {one.lenders.map(({ tenant }) => tenant).join(", ")}</>}
            </p>
          ))}
          {tenants.length > 0 && (
            <ul class="tree">
              {tenants.map((tenant) => <Row key={tenant.tenant} tenant={tenant} depth={depthOf(tenant, all)} flavor={flavor} resource={resource} isChosen={tenant.tenant === chosen} />)}
            </ul>
          )}
        </div>
        {found && <Panel tenant={found} samples={samples} again={polled.again} />}
      </div>
    </div>
  );
}

function Row({ tenant, depth, flavor, resource, isChosen }: { tenant: TenantView; depth: number; flavor: string; resource: string; isChosen: boolean }) {
  const quotas = shownQuotas(tenant, flavor, resource);
  return (
    <li class={`tenant d-${Math.min(depth, 5)}${isChosen ? " chosen" : ""}`}>
      <div class="name">
        <button type="button" class="link strong" aria-expanded={isChosen} onClick={() => ask({ tenant: isChosen ? "" : tenant.tenant })}>{depth ? tenant.tenant.split("/").pop() : tenant.tenant}</button>
        {tenant.stop !== "none" && <span class="label warn">{tenant.stop === "hold" ? "suspended" : "drained"}</span>}
      </div>
      <div class="quotas">
        {quotas.map((quota) => (
          <div key={`${quota.flavor} ${quota.resource}`} class="quota-line">
            <span class="muted small">{quota.flavor} {quota.resource}</span>
            <QuotaBar quota={quota} />
            <span class="small num">{quota.used.text} / {quota.nominal.text}{quota.borrowed.units > 0 && <b> +{quota.borrowed.text}</b>}</span>
          </div>
        ))}
        {!quotas.length && <span class="muted small">no quota of its own</span>}
      </div>
    </li>
  );
}

function Panel({ tenant, samples, again }: { tenant: TenantView; samples: Samples; again: () => void }) {
  const history = usePolled((signal) => call<HistoryView>("/v1/leases/history", { query: { tenant: tenant.tenant, limit: 50 }, signal }), 5_000, [tenant.tenant]);
  const path = `/v1/tenants/${tenant.tenant.split("/").map(encodeURIComponent).join("/")}`;
  const post = (verb: string) => (reason: string): Promise<unknown> => call(`${path}/${verb}`, { method: "POST", body: verb === "resume" ? undefined : { reason } });
  return (
    <aside class="panel node-panel" aria-label={`Tenant ${tenant.tenant}`}>
      <div class="row between"><h2 class="wrap">{tenant.tenant}</h2><button type="button" class="quiet" aria-label="Close" onClick={() => ask({ tenant: "" })}>✕</button></div>
      {tenant.stop !== "none" && <p class="note">{tenant.stop === "hold" ? "Suspended: starts nothing new." : "Drained: starts nothing, and running work is preempted."} {tenant.stop_reason} {tenant.stopped_ms ? <Age ms={tenant.stopped_ms} /> : "by the file"}</p>}
      <div class="row tight">
        {may("stop_tenants") && (tenant.stop === "none"
          ? <><Action words="Suspend" confirm={`Suspend ${tenant.tenant}? Running work goes on, nothing new starts.`} run={post("suspend")} onDone={again} /><Action words="Drain" danger confirm={`Drain ${tenant.tenant}? Running work is preempted, and runs again after resume.`} run={post("drain")} onDone={again} /></>
          : <Action words="Resume" run={post("resume")} onDone={again} />)}
        <a class="button" href={format("runs", "", "", { tenant: tenant.tenant })}>Its runs</a>
        <a class="button" href={format("queue", "", "", { tenant: tenant.tenant })}>Its queue</a>
      </div>
      {tenant.quotas.filter((quota) => quota.nominal.units || quota.used.units || quota.potential.units).map((quota) => (
        <section key={`${quota.flavor} ${quota.resource}`}>
          <h3>{quota.flavor} {quota.resource}</h3>
          <QuotaBar quota={quota} />
          <dl class="facts">
            <dt>Used</dt><dd>{quota.used.text} of {quota.nominal.text}</dd>
            <dt>Borrowed</dt><dd>{quota.borrowed.text}{quota.borrowing_limit ? `, at most ${quota.borrowing_limit.text}` : ""}</dd>
            {lentUnits(quota) > 0 && <><dt>Lent</dt><dd>{(lentUnits(quota) / unitOf(quota.resource)).toLocaleString("en")}{quota.lending_limit ? `, at most ${quota.lending_limit.text}` : ""}</dd></>}
            <dt>Available now</dt><dd>{quota.available.text}</dd>
          </dl>
          <Lines samples={samples} tenant={tenant.tenant} of={`${quota.flavor} ${quota.resource}`} nominal={quota.nominal.units} />
        </section>
      ))}
      <dl class="facts">
        <dt>Weight</dt><dd>{tenant.weight}</dd>
        {tenant.priority_max !== null && <><dt>Priority at most</dt><dd>{tenant.priority_max}</dd></>}
        {tenant.running_max !== null && <><dt>Stages at once</dt><dd>{tenant.running_max}</dd></>}
        {tenant.running_max_per_user !== null && <><dt>Stages a user</dt><dd>{tenant.running_max_per_user}</dd></>}
        {tenant.max_wait_ms !== null && <><dt>Waits at most</dt><dd>{duration(tenant.max_wait_ms)}</dd></>}
      </dl>
      <h3>Lease history</h3>
      <Standing polled={history} what="the history" />
      {history.data.value && <LeaseLines events={history.data.value.lease_events} />}
    </aside>
  );
}

function unitOf(resource: string): number {
  return resource === "memory" || resource === "object_store_memory" ? 1 : 10_000;
}

type Samples = Map<string, { at: number; used: number; borrowed: number }[]>;
const SAMPLES_MAX = 900;

/** Use of each quota since the page was opened: the root keeps no history of it. */
function useSamples(view: TenantsView | null): Samples {
  const samples = useRef<Samples>(new Map());
  useEffect(() => {
    for (const tenant of view?.tenants ?? [])
      for (const quota of tenant.quotas) {
        const key = `${tenant.tenant} ${quota.flavor} ${quota.resource}`;
        const line = samples.current.get(key) ?? [];
        line.push({ at: view!.at_ms, used: quota.used.units, borrowed: quota.borrowed.units });
        if (line.length > SAMPLES_MAX) line.shift();
        samples.current.set(key, line);
      }
  }, [view]);
  return samples.current;
}

function Lines({ samples, tenant, of, nominal }: { samples: Samples; tenant: string; of: string; nominal: number }) {
  const line = samples.get(`${tenant} ${of}`) ?? [];
  const [isOpen, setOpen] = useState(true);
  if (line.length < 3) return null;
  const [first, last] = [line[0]!, line[line.length - 1]!];
  const most = Math.max(nominal, ...line.map((one) => one.used), 1);
  const points = (value: (one: (typeof line)[number]) => number): string =>
    line.map((one) => `${(((one.at - first.at) / Math.max(1, last.at - first.at)) * 300).toFixed(1)},${(58 - (value(one) / most) * 54).toFixed(1)}`).join(" ");
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class="small muted">Since this page was opened, {duration(last.at - first.at)}</summary>
      <svg class="lines" viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label={`Use of ${of} in the last ${duration(last.at - first.at)}`}>
        <line class="q-mark-line" x1="0" x2="300" y1={58 - (nominal / most) * 54} y2={58 - (nominal / most) * 54} />
        <polyline class="l-used" points={points((one) => one.used)} />
        <polyline class="l-borrowed" points={points((one) => one.borrowed)} />
      </svg>
    </details>
  );
}
