import { useEffect, useRef, useState } from "preact/hooks";
import { call } from "../api/client.ts";
import type { RecordedChangeView, TenantsView } from "../api/types.ts";
import { clock, count, counted, exact } from "../format.ts";
import { Choice, Empty, Glyph, Search, Standing } from "../parts/basics.tsx";
import { ask, format, route } from "../routes.ts";
import type { Kind } from "../states.ts";
import { caller, hasRole } from "../store/caller.ts";
import { ChangesStore, isShown, subjectOf, verbOf, whoOf } from "../store/changes.ts";
import { announce, usePolled } from "../store/poll.ts";

const SINCE = [["", "Any time"], ["1", "Last hour"], ["24", "Last day"], ["168", "Last week"], ["720", "Last 30 days"]] as const;
const OUTCOMES: Record<string, Kind> = { allowed: "succeeded", refused: "blocked", failed: "failed" };
const FILTERS = { text: "", tenant: "", who: "", verb: "", outcome: "", since: "" };

export function Changes() {
  if (caller.value && !hasRole("operator")) {
    return (
      <div class="stack">
        <h1>Changes</h1>
        <Empty title="The log of changes needs a key with the role operator.">Yours is a {caller.value.role} of {caller.value.tenant}. An operator makes one: <code>schedulemesh keys create {caller.value.tenant} --role operator</code></Empty>
      </div>
    );
  }
  return <Log />;
}

function Log() {
  const { text = "", tenant = "", who = "", verb = "", outcome = "", since = "" } = route.value.query;
  const [store, setStore] = useState<ChangesStore | null>(null);
  useEffect(() => {
    const made = new ChangesStore({ tenant, who, since });
    setStore(made);
    return () => made.close();
  }, [tenant, who, since]);
  const tenants = usePolled((signal) => call<TenantsView>("/v1/tenants", { signal }), 0, []);
  const all = store?.changes.value ?? null;
  const shown = all?.filter((change) => isShown(change, who, verb, outcome, text)) ?? [];
  const people = useSeen(all?.map(whoOf) ?? [], who);
  const verbs = useSeen(all?.map((change) => verbOf(change.operation)) ?? [], verb);
  const isFiltered = [text, tenant, who, verb, outcome, since].some(Boolean);
  const newest = all?.[all.length - 1];
  const known = useRef(0);
  useEffect(() => {
    if (newest && known.current && newest.number > known.current) announce(`New change: ${newest.user || newest.key}, ${verbOf(newest.operation)} ${newest.target}, ${newest.outcome}`);
    if (newest) known.current = newest.number;
  }, [newest?.number]);
  const clear = <button type="button" class="quiet" onClick={() => ask(FILTERS)}>Clear filters</button>;
  return (
    <div class="stack">
      <div class="row between">
        <h1>Changes</h1>
        {all && <span class="muted">{shown.length < all.length ? `${count(shown.length)} of ` : ""}{counted(all.length, "change")}{store?.hasEarlier.value ? " and more" : ""}{store?.isLive.value ? <span class="live" title="Changes are shown as they come"> live</span> : ""}</span>}
      </div>
      <div class="row tight tools" role="search">
        <Search id="search" label="Search changes  ( / )" value={text} onChange={(value) => ask({ text: value })} />
        <Choice label="Tenant" value={tenant} onChange={(value) => ask({ tenant: value })} options={[["", "All tenants"], ...(tenants.data.value?.tenants ?? []).map((each) => [each.tenant, each.tenant] as const)]} />
        <Choice label="Who" value={who} onChange={(value) => ask({ who: value })} options={[["", "Anybody"], ...people.map((each) => [each, each.replace(/^user:/, "").replace(/^key:/, "key ")] as const)]} />
        <Choice label="Verb" value={verb} onChange={(value) => ask({ verb: value })} options={[["", "Any verb"], ...verbs.map((each) => [each, each] as const)]} />
        <Choice label="Outcome" value={outcome} onChange={(value) => ask({ outcome: value })} options={[["", "Any outcome"], ...Object.keys(OUTCOMES).map((each) => [each, each] as const)]} />
        <Choice label="Since" value={since} onChange={(value) => ask({ since: value })} options={SINCE} />
        {isFiltered && clear}
      </div>
      {store && <Standing polled={{ data: store.changes, error: store.error, again: store.again }} what="changes" />}
      {all && !shown.length && (isFiltered
        ? <Empty title={store?.hasEarlier.value ? "No change that is loaded matches these filters." : "No change matches these filters."}>{clear}</Empty>
        : <Empty title="Nobody has changed anything yet.">Suspended tenants, cancelled runs, drained meshes, revoked keys and refused attempts appear here as they happen. Submitted runs do not: they are their own record.</Empty>)}
      {shown.length > 0 && <Table changes={shown} />}
      {store?.hasEarlier.value && <button type="button" class="centre" disabled={store.isBusy.value} onClick={() => void store.earlier()}>Earlier changes</button>}
    </div>
  );
}

