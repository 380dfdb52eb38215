"""WebAssembly plugins: untrusted code that reaches no resource and cannot block the scheduler.

A module may import nothing, so it has no clock, no randomness, no files and no network. Each call of a hook runs in a new instance:
nothing is kept between calls, so the same facts give the same answer, on this mesh and in a replay. A call may use `FUEL_PER_CALL`
instructions, plus `FUEL_PER_NODE` for each node, and grow its memory to `MEMORY_BYTES_MAX`. A call beyond these limits traps, and a trap
fences the plugin off (`mesh.plugins`).

All numbers are f64: CPUs and GPUs in wholes, memory in bytes, times in seconds, -1 for unknown values. A module exports any of

    score(cpu_free, cpu_total, gpu_free, gpu_total, memory_free, memory_total,
          cpu_wanted, gpu_wanted, memory_wanted, busy, of_job, local_bytes) -> f64      for each node
    priority(priority, cpu, gpu, memory, estimated_s) -> f64
    preemption_policy(priority_delta, ran_s, lost_s, remaining_s, cpu, gpu, memory) -> f64, NaN to leave the task alone

A call from Python into WebAssembly costs about 100 µs, a call between modules nothing. So this project's module `_SWEEP` calls `score`
for all nodes of a table, in one call from Python.

`docs/plugins.md` is the documentation for users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mesh.core.counting import counted
from mesh.core.resources import UNITS_PER_WHOLE, ResourceSet
from mesh.plugins import CandidateFacts, Plugin, PluginError, TaskFacts
from mesh.policies.policy import FloatArray, IntArray, NodeDemand, NodeScoringView
from mesh.policies.shares import column

FUEL_PER_CALL = 1_000_000  #: Instructions, about; a millisecond or less.
FUEL_PER_NODE = 10_000
MEMORY_BYTES_MAX = 16 * 2**20
SOURCE_BYTES_MAX = 2**20
#: Number of parameters of each hook.
PARAMETERS = {"score": 12, "priority": 5, "preemption_policy": 7}
_UNKNOWN = -1.0
_SWEEP_ROWS = 1024  #: Nodes per call; their numbers and scores fit into the two pages of its memory.
_SWEEP = f"""
(module
  (import "plugin" "score" (func $score (param {"f64 " * 12}) (result f64)))
  (memory (export "memory") 2)
  (func (export "sweep") (param $rows i32)
    (local $row i32) (local $at i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $row) (local.get $rows)))
        (local.set $at (i32.mul (local.get $row) (i32.const 96)))
        (f64.store
          (i32.add (i32.const {_SWEEP_ROWS * 96}) (i32.mul (local.get $row) (i32.const 8)))
          (call $score {" ".join(f"(f64.load offset={8 * number} (local.get $at))" for number in range(12))}))
        (local.set $row (i32.add (local.get $row) (i32.const 1)))
        (br $next)))))
