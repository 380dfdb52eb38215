"""WebAssembly modules as plugins: real ones that loop, allocate, trap, or import from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from mesh.core.ids import PoolName, TaskId
from mesh.core.resources import ResourceSet
from mesh.plugins import CandidateFacts, PluginError, Plugins, TaskFacts
from mesh.policies import hybrid
from mesh.policies.policy_fixtures import demand, node, view
from mesh.ray.plugins import wasm
from mesh.ray.plugins.wasm import WasmUnavailable, load_wasm

NODES = view(node(cpu=(2, 8), gpu=(1, 4), memory=("4GiB", "16GiB"), busy=3, of_job=2, local_bytes=77), node(cpu=(8, 8)))
SCORE = "(param f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64) (result f64)"
TASK = TaskFacts(task=TaskId("t"), pool=PoolName("p"), priority=5.0, resources=ResourceSet.of({"cpu": 2}), estimated_ms=1_500)
CANDIDATE = CandidateFacts(task=TaskId("t"), pool=PoolName("p"), priority=2.0, priority_delta=3.0, ran_ms=9_000, lost_ms=500)


@pytest.fixture
def module(tmp_path: Path):
    def written(body: str) -> Path:
        path = tmp_path / "own.wat"
        path.write_text(f"(module {body})", encoding="utf-8")
        return path

    return written


def fenced(path: Path) -> Plugins:
    return Plugins([load_wasm(path, "own")], now_ms=lambda: time.monotonic() * 1000, budget_ms=60_000.0)


NUMBERS = {
    "cpu_free": [2, 8],
    "cpu_total": [8, 8],
    "gpu_free": [1, 0],
    "gpu_total": [4, 0],
    "memory_free": [2**32, 0],
    "memory_total": [2**34, 0],
    "cpu_wanted": [0.5, 0.5],
    "gpu_wanted": [0.25, 0.25],
    "memory_wanted": [2**30, 2**30],
    "busy": [3, 0],
    "of_job": [2, 0],
    "local_bytes": [77, 0],
}


@pytest.mark.parametrize(("place", "values"), list(enumerate(NUMBERS.values())), ids=list(NUMBERS))
def test_s13_a_module_gets_twelve_numbers_of_each_node(module, place: int, values: list[float]):
    plugin = load_wasm(module(f'(func (export "score") {SCORE} (local.get {place}))'), "own")
    assert plugin.score is not None
    assert plugin.score(demand(cpu=0.5, gpu=0.25, memory="1GiB"), NODES).tolist() == values


def test_s13_a_module_scores_thousands_of_nodes_in_a_few_calls(module):
    plugin = load_wasm(module(f'(func (export "score") {SCORE} (local.get 9))'), "own")
    nodes = view(*[node(cpu=(8, 8), busy=number) for number in range(2_500)])
    assert plugin.score is not None
    assert plugin.score(demand(cpu=1), nodes).tolist() == list(range(2_500))


def test_s13_a_module_orders_tasks_and_scores_victims(module):
    path = module(
        '(func (export "priority") (param f64 f64 f64 f64 f64) (result f64) (f64.add (local.get 0) (local.get 4)))'
        '(func (export "preemption_policy") (param f64 f64 f64 f64 f64 f64 f64) (result f64) (f64.sub (local.get 0) (local.get 2)))'
    )
    loaded = fenced(path)
    assert loaded.priority(TASK) == 6.5
    assert loaded.preempt_score(CANDIDATE, 0.0) == 2.5
    assert loaded.policies == {}


def test_s13_a_module_leaves_a_task_alone_by_answering_nan(module):
    path = module('(func (export "preemption_policy") (param f64 f64 f64 f64 f64 f64 f64) (result f64) (f64.const nan))')
    loaded = fenced(path)
    assert loaded.preempt_score(CANDIDATE, 1.5) is None
    assert loaded.take_fenced() == ()


def test_what_nobody_knows_is_minus_one(module):
    path = module('(func (export "preemption_policy") (param f64 f64 f64 f64 f64 f64 f64) (result f64) (local.get 3))')
    assert fenced(path).preempt_score(CANDIDATE, 0.0) == -1.0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(f'(func (export "score") {SCORE} (loop $ever (br $ever)) (f64.const 1))', "OUT_OF_FUEL", id="it loops for ever"),
        pytest.param(f'(func (export "score") {SCORE} unreachable)', "UNREACHABLE", id="it traps"),
        pytest.param(
            f'(func $down {SCORE} {" ".join(f"(local.get {place})" for place in range(12))} (call $down)) (export "score" (func $down))',
            "STACK_OVERFLOW",
            id="it recurses for ever",
        ),
        pytest.param(
            f'(memory 1) (func (export "score") {SCORE} (drop (memory.grow (i32.const 4096))) (f64.load (i32.const 20000000)))',
            "MEMORY_OUT_OF_BOUNDS",
            id="it uses memory that it was not given",
        ),
        pytest.param(f'(func (export "score") {SCORE} (f64.const nan))', "answered NaN or infinity", id="it answers no number"),
    ],
)
def test_s13_a_failing_module_is_replaced_by_the_default(module, body: str, why: str):
    loaded = fenced(module(body))
    assert (loaded.policies["own"].score(demand(cpu=1), NODES) == hybrid.score(demand(cpu=1), NODES)).all()
    (hook,) = loaded.take_fenced()
    assert why in hook.why


def test_s13_a_trap_is_caught_under_foreign_signal_handlers(module):
    path = module(f'(func (export "score") {SCORE} unreachable)')
    # Ray installs handlers of its own when a process connects; faulthandler does the same here. A signal would end the process.
    code = f"""
        import faulthandler, pathlib
        from mesh.plugins import PluginError, TaskFacts
        from mesh.policies.policy_fixtures import demand, node, view
        from mesh.ray.plugins.wasm import load_wasm
        plugin = load_wasm(pathlib.Path({str(path)!r}), "own")
        faulthandler.enable()
        try:
            plugin.score(demand(cpu=1), view(node(cpu=(8, 8))))
        except PluginError as stopped:
            print(stopped)
    """
    ended = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, "plugin own was stopped: trap UNREACHABLE"), ended.stderr


def test_s13_a_module_gets_no_more_memory_than_its_limit(module):
    path = module(
        '(memory 1) (func (export "priority") (param f64 f64 f64 f64 f64) (result f64) (f64.convert_i32_s (memory.grow (i32.const 4096))))'
    )
    assert fenced(path).priority(TASK) == -1.0, "WebAssembly's own word for: no"


def test_s13_nothing_is_kept_from_one_call_to_the_next(module):
    path = module(
        '(global $calls (mut f64) (f64.const 0)) (func (export "priority") (param f64 f64 f64 f64 f64) (result f64)'
        " (global.set $calls (f64.add (global.get $calls) (f64.const 1))) (global.get $calls))"
    )
    loaded = fenced(path)
    assert [loaded.priority(TASK) for _ in range(3)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(
            '(import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))',
            r"imports wasi_snapshot_preview1\.random_get; a plugin may import nothing",
            id="it imports WASI",
        ),
        pytest.param('(func (export "other"))', "exports none of score, priority, preemption_policy", id="it has no hook"),
        pytest.param(
            '(func (export "score") (param f64) (result f64) (local.get 0))', "score of .* must take 12 f64", id="too few numbers"
        ),
        pytest.param('(memory (export "score") 1)', "score of .* must take 12 f64", id="a hook that is no function"),
        pytest.param(
            '(func (export "priority") (param f64 f64 f64 f64 f64) (result f32) (f32.const 0))',
            "priority of .* must take 5 f64",
            id="an f32",
        ),
        pytest.param(
            f'(func $init (loop $ever (br $ever))) (start $init) (func (export "score") {SCORE} (f64.const 0))',
            "OUT_OF_FUEL",
            id="it loops for ever as it starts",
        ),
        pytest.param(f'(memory 1000) (func (export "score") {SCORE} (f64.const 0))', "memory", id="it wants 64 MB to begin with"),
        pytest.param("(func (export", "is not a valid module", id="it is no module"),
    ],
)
def test_s13_an_unusable_module_is_refused_at_loading(module, body: str, words: str):
    with pytest.raises(PluginError, match=words):
        load_wasm(module(body), "own")


def test_a_missing_file_is_reported(tmp_path: Path):
    with pytest.raises(PluginError, match=r"gone\.wasm cannot be read"):
        load_wasm(tmp_path / "gone.wasm", "own")


def test_a_binary_module_is_loaded_as_it_is(tmp_path: Path):
    path = tmp_path / "empty.wasm"
    path.write_bytes(b"\0asm\1\0\0\0")
    with pytest.raises(PluginError, match="exports none of"):
        load_wasm(path, "own")


def test_a_file_larger_than_any_plugin_is_refused(tmp_path: Path):
    path = tmp_path / "large.wasm"
    path.write_bytes(b"\0" * (wasm.SOURCE_BYTES_MAX + 1))
    with pytest.raises(PluginError, match="at most 1048576 are allowed"):
        load_wasm(path, "own")


def test_without_wasmtime_the_remedy_is_reported(module, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    with pytest.raises(WasmUnavailable, match=r"pip install '\.\[wasm\]' in the checkout"):
        load_wasm(module(""), "own")