/** Values of a filter: all that were seen since the page was opened, so that a chosen filter takes away no other choice. */
function useSeen(values: readonly string[], chosen: string): string[] {
  const seen = useRef(new Set<string>());
  for (const value of values) seen.current.add(value);
  if (chosen) seen.current.add(chosen);
  return [...seen.current].sort();
}

/** The newest first; a row opens to all fields of its entry. */
function Table({ changes }: { changes: readonly RecordedChangeView[] }) {
  return (
    <div class="scroll">
      <table class="cards changes">
        <thead><tr><th>Time</th><th>Who</th><th>Change</th><th>Tenant</th><th>Outcome</th><th>Details</th></tr></thead>
        <tbody>{[...changes].reverse().map((change) => <Row key={change.number} change={change} />)}</tbody>
      </table>
    </div>
  );
}

function Row({ change }: { change: RecordedChangeView }) {
  const [isOpen, setOpen] = useState(false);
  const details = Object.entries(change.details);
  return (
    <>
      <tr>
        <td data-label="Time"><time class="nowrap" dateTime={exact(change.at_ms)} title={exact(change.at_ms)}>{clock(change.at_ms)}</time></td>
        <td data-label="Who">{change.user || <span class="mono">{change.key}</span>}{change.user && <span class="muted small mono"> {change.key}</span>}</td>
        <td data-label="Change" class="main">
          <button type="button" class="link strong" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}><span aria-hidden="true">{isOpen ? "▾" : "▸"} </span>{verbOf(change.operation)}</button>
          <Target change={change} />
        </td>
        <td data-label="Tenant">{change.tenant === "*" ? <span class="muted">all tenants</span> : change.tenant}</td>
        <td data-label="Outcome"><Outcome change={change} /></td>
        <td data-label="Details" class={details.length ? "why" : "why none"}>{details.length ? <span>{details.map(([name, value], place) => <>{place > 0 && <span class="muted"> · </span>}{name !== "reason" && <span class="muted">{name} </span>}{value}</>)}</span> : <span class="muted">–</span>}</td>
      </tr>
      {isOpen && <tr class="open"><td colSpan={6}><Fields change={change} /></td></tr>}
    </>
  );
}

function Target({ change }: { change: RecordedChangeView }) {
  const subject = subjectOf(change);
  if (!change.target) return null;
  if (!subject) return <span class="mono">{change.target}</span>;
  const address = subject.page === "runs" ? format("runs", subject.id) : subject.page === "tenants" ? format("tenants", "", "", { tenant: subject.id }) : format("meshes");
  return <a class="mono" href={address}>{change.target}</a>;
}

function Outcome({ change }: { change: RecordedChangeView }) {
  return (
    <span class="outcome">
      <span class="badge quiet"><Glyph kind={OUTCOMES[change.outcome] ?? "waiting"} /> {change.outcome}</span>
      {change.code && <span class="muted small"> {change.code}</span>}
    </span>
  );
}

/** Names of fields that the row does not show; those of a newer root follow under their own. */
const LABELS: Record<string, string> = { number: "Number", at_ms: "Time", operation: "Operation", key: "Key", user: "User", source: "From", request_id: "Request", code: "Code" };
const IN_THE_ROW = new Set(["at", "tenant", "target", "details", "outcome", ...Object.keys(LABELS)]);

function Fields({ change }: { change: RecordedChangeView }) {
  const all = change as unknown as Record<string, unknown>;
  const names = [...Object.keys(LABELS), ...Object.keys(all).filter((name) => !IN_THE_ROW.has(name))];
  const fields = names.map((name) => [name, all[name]] as const).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return (
    <dl class="facts">
      {fields.map(([name, value]) => <><dt>{LABELS[name] ?? name}</dt><dd class="mono">{name === "at_ms" ? exact(Number(value)) : typeof value === "object" ? JSON.stringify(value) : String(value)}</dd></>)}
      {Object.entries(change.details).map(([name, value]) => <><dt>{name}</dt><dd class="lines-kept">{value}</dd></>)}
    </dl>
  );
}