"""


class WasmUnavailable(PluginError):
    """wasmtime, which runs WebAssembly, is not installed."""


def load_wasm(path: Path, name: str) -> Plugin:
    """Load a `.wasm` or `.wat` file as a plugin.

    Raises:
        WasmUnavailable: The extra is missing.
        PluginError: No such file, an invalid module, an import, no hook, or a hook of another signature.
    """
    module = _Module(path, name)
    return Plugin(
        name=name,
        score=module.score if "score" in module.hooks else None,
        priority=module.priority if "priority" in module.hooks else None,
        preemption_policy=module.preemption_policy if "preemption_policy" in module.hooks else None,
    )


class _Module:
    """A checked module; each call gets a new instance."""

    def __init__(self, path: Path, name: str) -> None:
        try:
            import wasmtime  # noqa: PLC0415  few meshes have such a plugin, and it may be missing
        except ImportError as missing:
            raise WasmUnavailable(f"plugin {name} is WebAssembly, which needs wasmtime: pip install '.[wasm]' in the checkout") from missing
        self._wasmtime: Any = wasmtime
        self._name = name
        self._engine = self._wasmtime.Engine(_config(self._wasmtime))
        self._module = self._compiled(path)
        self.hooks = self._checked_hooks(path)
        self._sweep = self._wasmtime.Module(self._engine, _SWEEP)
        self._instance(FUEL_PER_CALL)  # A start function that traps fails here, not in the middle of a decision.

    def score(self, demand: NodeDemand, view: NodeScoringView) -> FloatArray:
        """Return the module's `score` of each node [n]."""
        rows = len(view.total)
        store, instance = self._instance(FUEL_PER_CALL + FUEL_PER_NODE * rows)
        with self._trapped():
            sweep = self._wasmtime.Instance(store, self._sweep, [instance.exports(store)["score"]]).exports(store)
            memory, run = sweep["memory"], sweep["sweep"]
            numbers, scores = _numbers(demand, view), bytearray()
            for start in range(0, rows, _SWEEP_ROWS):
                part = numbers[start : start + _SWEEP_ROWS]
                memory.write(store, part.tobytes(), 0)
                run(store, len(part))
                scores += memory.read(store, _SWEEP_ROWS * 96, _SWEEP_ROWS * 96 + 8 * len(part))
        return np.frombuffer(scores, dtype="<f8").astype(np.float64)

    def priority(self, facts: TaskFacts) -> float:
        """Return the module's `priority`."""
        return self._call("priority", FUEL_PER_CALL)(facts.priority, *_amounts(facts.resources), _seconds(facts.estimated_ms))

    def preemption_policy(self, facts: CandidateFacts) -> float | None:
        """Return the module's `preemption_policy`; None for NaN."""
        times = (_seconds(facts.ran_ms), _seconds(facts.lost_ms), _seconds(facts.remaining_ms))
        answer = self._call("preemption_policy", FUEL_PER_CALL)(facts.priority_delta, *times, *_amounts(facts.resources))
        return None if math.isnan(answer) else answer

    def _call(self, hook: str, fuel: int) -> Callable[..., float]:
        store, instance = self._instance(fuel)
        function = instance.exports(store)[hook]

        def call(*numbers: float) -> float:
            with self._trapped():
                return float(function(store, *map(float, numbers)))

        return call

    @contextmanager
    def _trapped(self) -> Iterator[None]:
        try:
            yield
        except (self._wasmtime.WasmtimeError, self._wasmtime.Trap) as error:
            raise PluginError(f"plugin {self._name} was stopped: {self._described(error)}") from error

    def _instance(self, fuel: int) -> tuple[Any, Any]:
        store = self._wasmtime.Store(self._engine)
        store.set_limits(memory_size=MEMORY_BYTES_MAX, table_elements=10_000, instances=2, tables=4, memories=2)
        store.set_fuel(fuel)
        with self._trapped():
            return store, self._wasmtime.Instance(store, self._module, [])

    def _described(self, error: Exception) -> str:
        """Describe the error: for a trap only its cause, not the backtrace."""
        code = getattr(error, "trap_code", None)
        if code is not None:
            return f"trap {code.name}"
        return str(error).strip().partition("\n")[0]

    def _compiled(self, path: Path) -> Any:
        try:
            source = path.read_bytes()
        except OSError as error:
            raise PluginError(
                f"plugin {self._name}: {path} cannot be read: {error.strerror}; give the path of a .wasm or .wat file"
            ) from error
        if len(source) > SOURCE_BYTES_MAX:
            raise PluginError(f"plugin {self._name}: {path} has {counted(len(source), 'byte')}; at most {SOURCE_BYTES_MAX} are allowed")
        try:
            binary = self._wasmtime.wat2wasm(source) if path.suffix == ".wat" else source
            return self._wasmtime.Module(self._engine, binary)
        except self._wasmtime.WasmtimeError as error:
            raise PluginError(f"plugin {self._name}: {path} is not a valid module: {self._described(error)}") from error

    def _checked_hooks(self, path: Path) -> frozenset[str]:
        imported = [f"{entry.module}.{entry.name}" for entry in self._module.imports]
        if imported:
            raise PluginError(
                f"plugin {self._name}: {path} imports {', '.join(imported)}; a plugin may import nothing, so build it without WASI"
            )
        functions = {entry.name: entry.type for entry in self._module.exports if entry.name in PARAMETERS}
        if not functions:
            raise PluginError(f"plugin {self._name}: {path} exports none of {', '.join(PARAMETERS)}")
        f64 = str(self._wasmtime.ValType.f64())
        for hook, found in functions.items():
            is_function = isinstance(found, self._wasmtime.FuncType)
            taken = [str(kind) for kind in found.params] if is_function else []
            given = [str(kind) for kind in found.results] if is_function else []
            if taken != [f64] * PARAMETERS[hook] or given != [f64]:
                raise PluginError(
                    f"plugin {self._name}: {hook} of {path} must take {PARAMETERS[hook]} f64 and give one; see docs/plugins.md"
                )
        return frozenset(functions)


def _config(wasmtime: Any) -> Any:
    config = wasmtime.Config()
    config.consume_fuel = True
    config.wasm_threads = False
    config.cranelift_nan_canonicalization = True  # The same bits on every machine.
    config.max_wasm_stack = 256 * 1024
    config.signals_based_traps = False  # Ray replaces the handler of SIGILL when it connects, and would end the process at a trap.
    return config


def _numbers(demand: NodeDemand, view: NodeScoringView) -> FloatArray:
    """Return the arguments of `score`, a row per node [n, 12]."""
    names = ("cpu", "gpu", "memory")
    nodes = [_wholes(view.resources, table, name) for name in names for table in (view.free, view.total)]
    wanted = [_wholes(view.resources, demand.wanted, name) for name in names]
    numbers = np.empty((len(view.total), PARAMETERS["score"]), dtype="<f8")
    for place, values in enumerate((*nodes, *wanted, view.busy, view.of_job, view.local_bytes)):
        numbers[:, place] = values
    return numbers


def _wholes(resources: tuple[str, ...], units: IntArray, name: str) -> Any:
    """Return the resource's column, in CPUs, GPUs or bytes; 0 if there is none."""
    place = column(resources, name)
    if place is None:
        return 0.0
    return units[..., place] / (1 if name == "memory" else UNITS_PER_WHOLE)


def _amounts(resources: ResourceSet) -> tuple[float, float, float]:
    return resources["cpu"] / UNITS_PER_WHOLE, resources["gpu"] / UNITS_PER_WHOLE, float(resources["memory"])


def _seconds(ms: int | None) -> float:
    return _UNKNOWN if ms is None else ms / 1000.0
