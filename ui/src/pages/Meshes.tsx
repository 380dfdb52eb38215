import { call } from "../api/client.ts";
import type { AbsentEntry, MeshEntry, MeshesView, PoolView } from "../api/types.ts";
import { count, counted, duration } from "../format.ts";
import { Action, Empty, Glyph, Labels, Standing } from "../parts/basics.tsx";
import { AmountsText } from "../parts/LeaseTable.tsx";
import { format } from "../routes.ts";
import type { Kind } from "../states.ts";
import { may } from "../store/caller.ts";
import { usePolled } from "../store/poll.ts";

export function Meshes() {
  const polled = usePolled((signal) => call<MeshesView>("/v1/meshes", { signal }), 2_000, []);
  const view = polled.data.value;
  return (
    <div class="stack">
      <h1>Meshes</h1>
      <Standing polled={polled} what="meshes" />
      {view && !view.meshes.length && !view.absent.length && <Empty title="No mesh has joined.">A mesh joins with <code>schedulemesh join</code>, or is named in the federation's file.</Empty>}
      <div class="grid">
        {view?.meshes.map((mesh) => <Card key={mesh.mesh} mesh={mesh} again={polled.again} />)}
        {view?.absent.map((mesh) => <Absent key={mesh.mesh} mesh={mesh} again={polled.again} />)}
      </div>
    </div>
  );
}

function stateOf(mesh: MeshEntry): [Kind, string] {
  if (!mesh.alive) return ["failed", "lost"];
  if (!mesh.cluster_answers) return ["failed", "its Ray cluster does not answer"];
  if (mesh.draining) return ["skipped", "draining"];
  if (!mesh.stable) return ["blocked", `on probation for ${duration(mesh.stable_in_ms)}`];
  return ["succeeded", "alive"];
}

function Card({ mesh, again }: { mesh: MeshEntry; again: () => void }) {
  const [kind, words] = stateOf(mesh);
  const path = `/v1/meshes/${encodeURIComponent(mesh.mesh)}`;
  return (
    <article class="panel card" aria-label={`Mesh ${mesh.mesh}`}>
      <div class="row between"><h2>{mesh.mesh}</h2><span class="badge"><Glyph kind={kind} /> {words}</span></div>
      <p class="small muted">heartbeat {duration(mesh.heartbeat_age_ms)} ago{mesh.losses > 0 && ` · ${counted(mesh.losses, "loss", "losses")}`}</p>
      <p><Labels of={mesh.labels} /></p>
      {mesh.drain_reason && <p class="note">Drained: {mesh.drain_reason}</p>}
      {mesh.warnings.map((warning) => <p key={warning} class="note"><Glyph kind="blocked" /> {warning}</p>)}
      {mesh.pools.map((pool) => <Pool key={pool.pool} pool={pool} />)}
      <dl class="facts">
        <dt>Running</dt><dd><a href={format("runs", "", "", { mesh: mesh.mesh, state: "RUNNING" })}>{counted(mesh.running, "stage")}</a>{mesh.oldest_running_ms > 0 && <span class="muted">, oldest {duration(mesh.oldest_running_ms)}</span>}</dd>
        <dt>Waiting</dt><dd><a href={format("queue", "", "", { mesh: mesh.mesh })}>{counted(mesh.waiting, "stage")}</a>{mesh.oldest_waiting_ms > 0 && <span class="muted">, oldest {duration(mesh.oldest_waiting_ms)}</span>}</dd>
        {mesh.waiting_for_ray > 0 && <><dt>Wait for Ray</dt><dd>{counted(mesh.waiting_for_ray, "stage")}</dd></>}
        {mesh.run_ms !== null && <><dt>Stage takes</dt><dd>{duration(mesh.run_ms)}</dd></>}
        <dt>Nodes</dt><dd>{mesh.nodes.length ? mesh.nodes.map((size, place) => <div key={place}>{count(size.nodes)} × <AmountsText of={size.total} /></div>) : <span class="muted">not known yet</span>}</dd>
      </dl>
      {may("drain_meshes") && <div class="row end">
        {mesh.draining
          ? <Action words="Undrain" run={() => call(`${path}/undrain`, { method: "POST" })} onDone={again} />
          : <Action words="Drain" confirm={`Drain ${mesh.mesh}? It finishes the work it has and gets nothing new.`} run={(reason) => call(`${path}/drain`, { method: "POST", body: { reason } })} onDone={again} />}
      </div>}
    </article>
  );
}

function Pool({ pool }: { pool: PoolView }) {
  return (
    <div class="pool">
      <p class="small strong">{pool.pool} <span class="muted">{pool.flavor}</span></p>
      {Object.entries(pool.capacity).filter(([, capacity]) => capacity.units > 0).map(([resource, capacity]) => {
        const used = pool.used[resource];
        const words = `${used?.text ?? "0"} of ${capacity.text} ${resource} used`;
        return (
          <div key={resource} class="quota-line">
            <span class="muted small">{resource}</span>
            <svg class="bar quota" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={words}>
              <rect class="q-nominal" x="0" y="0" width="100" height="10" />
              <rect class="q-used" x="0" y="0" width={Math.min(100, ((used?.units ?? 0) / capacity.units) * 100)} height="10" />
            </svg>
            <span class="small num">{used?.text ?? "0"} / {capacity.text}</span>
          </div>
        );
      })}
      {pool.groups && <p class="small muted">{count(pool.groups.reserved)} reserved groups: {count(pool.groups.in_use)} in use, {count(pool.groups.idle)} idle</p>}
    </div>
  );
}

function Absent({ mesh, again }: { mesh: AbsentEntry; again: () => void }) {
  const words = { not_joined: "has not joined yet", left: "left in good order", lost: "was lost" }[mesh.state] ?? mesh.state;
  const path = `/v1/meshes/${encodeURIComponent(mesh.mesh)}`;
  return (
    <article class="panel card absent" aria-label={`Mesh ${mesh.mesh}`}>
      <div class="row between"><h2>{mesh.mesh}</h2><span class="badge"><Glyph kind={mesh.state === "lost" ? "failed" : "waiting"} /> {words}</span></div>
      <p><Labels of={mesh.labels} /></p>
      {mesh.draining && <><p class="note">Drained{mesh.drain_reason ? `: ${mesh.drain_reason}` : "; gets no work when it joins."}</p>{may("drain_meshes") && <div class="row end"><Action words="Undrain" run={() => call(`${path}/undrain`, { method: "POST" })} onDone={again} /></div>}</>}
    </article>
  );
}
