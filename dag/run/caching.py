"""Nodes whose values are cached: which of them to look up, and what an answer of the cache means.

A cached node gets no stage until the cache was asked about it, which needs the hashes of the values that it reads. So these values are
stored, and the node is in no stage with the nodes that it reads. A HIT ends the node at once. A node with a claim runs like any other,
through all its retries; its end gives the value to the cache, or the claim back. A node whose value another one computes waits for that.

A value that a hit brought and that was lost since is not taken from the cache again: its kept bytes may be damaged.

Source: ADR 0065.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dag.run.control import ControlFlow
from dag.run.events import CacheAnswer, CacheAnswered
from dag.run.node_facts import CacheState, CacheUse, TimerKind
from dag.run.node_table import NodeRecord
from dag.run.run_status import RunStatus
from dag.run.runs import KeepCached, ReleaseCached
from dag.run.state_writer import Deliveries, StateWriter
from dag.run.states import NODE_ENDS, RUN_ENDS, NodeState, RunState
from dag.run.timers import Timers
from dag.spec.cache_keys import key_of
from dag.spec.plans import Plans
from mesh.core.ids import NodeId
from mesh.core.reasons import Reason

_UNPLACED = (NodeState.WAITING, NodeState.BLOCKED)
#: States of a lookup after which a node runs.
_RUNS = (CacheState.CLAIMED, CacheState.OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Question to the cache about a node that could start."""

    key: str  #: Empty: the node has no key, because a value that it reads is not stored.
    is_fresh: bool = False  #: A value that the cache has already is damaged, and must not be taken.
    detail: str = ""  #: Why there is no key.


class Caching:
    def __init__(
        self,
        run_status: RunStatus,
        writer: StateWriter,
        deliveries: Deliveries,
        timers: Timers,
        control: ControlFlow,
        runtime_env: dict[str, object],
    ) -> None:
        self._run_status = run_status
        self._record = run_status.record
        self._writer = writer
        self._deliveries = deliveries
        self._timers = timers
        self._control = control
        self._runtime_env = runtime_env
        plans = run_status.plans
        self._digests: Mapping[str, str] = plans.digests if isinstance(plans, Plans) else {}
        nodes = self._record.nodes
        self._claimed = {node for node in run_status.cached if _state_of(nodes[node]) is CacheState.CLAIMED}

    def held(self) -> set[NodeId]:
        """Return the nodes that no mesh may get yet; their followers are to be held too."""
        states = self._record.nodes
        return {node for node in self._run_status.cached if states[node].state in _UNPLACED and _state_of(states[node]) not in _RUNS}

    def lookups(self, *, again: bool) -> dict[NodeId, Lookup]:
        """Return what to ask the cache.

        Args:
            again: Also about the nodes that wait for the value of another one.
        """
        if not self._run_status.cached or self._record.state in RUN_ENDS:
            return {}
        is_stopping, asked = self._run_status.is_winding_down(), {}
        held: set[NodeId] | None = None
        for node in self._run_status.cached:
            kept = self._record.nodes[node]
            state = _state_of(kept)
            if kept.state not in _UNPLACED or kept.stage is not None or state in _RUNS or (state is CacheState.IN_FLIGHT and not again):
                continue
            if (is_stopping and not self._run_status.survives(node)) or not self._run_status.is_ready(node):
                continue
            held = self._control.held() if held is None else held
            if node not in held:
                asked[node] = self._lookup(kept)
        return asked

    def _lookup(self, kept: NodeRecord) -> Lookup:
        plan, nodes = self._run_status.plans[kept.node], self._record.nodes
        values = {need: value.sha256 for need in plan.task.inputs if (value := nodes[need].stored) is not None}
        missing = next((need for need in plan.task.inputs if need not in values), None)
        if missing is not None:
            return Lookup(key="", detail=f"not cached: the value of {missing} is not stored")
        rule = self._run_status.cached[kept.node]
        key = key_of(plan.task, rule, values=values, digests=self._digests, runtime_env=self._runtime_env)
        return Lookup(key=key, is_fresh=_state_of(kept) is CacheState.HIT)

    def changes_node(self, node: NodeId, answer: CacheAnswer) -> bool:
        """Return whether the answer differs from what the record has."""
        kept = self._record.nodes[node]
        return (kept.cache, kept.detail) != (CacheUse(state=answer.state, key=answer.key), answer.detail)

    def take(self, event: CacheAnswered) -> None:
        """Apply answers of the cache."""
        for node, answer in event.answers.items():
            kept = self._record.nodes[node]
            if kept.state not in _UNPLACED or kept.stage is not None:
                if answer.state is CacheState.CLAIMED and node not in self._claimed:
                    self._writer.decide(ReleaseCached(key=answer.key, node=node))
                continue
            if self._record.state is RunState.PENDING:
                self._writer.run(RunState.RUNNING)
            waited = _state_of(kept) is CacheState.IN_FLIGHT
            kept.cache = CacheUse(state=answer.state, key=answer.key)
            if answer.state is CacheState.HIT:
                self._hit(kept, answer)
            elif answer.state is CacheState.IN_FLIGHT:
                kept.detail = answer.detail
                self._writer.node(kept, NodeState.WAITING, Reason.CACHE_IN_FLIGHT, answer.detail)
            else:
                self._let_run(kept, answer, waited=waited)

    def _hit(self, kept: NodeRecord, answer: CacheAnswer) -> None:
        now_ms = self._writer.now_ms
        kept.stored, kept.exported, kept.detail = answer.value, True, answer.detail
        kept.started_ms = kept.finished_ms = now_ms
        kept.waits_since_ms = 0
        self._timers.drop(kept, *TimerKind)
        self._writer.node(kept, NodeState.SUCCEEDED, Reason.CACHE_HIT, answer.detail)
        for stage in self._run_status.waiting_stages(kept.node):
            self._deliveries.deliver(stage, kept)

    def _let_run(self, kept: NodeRecord, answer: CacheAnswer, *, waited: bool) -> None:
        if answer.state is CacheState.CLAIMED:
            self._claimed.add(kept.node)
        if waited or answer.detail:
            kept.reason, kept.detail = None, ""
            before = kept.state.value
            self._writer.note("node", node=kept, before=before, after=before, reason=None, detail=answer.detail)

    def waiting(self) -> list[NodeRecord]:
        """Return the nodes that wait for the value of another one."""
        return [kept for kept in map(self._record.nodes.__getitem__, self._run_status.cached) if kept.reason is Reason.CACHE_IN_FLIGHT]

    def settle(self) -> None:
        """Give the values of nodes that have ended to the cache, or their claims back. Before the run ends, which deletes its files."""
        for node in sorted(self._claimed):
            kept = self._record.nodes[node]
            use = kept.cache
            if kept.state not in NODE_ENDS or use is None:
                continue
            self._claimed.discard(node)
            if kept.state is NodeState.SUCCEEDED and kept.stored is not None:
                self._writer.decide(
                    KeepCached(
                        key=use.key,
                        node=node,
                        value=kept.stored,
                        ttl_ms=self._run_status.cached[node].ttl_ms,
                        took_ms=max(0, kept.finished_ms - kept.started_ms),
                    )
                )
                kept.cache = CacheUse(state=CacheState.KEPT, key=use.key)
            else:
                self._writer.decide(ReleaseCached(key=use.key, node=node))
                kept.cache = None


def _state_of(kept: NodeRecord) -> CacheState | None:
    return kept.cache.state if kept.cache is not None else None
