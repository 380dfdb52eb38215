"""Working copy of the nodes and pools for one round of the job scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mesh.core.ids import JobId, NodeName, PoolName
from mesh.core.labels import matches
from mesh.core.node_instances import UNIT_INSTANCE_RESOURCES
from mesh.core.nodes import NodeTable, Units
from mesh.core.resources import NOTHING, UNITS_PER_WHOLE, ResourceSet
from mesh.policies.policy import BoolArray, IntArray, NodeScoringView


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRoom:
    """Capacity of a pool, and its free part."""

    capacity: ResourceSet
    free: ResourceSet
    selector: Mapping[str, str] = field(default_factory=dict)  #: Required labels of its nodes.


class Room:
    """Nodes as rows, resources as columns, in units. A copy: changes do not affect the mesh."""

    def __init__(self, table: NodeTable, wanted: Iterable[ResourceSet], pools: Mapping[PoolName, PoolRoom] | None) -> None:
        rows = np.array([row for row, name in enumerate(table.names) if name is not None], dtype=np.intp)
        self.names: tuple[NodeName, ...] = tuple(table.name(int(row)) for row in rows)
        self.rows: dict[NodeName, int] = {name: row for row, name in enumerate(self.names)}
        more = dict.fromkeys(name for amounts in wanted for name in amounts if name not in table.resources)
        self.resources = (*table.resources, *more)
        self._columns = {name: column for column, name in enumerate(self.resources)}
        self._labels = [table.labels[row] for row in rows]
        self._masks: dict[tuple[tuple[str, str], ...], BoolArray] = {}
        self.total = self._wide(table.total[rows], len(more))
        self.free = self._wide(table.free(rows), len(more))
        self._whole = self._wide(table.whole_free[rows], len(more))  #: Units on entirely free instances.
        self._units = [column for column, name in enumerate(self.resources) if name in UNIT_INSTANCE_RESOURCES]
        self._load = self._wide(table.load[rows], len(more))
        self._busy: IntArray = table.busy[rows].copy()
        self._of_job: dict[JobId, IntArray] = {}
        self._pools = pools
        self._pool_free = {name: self.vector(pool.free) for name, pool in (pools or {}).items()}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def capacity(self) -> ResourceSet:
        """Sum over all nodes."""
        sums = self.total.sum(axis=0)
        return ResourceSet({name: int(sums[column]) for name, column in self._columns.items()})

    def vector(self, amounts: ResourceSet) -> Units:
        """Return the amounts in these columns; unknown resources are omitted."""
        vector = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in amounts.items():
            if name in self._columns:
                vector[self._columns[name]] = amount
        return vector

    def amounts(self, vector: Units) -> ResourceSet:
        """Return the amounts of a vector; the inverse of `vector`."""
        return ResourceSet({name: int(vector[column]) for name, column in self._columns.items() if vector[column] > 0})

    def knows(self, pool: PoolName) -> bool:
        """Return whether the pool exists; without pools, every name does, without limit."""
        return self._pools is None or pool in self._pools

    def pool_free(self, pool: PoolName) -> Units | None:
        """Return the free part of the pool; None: unlimited."""
        return self._pool_free.get(pool)

    def pool_capacity(self, pool: PoolName) -> Units | None:
        """Return the pool's capacity; None: unlimited."""
        return None if self._pools is None else self.vector(self._pools[pool].capacity if pool in self._pools else NOTHING)

    def suits(self, pool: PoolName, selector: Mapping[str, str]) -> BoolArray:
        """Return the mask of nodes with the labels that the pool and the selector require [n]."""
        of_pool = self._pools[pool].selector if self._pools is not None and pool in self._pools else {}
        both: BoolArray = self._mask(of_pool) & self._mask(selector)
        return both

    def view(self, job: JobId) -> NodeScoringView:
        """Return the nodes as policies see them while placing members of `job`."""
        count = len(self.names)
        return NodeScoringView(
            resources=self.resources,
            total=self.total,
            free=self.free,
            busy=self._busy,
            load=self._load,
            local_bytes=np.zeros(count, dtype=np.int64),
            of_job=self._of_job.setdefault(job, np.zeros(count, dtype=np.int64)),
            is_named=np.zeros(count, dtype=np.bool_),
        )

    def fits(self, pool: PoolName, suits: BoolArray, wanted: Units) -> BoolArray:
        """Return the mask of nodes where `wanted` is free now [n]; empty when the pool has too little."""
        left = self._pool_free.get(pool)
        if left is not None and (left < wanted).any():
            return np.zeros(len(self.names), dtype=np.bool_)
        fitting: BoolArray = suits & (self.free_for(wanted) >= wanted).all(axis=1)
        return fitting

    def free_for(self, *demands: Units) -> Units:
        """Return the free amounts that members of these sizes can use [n, r]: GPUs that are free in part are no use for a whole one."""
        columns = [column for column in self._units if any(wanted[column] >= UNITS_PER_WHOLE for wanted in demands)]
        free: Units = self.free
        if not columns:
            return free
        free = free.copy()
        free[:, columns] = np.minimum(free[:, columns], self._whole[:, columns])
        return free

    def occupy(self, job: JobId, row: int) -> None:
        """Count a member of the job that the node table already includes."""
        self._of_job.setdefault(job, np.zeros(len(self.names), dtype=np.int64))[row] += 1

    def take(self, job: JobId, pool: PoolName, row: int, wanted: Units) -> None:
        """Reserve capacity for a member of the job; free amounts may become negative."""
        self._change(job, pool, row, wanted, 1)

    def give_back(self, job: JobId, pool: PoolName, row: int, wanted: Units) -> None:
        """Undo `take`."""
        self._change(job, pool, row, wanted, -1)

    def _change(self, job: JobId, pool: PoolName, row: int, wanted: Units, sign: int) -> None:
        self.free[row] -= sign * wanted
        for column in self._units:
            self._whole[row, column] -= sign * (wanted[column] if wanted[column] >= UNITS_PER_WHOLE else 0)
        self._load[row] += sign * wanted
        self._busy[row] += sign
        self._of_job.setdefault(job, np.zeros(len(self.names), dtype=np.int64))[row] += sign
        if pool in self._pool_free:
            self._pool_free[pool] -= sign * wanted

    def close_accounts(self) -> None:
        """Set negative free amounts to zero, once all known members have been charged."""
        np.maximum(self.free, 0, out=self.free)
        for left in self._pool_free.values():
            np.maximum(left, 0, out=left)

    @staticmethod
    def _wide(part: Units, more: int) -> Units:
        return np.pad(part, ((0, 0), (0, more)))

    def _mask(self, selector: Mapping[str, str]) -> BoolArray:
        key = tuple(sorted(selector.items()))
        if key not in self._masks:
            self._masks[key] = np.array([matches(selector, labels) for labels in self._labels], dtype=np.bool_)
        return self._masks[key]
