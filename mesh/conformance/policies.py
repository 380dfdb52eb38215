"""The kinds `policy`, `gang` and `fragmentation`: the node of a demand, the nodes of a gang, and the fragmentation index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mesh.conformance.fields import CaseError, Fields
from mesh.core.ids import NodeName
from mesh.core.labels import mismatch
from mesh.core.nodes import NodeTable
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet
from mesh.core.task_spec import Weights
from mesh.policies.catalogue import node_policy
from mesh.policies.fragmentation import fragmentation
from mesh.policies.gang import place_all
from mesh.policies.policy import BoolArray, FloatArray, IntArray, NodeDemand, NodeScoringView, PlacementRefused, Policy

#: Limit on the sequences of draws tried to find all reachable nodes.
_WAYS_MAX = 10_000
_OPTIONS = ("role", "soft", "is_urgent", "top_k_fraction", "top_k_absolute", "spread_threshold")


class _MoreDraws(Exception):
    """Signals that the policy draws once more than the script provides, for a number below `args[0]`."""


class _Case:
    """The values of `given`, as arrays."""

    def __init__(self, written: Any) -> None:
        with Fields(written, "given") as given:
            nodes, policy = given.take("nodes"), given.take("policy")
            demands = [given.take("demand")] if "demand" in written else given.take("demands")
            self.selector: Mapping[str, str] = given.take("selector", {})
            self.named: str | None = given.take("named", None)
            self.strategy: str = given.take("strategy", "")
            self.times: int = given.take("times", 1)
            weights = Weights(**given.take("weights", {}))
            options = {name: given.take(name) for name in _OPTIONS if name in written}
        self.policy: Policy = node_policy(policy)
        self.names = tuple(nodes)
        self._table = NodeTable()
        wanted = [ResourceSet.of(demand) for demand in demands]
        self.view = self._read_nodes(nodes, wanted)
        named = self.named is not None
        self.demands = [
            NodeDemand(wanted=self._table.vector(amounts), weights=weights, names_node=named, **options)  # All columns exist now.
            for amounts in wanted
        ]

    def _read_nodes(self, nodes: Mapping[str, Any], wanted: Sequence[ResourceSet]) -> NodeScoringView:
        free, counts = [], []
        labels = {}
        for name, node in nodes.items():
            with Fields(node, f"node {name}") as fields:
                total = ResourceSet.of(fields.take("total"))
                labels[name] = fields.take("labels", {})
                free.append(ResourceSet.of(fields.take("free")) if "free" in node else total)
                counts.append([fields.take(count, 0) for count in ("busy", "of_job", "local_bytes")])
            self._table.join(NodeName(name), total, labels[name])
        for amounts in (*free, *wanted):
            self._table.vector(amounts)
        rows = len(nodes)
        busy, of_job, local_bytes = np.array(counts, dtype=np.int64).reshape(rows, 3).T.copy()
        self.labelled: BoolArray = np.array([mismatch(self.selector, labels[name]) is None for name in self.names], dtype=bool)
        return NodeScoringView(
            resources=self._table.resources,
            total=self._table.total[:rows].copy(),
            free=np.array([self._table.vector(amounts) for amounts in free], dtype=np.int64).reshape(rows, -1),
            busy=busy,
            load=np.zeros((rows, len(self._table.resources)), dtype=np.int64),
            local_bytes=local_bytes,
            of_job=of_job,
            is_named=np.array([name == self.named for name in self.names], dtype=bool),
        )

    def settled(self) -> NodeDemand | PlacementRefused:
        """Return the demand resolved by the policy for the named node."""
        demand = self.demands[0]
        if self.policy.settle is None:
            return demand
        return self.policy.settle(demand, self._named_total())

    def scores(self, demand: NodeDemand) -> FloatArray:
        """Return the scores of all nodes; -inf where the demand does not fit now."""
        fits = (self.view.free >= demand.wanted).all(axis=1) & self.labelled
        return np.where(fits, self.policy.score(demand, self.view), -np.inf)

    def place(self, row: int, demand: NodeDemand) -> None:
        """Place the demand on the row."""
        self.view.free[row] -= demand.wanted
        self.view.busy[row] += 1
        self.view.of_job[row] += 1

    def _named_total(self) -> IntArray | None:
        if self.named not in self.names or not self.labelled[self.names.index(self.named)]:
            return None
        total: IntArray = self.view.total[self.names.index(self.named)]
        return total


def run_policy(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the nodes that any draws can reach, and those of `times` placements when every draw is 0."""
    read = _Case(case["given"])
    demand = read.settled()
    if isinstance(demand, PlacementRefused):
        return {"node": None, "nodes": [], "reachable": [], "refused": demand.reason.value}
    reachable = sorted({read.names[row] for row in _ends(read, demand)})
    rows: list[int | None] = []
    for _ in range(read.times):
        row = read.policy.pick(read.scores(demand), demand, lambda _: 0)
        rows.append(row)
        if row is not None:
            read.place(row, demand)
    nodes = [None if row is None else read.names[row] for row in rows]
    return {"node": nodes[0], "nodes": nodes, "reachable": reachable, "refused": None if reachable else _refusal(read, demand).value}


def run_gang(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a node for each demand, or null."""
    read = _Case(case["given"])
    free = np.where(read.labelled[:, np.newaxis], read.view.free, 0)
    view = NodeScoringView(**{name: getattr(read.view, name) for name in NodeScoringView.__slots__ if name != "free"}, free=free)
    rows = place_all(read.demands, view, read.policy, lambda _: 0, strategy=read.strategy)
    return {"nodes": None if rows is None else [read.names[row] for row in rows]}


def run_fragmentation(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the index, to six decimal places."""
    with Fields(case["given"], "given") as given:
        free, shapes, weights = given.take("free"), given.take("shapes"), given.take("weights", None)
    return {"index": round(fragmentation(free, shapes, weights), 6)}


def _refusal(read: _Case, demand: NodeDemand) -> Reason:
    feasible = (read.view.total >= demand.wanted).all(axis=1) & read.labelled
    return Reason.NODES_BUSY if feasible.any() else Reason.NO_NODE_FITS


def _ends(read: _Case, demand: NodeDemand) -> Iterator[int]:
    """Yield the row of each sequence of draws."""
    scores = read.scores(demand)
    scripts: list[tuple[int, ...]] = [()]
    tried = 0
    while scripts:
        script = scripts.pop()
        tried += 1
        if tried > _WAYS_MAX:
            raise CaseError(f"there are more than {_WAYS_MAX} sequences of draws; write a smaller case")
        drawn = iter(script)

        def draw(count: int, drawn: Iterator[int] = drawn) -> int:
            number = next(drawn, None)
            if number is None:
                raise _MoreDraws(count)
            return number

        try:
            row = read.policy.pick(scores, demand, draw)
        except _MoreDraws as more:
            scripts += [(*script, number) for number in range(more.args[0])]
            continue
        if row is not None:
            yield row
