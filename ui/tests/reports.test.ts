import assert from "node:assert/strict";
import { test } from "node:test";
import type { RecordedChangeView, UsageView } from "../src/api/types.ts";
import { columnsOf, csvOf, daysOf, hours } from "../src/store/usage.ts";

Object.assign(globalThis, {
  sessionStorage: { getItem: () => null }, localStorage: { getItem: () => null },
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }), document: { documentElement: { dataset: {} } },
});
const { isShown, subjectOf, verbOf, whoOf } = await import("../src/store/changes.ts");

test("an operation is named by what it does", () => {
  const named: [string, string][] = [
    ["POST /v1/runs/{run_id}/cancel", "cancel run"],
    ["POST /v1/runs/{run_id}/signals/{name}", "signal run"],
    ["DELETE /v1/runs/{run_id}", "delete run"],
    ["PUT /v1/schedules/{name}", "write schedule"],
    ["POST /v1/cache/drop", "drop cached values"],
    ["POST /v1/dead/{letter}/requeue", "requeue dead letter"],
    ["schedulemesh keys create", "create key"],
    ["schedulemesh drain mesh", "drain mesh"],
    ["schedulemesh suspend", "suspend tenant"],
    ["schedulemesh apply", "apply file"],
    ["POST /v2/quotas/{quota}/raise", "raise quotas"],
    ["schedulemesh something quite new", "something quite new"],
  ];
  assert.deepEqual(named.map(([operation]) => [operation, verbOf(operation)]), named);
});

function change(more: Partial<RecordedChangeView>): RecordedChangeView {
  return { number: 1, at_ms: 0, operation: "POST /v1/tenants/{tenant}/suspend", tenant: "acme", target: "acme", details: {}, key: "k1", user: "", source: "", request_id: "", outcome: "allowed", code: "", ...more };
}

test("a change leads to what it was about", () => {
  assert.deepEqual(subjectOf(change({})), { page: "tenants", id: "acme" });
  assert.deepEqual(subjectOf(change({ operation: "POST /v1/runs/{run_id}/signals/{name}", target: "r/go" })), { page: "runs", id: "r" });
  assert.equal(subjectOf(change({ operation: "DELETE /v1/runs/{run_id}", target: "r" })), null);
  assert.equal(subjectOf(change({ operation: "schedulemesh keys revoke", target: "k2" })), null);
});

test("filters look at who, verb, outcome and all texts", () => {
  const one = change({ user: "ada", details: { reason: "Over budget" } });
  assert.equal(whoOf(one), "user:ada");
  assert.equal(whoOf(change({})), "key:k1");
  assert.equal(isShown(one, "user:ada", "suspend tenant", "allowed", "over BUDGET"), true);
  assert.equal(isShown(one, "user:bob", "", "", ""), false);
  assert.equal(isShown(one, "", "resume tenant", "", ""), false);
  assert.equal(isShown(one, "", "", "refused", ""), false);
  assert.equal(isShown(one, "", "", "", "elsewhere"), false);
});

test("ranges of days are those of UTC", () => {
  const lateOnNewYear = Date.UTC(2026, 0, 1, 23, 59);
  assert.deepEqual(daysOf("", lateOnNewYear), { from: "2025-12-03", to: "2026-01-01" });
  assert.deepEqual(daysOf("today", lateOnNewYear), { from: "2026-01-01", to: "2026-01-01" });
  assert.deepEqual(daysOf("last-month", lateOnNewYear), { from: "2025-12-01", to: "2025-12-31" });
  assert.deepEqual(daysOf("month", Date.UTC(2024, 1, 29)), { from: "2024-02-01", to: "2024-02-29" });
});

test("columns are known ones, in their order", () => {
  assert.deepEqual(columnsOf(undefined), ["tenant"]);
  assert.deepEqual(columnsOf("user,day,nonsense,user"), ["day", "user"]);
});

test("hours have the digits of a bill", () => {
  assert.deepEqual([0, 0.0001, 0.5, 1234.5].map(hours), ["0", "<0.001", "0.500", "1,234.500"]);
});

test("the file holds all columns and no formula", () => {
  const row = { day: null, tenant: "acme", user: '=cmd("x")', flavor: "a,b", resource: "cpu", unit: "h", used: 1.5, borrowed: 1e-7, lost: 0 };
  const view: UsageView = { at_ms: 0, first: "2026-01-01", last: "2026-01-31", rows: [row], total: [row] };
  assert.equal(csvOf(view), 'day,tenant,user,flavor,resource,unit,used,borrowed,lost\n,acme,"\'=cmd(""x"")","a,b",cpu,h,1.5,0.0000001,0\n');
});
