import { call } from "../api/client.ts";
import type { TenantsView, UsageRowView, UsageView } from "../api/types.ts";
import { clock, counted } from "../format.ts";
import { Choice, Empty, Standing } from "../parts/basics.tsx";
import { saveAs } from "../parts/LogText.tsx";
import { ask, route } from "../routes.ts";
import { usePolled } from "../store/poll.ts";
import { COLUMNS, type Column, columnsOf, csvOf, daysOf, hours, mostUsed, RANGES } from "../store/usage.ts";

/** A report reads the whole ledger, so the page asks for it rarely. */
const POLL_MS = 30_000;
const TITLES: Record<Column, string> = { day: "Day", tenant: "Tenant", user: "User", flavor: "Flavor" };
/** More rows are in the file only. */
const ROWS_MAX = 1_000;

export function Usage() {
  const { range = "", tenant = "", by: asked } = route.value.query;
  const by = columnsOf(asked);
  const tenants = usePolled((signal) => call<TenantsView>("/v1/tenants", { signal }), 0, []);
  const polled = usePolled((signal) => call<UsageView>("/v1/usage", { query: { ...daysOf(range, Date.now()), tenant, by }, signal }), POLL_MS, [range, tenant, by.join()]);
  const view = polled.data.value;
  const toggled = (column: Column): string => COLUMNS.filter((each) => by.includes(each) !== (each === column)).join() || "tenant";
  return (
    <div class="stack">
      <h1>Usage</h1>
      <div class="row tight tools">
        <Choice label="Days" value={range} onChange={(value) => ask({ range: value })} options={RANGES} />
        <Choice label="Tenant" value={tenant} onChange={(value) => ask({ tenant: value })} options={[["", "All tenants"], ...(tenants.data.value?.tenants ?? []).map((each) => [each.tenant, each.tenant] as const)]} />
        <div class="toggles" role="group" aria-label="Columns">
          <span class="muted small">by</span>
          {COLUMNS.map((column) => <button key={column} type="button" aria-pressed={by.includes(column)} onClick={() => ask({ by: toggled(column) })}>{TITLES[column]}</button>)}
        </div>
        <span class="push row tight">
          {view && <span class="muted">{counted(view.rows.length, "row")}, up to {clock(view.at_ms)}</span>}
          <button type="button" disabled={!view?.rows.length} onClick={() => saveAs(new Blob([csvOf(view!)], { type: "text/csv" }), `usage-${view!.first}-${view!.last}.csv`)}>↓ CSV</button>
        </span>
      </div>
      <Standing polled={polled} what="usage" />
      {view && !view.rows.length && <Empty title={`Nothing was used from ${view.first} to ${view.last}.`}>A stage counts from its start to its end, with all its slots. Days begin at midnight UTC.</Empty>}
      {view && view.rows.length > 0 && <Table view={view} />}
    </div>
  );
}

function Table({ view }: { view: UsageView }) {
  const columns = COLUMNS.filter((column) => view.rows.some((row) => row[column] !== null));
  const most = mostUsed(view.rows);
  return (
    <>
      <div class="scroll">
        <table class="cards usage">
          <thead><tr>{columns.map((column) => <th key={column}>{TITLES[column]}</th>)}<th>Resource</th><th class="share"><span class="sr">Share</span></th><th class="num">Used</th><th class="num">Borrowed</th><th class="num">Lost</th><th>Unit</th></tr></thead>
          <tbody>{view.rows.slice(0, ROWS_MAX).map((row) => <Row key={[...columns.map((column) => row[column]), row.resource].join("\n")} row={row} columns={columns} most={most.get(row.resource) ?? 0} />)}</tbody>
          <tfoot>{view.total.map((row, place) => <Row key={row.resource} row={row} columns={columns} most={0} title={place ? "" : "Total"} />)}</tfoot>
        </table>
      </div>
      {view.rows.length > ROWS_MAX && <p class="muted">{counted(ROWS_MAX, "row")} of {counted(view.rows.length, "row")} shown; the file has all.</p>}
      <p class="muted small">{view.first} to {view.last}, UTC. Used: what stages held, times hours. Borrowed: the part beyond the tenant's own quota. Lost: work that preemptions ended, since its last checkpoint. A tenant's row leaves out the tenants below it, so rows add up.</p>
    </>
  );
}

function Row({ row, columns, most, title }: { row: UsageRowView; columns: readonly Column[]; most: number; title?: string }) {
  const own = Math.max(0, row.used - row.borrowed);
  const share = (amount: number): number => (most ? (amount / most) * 100 : 0);
  return (
    <tr>
      {title === undefined
        ? columns.map((column) => <td key={column} data-label={TITLES[column]} class={column === "day" ? "nowrap" : ""}>{row[column] || <span class="muted">(none)</span>}</td>)
        : columns.length > 0 && <th scope="row" colSpan={columns.length}>{title}</th>}
      <td data-label="Resource">{row.resource}</td>
      <td class="share wide-only">{most > 0 && (
        <svg class="bar quota" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
          <rect class="q-used" x="0" y="0" width={share(own)} height="10" />
          <rect class="q-borrowed" x={share(own)} y="0" width={share(row.borrowed)} height="10" />
        </svg>
      )}</td>
      <td data-label="Used" class="num strong">{hours(row.used)}</td>
      <td data-label="Borrowed" class="num">{hours(row.borrowed)}</td>
      <td data-label="Lost" class="num">{hours(row.lost)}</td>
      <td data-label="Unit" class="muted">{row.unit}</td>
    </tr>
  );
}
