import assert from "node:assert/strict";
import { test } from "node:test";

Object.assign(globalThis, {
  sessionStorage: { getItem: () => null, setItem: () => undefined, removeItem: () => undefined },
  localStorage: { getItem: () => null, setItem: () => undefined },
  matchMedia: () => ({ matches: false, addEventListener: () => undefined }),
  document: { documentElement: { dataset: {} } },
});
const { EventParser } = await import("../src/api/live.ts");
const { address } = await import("../src/api/client.ts");
const { withTimes } = await import("../src/api/times.ts");

const TEXT = 'retry: 1000\n\n: nothing new\n\nid: 7\nevent: node\ndata: {"a": "é"}\n\nid: 8\r\ndata: one\r\ndata:two\r\n\r\ndata: last\n\nid: 9\n: a mark\n\n';
const WANTED = [
  { id: "7", event: "node", data: '{"a": "é"}' },
  { id: "8", event: "message", data: "one\ntwo" },
  { id: "8", event: "message", data: "last" },
];

test("events are read whole wherever the stream is cut", () => {
  for (let cut = 0; cut <= TEXT.length; cut++) {
    const parser = new EventParser();
    assert.deepEqual([...parser.push(TEXT.slice(0, cut)), ...parser.push(TEXT.slice(cut))], WANTED, `cut at ${cut}`);
  }
});

test("events are read from single characters", () => {
  const parser = new EventParser();
  assert.deepEqual([...TEXT].flatMap((each) => parser.push(each)), WANTED);
});

test("an unfinished event is held back", () => {
  const parser = new EventParser();
  assert.deepEqual(parser.push("data: half\n"), []);
});

test("an address holds its parameters and nothing empty", () => {
  assert.equal(address("/v1/runs", { text: "a b&c", state: "", cursor: null, label: ["x=1", "y=2"] }), "v1/runs?text=a+b%26c&label=x%3D1&label=y%3D2");
});

test("times of the API become numbers", () => {
  const value = withTimes({ created_at: "1970-01-01T00:00:01Z", ended_at: null, stages: [{ start_at: null, at: "1970-01-01T00:00:02.500Z", detail: "at" }] });
  assert.deepEqual(value, {
    created_at: "1970-01-01T00:00:01Z", created_ms: 1_000, ended_at: null, ended_ms: 0,
    stages: [{ start_at: null, start_ms: 0, at: "1970-01-01T00:00:02.500Z", at_ms: 2_500, detail: "at" }],
  });
});
