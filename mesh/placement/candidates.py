"""Scores of all nodes for one shape, updated incrementally.

A shape is what makes two tasks alike for placement: resources, labels, policy and policy parameters. Scoring 10,000 nodes per task would
cost more than the rest of the scheduler, and one placement changes one row. So scores are cached per shape. Only rows that the node table
touched since the last use are scored again. Everything is scored again when nodes join or leave.

Many copies of one shape are picked one after another as well (`picks`), and each changes one row. Scoring one row costs as much as scoring
dozens. So the scores that the best rows will have with their next copies are computed together, ahead of the picks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mesh.core.ids import JobId, NodeName
from mesh.core.labels import matches
from mesh.core.node_instances import is_possible
from mesh.core.nodes import NodeTable, Units
from mesh.core.resources import ResourceSet
from mesh.placement.feasibility import label_rows
from mesh.policies.fragmentation import CommonShapes
from mesh.policies.policy import BoolArray, Draw, FloatArray, IntArray, NodeDemand, NodeScoringView, PlacementRefused, Policy

#: Above this share of touched rows, one vectorised sweep over all rows is cheaper.
_SWEEP_SHARE = 0.25
#: Up to this many rows are tested one by one first: most touched rows are full and need no score.
_SINGLY_MAX = 8
#: Number of further copies on a row whose scores are computed together.
_AHEAD = 8
#: Least and greatest number of rows whose next scores are computed together.
_ROWS_AHEAD_MIN, _ROWS_AHEAD_MAX = 8, 512
_ZEROS: IntArray = np.zeros(1_024, dtype=np.int64)
_NOWHERE: BoolArray = np.zeros(1_024, dtype=bool)


class Candidates:
    """Scores of every row for one shape; -inf where the shape does not fit now."""

    def __init__(
        self,
        table: NodeTable,
        wanted: ResourceSet,
        selector: Mapping[str, str],
        policy: Policy,
        demand: NodeDemand,
        *,
        named: NodeName | None = None,
        local_bytes: Mapping[NodeName, int] | None = None,
        job: JobId | None = None,
        job_counts: Mapping[JobId, Mapping[NodeName, int]] | None = None,
    ) -> None:
        self.wanted = wanted
        self.vector: Units = table.vector(wanted)
        self._table = table
        self._selector = selector
        self._policy = policy
        self._asked = demand  #: As requested.
        self._demand = demand  #: As the policy resolved it for the current nodes.
        self._refused: PlacementRefused | None = None
        self._named = named
        self._local_bytes = local_bytes or {}
        self._job = job
        self._job_counts = job_counts or {}
        self._scores: FloatArray = np.zeros(0)
        self._labelled: BoolArray = np.zeros(0, dtype=bool)
        self._all_labelled = False
        self._is_stale = False  #: All scores must be recomputed for the same rows.
        self._version = 0  #: Version of the policy for which the scores are valid.
        self._needs: list[tuple[int, int]] = []  #: Column and amount of each wanted resource.
        self._instance_needs: tuple[tuple[int, int], ...] = ()  #: Those of them that are counted by instance, as GPUs are.
        self._in_parts: set[int] = set()  #: Rows with enough in sum, but in parts of several instances.
        self._seen = 0  #: Length of the table's log of touched rows that is already applied.
        self._shape_version = self._totals = -1
        self._feasible: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._feasible_at = (-1, -1)  #: Table versions for which `_feasible` is valid.

    def pick(self, draw: Draw, *, only: Collection[int] | None = None, without: Collection[int] = ()) -> int | None:
        """Return the row to use, within `only` and outside `without`; None when the shape fits nowhere now."""
        self._refresh()
        scores = self._scores
        if only is not None or without:
            scores = scores.copy() if only is None else np.full_like(scores, -np.inf)
            for row in only or ():
                scores[row] = self._scores[row]
            scores[list(without)] = -np.inf
        return self._policy.pick(scores, self._demand, draw)

    @property
    def are_static(self) -> bool:
        """Whether scores follow from sums alone: no copy takes instances, and no other score takes over from a failed plugin."""
        self._refresh()
        return not self._instance_needs and self._policy.version is None

    def picks(self, draw: Draw, most: int) -> list[int]:
        """Return the rows of up to `most` picks, each made as if the rows before it were promised; fewer when there is no room.

        Same result as `pick` and `NodeTable.promise` in turn, for work without a job, while they `are_static`. The table stays as it is.
        """
        self._refresh()
        if most == 1:
            row = self._policy.pick(self._scores, self._demand, draw)
            return [] if row is None else [row]
        scores, rows = self._scores.copy(), list[int]()
        taken = np.zeros(len(scores), dtype=np.int64)
        coming: dict[int, list[float]] = {}  # Next scores of a row, the last first; never empty.
        while len(rows) < most and (row := self._policy.pick(scores, self._demand, draw)) is not None:
            rows.append(row)
            if row not in coming:
                self._look_ahead(row, scores, taken, coming, most - len(rows))
            following = coming[row]
            scores[row] = following.pop()
            taken[row] += 1
            if not following:
                del coming[row]
        return rows

    def _look_ahead(self, row: int, scores: FloatArray, taken: IntArray, coming: dict[int, list[float]], left: int) -> None:
        """Compute the scores of the row with its next copies, and those of the best rows of which none are known.

        Args:
            taken: Copies that each row has got so far [n].
            coming: Known scores; gets those that are computed.
            left: Number of picks for which scores are wanted.
        """
        depth = max(1, min(_AHEAD, left))
        unknown = -scores
        unknown[[row, *coming]] = np.inf
        best = unknown.argsort(kind="stable")[: min(max(left // depth, _ROWS_AHEAD_MIN), _ROWS_AHEAD_MAX)]
        rows = np.concatenate(([row], best[unknown[best] < np.inf]))
        repeated = np.repeat(rows, depth)
        ahead: IntArray = (taken[rows][:, np.newaxis] + np.arange(1, depth + 1)).ravel()
        more = ahead[:, np.newaxis] * self.vector
        free: IntArray = np.maximum(self._table.left.take(repeated, 0) - more, 0)
        fits = np.logical_and.reduce(free >= self.vector, axis=1)
        following = np.full(len(repeated), -np.inf)
        if np.count_nonzero(fits):
            view = self._view(repeated, free)
            scored = self._policy.score(self._demand, replace(view, busy=view.busy + ahead, load=view.load + more))
            following = np.where(fits, scored, -np.inf)
        coming.update(zip(rows.tolist(), following.reshape(len(rows), depth)[:, ::-1].tolist(), strict=True))

    def refused(self) -> PlacementRefused | None:
        """Return why no node can ever satisfy an explicit wish (`node_affinity`), or None."""
        self._refresh()
        return self._refused

    def know(self, common: CommonShapes | None) -> None:
        """Use a new census of common shapes; scores are recomputed if the policy depends on it."""
        self._asked = replace(self._asked, common=common)
        self._is_stale = self._is_stale or self._policy.sees_common

    def scores(self) -> FloatArray:
        """Return one up-to-date score per row."""
        self._refresh()
        return self._scores

    def in_parts(self) -> tuple[str, int, int] | None:
        """Return the resource that some node has enough of in sum, but only in parts of several instances; None: no node has.

        It is about the nodes as the last `pick`, `scores` or `feasible_rows` saw them.

        Returns:
            Its name, the amount that one run asks for, and how many instances are free in part on those nodes.
        """
        if not self._in_parts:
            return None
        table, rows = self._table, sorted(self._in_parts)
        for column, units in self._instance_needs:
            short = [row for row in rows if not table.has_instances(row, ((column, units),))]
            if short:
                return table.resources[column], units, table.partly_free(short, column)
        return None

    def fit(self) -> bool:
        """Return whether a row has room for the shape now. A row with a change is looked at first, which spares its score."""
        is_known = self._shape_version == self._table.shape_version and self._policy.version is None
        touched = self._table.touched[self._seen :] if is_known else []
        if len(touched) <= _SINGLY_MAX and any(map(self._fits_on, touched)):
            return True
        self._refresh()
        return bool(self._scores.size) and bool(self._scores.max() > -np.inf)

    def feasible_rows(self) -> NDArray[np.intp]:
        """Return the rows with matching labels that could hold the shape when empty."""
        self._refresh()
        totals = self._table.totals_version
        if self._feasible_at != (self._shape_version, totals):
            total = self._table.total[: len(self._labelled)]
            is_possible_anywhere = all(is_possible(units) for _, units in self._instance_needs)
            self._feasible = np.flatnonzero(self._labelled & (total >= self.vector).all(axis=1) & is_possible_anywhere)
            self._feasible_at = (self._shape_version, totals)
        return self._feasible

    def _refresh(self) -> None:
        self._refresh_rows()
        version = self._policy.version
        while version is not None and version() != self._version:  # Some scores are of a plugin that is fenced off by now.
            self._version = version()
            self._score_all()

    def _refresh_rows(self) -> None:
        table = self._table
        if self._shape_version != table.shape_version:
            self._start_again()
        elif self._is_stale or (self._policy.settle is not None and self._totals != table.totals_version):
            self._score_all()
        elif self._seen != len(table.touched):
            self._look_again(table.touched[self._seen :])
            self._seen = len(table.touched)

    def _look_again(self, touched: list[int]) -> None:
        rows = list(set(touched))
        if len(rows) > _SWEEP_SHARE * len(self._scores):
            self._score(slice(0, len(self._scores)))
        elif len(rows) > _SINGLY_MAX:
            self._score(np.array(rows, dtype=np.intp))
        else:
            self._score_singly(rows)

    def _score_singly(self, rows: list[int]) -> None:
        fitting = []
        if self._in_parts:
            self._in_parts.difference_update(rows)
        for row in rows:
            if self._fits_on(row):
                fitting.append(row)
            else:
                self._scores[row] = -np.inf
        if fitting:
            these = np.array(fitting, dtype=np.intp)
            self._scores[these] = self._policy.score(self._demand, self._view(these, self._table.free(these)))

    def _fits_on(self, row: int) -> bool:
        """Test a single row without building arrays."""
        left: list[int] = self._table.left[row].tolist()
        for column, amount in self._needs:
            if left[column] < amount:
                return False
        if self._instance_needs and not self._table.has_instances(row, self._instance_needs):
            if self._labelled[row]:
                self._in_parts.add(row)
            return False
        return bool(self._labelled[row])

    def _start_again(self) -> None:
        table = self._table
        self.vector = table.vector(self.wanted)  # First: the call may add a column.
        self._needs = [(column, amount) for column, amount in enumerate(self.vector.tolist()) if amount]
        self._instance_needs = table.instance_needs(self.vector)
        self._labelled = label_rows(table, self._selector)
        self._all_labelled = bool(self._labelled.all())
        self._scores = np.full(len(table.names), -np.inf)
        self._shape_version = table.shape_version
        self._score_all()

    def _score_all(self) -> None:
        table = self._table
        self._settle(replace(self._asked, wanted=self.vector))
        self._seen, self._totals, self._is_stale = len(table.touched), table.totals_version, False
        self._score(slice(0, len(self._scores)))

    def _settle(self, asked: NodeDemand) -> None:
        """Let the policy resolve the demand for the current nodes."""
        self._demand, self._refused = asked, None
        if self._policy.settle is None:
            return
        table, node = self._table, self._named
        there = node is not None and node in table and matches(self._selector, table.labels[table.row(node)])
        settled = self._policy.settle(asked, table.total[table.row(node)] if there and node is not None else None)
        if isinstance(settled, PlacementRefused):
            self._refused = settled
        else:
            self._demand = settled

    def _score(self, rows: NDArray[np.intp] | slice) -> None:
        free = self._table.free(rows)
        fits = np.logical_and.reduce(free >= self.vector, axis=1)
        if not self._all_labelled:
            fits &= self._labelled[rows]
        if self._instance_needs:
            whole = self._table.instances_fit(self._instance_needs, rows)
            self._note_in_parts(rows, fits & ~whole)
            fits &= whole
        if not np.count_nonzero(fits):
            self._scores[rows] = -np.inf
            return
        if isinstance(rows, slice):
            self._scores = self._scores_of_all(free, fits)
        else:
            self._scores[rows] = np.where(fits, self._policy.score(self._demand, self._view(rows, free)), -np.inf)

    def _scores_of_all(self, free: IntArray, fits: BoolArray) -> FloatArray:
        """Return the scores of all rows. Of alike rows in sequence, as idle nodes mostly are, only the first is scored."""
        is_first, table, count = fits.copy(), self._table, len(fits)
        # With data, a job or a named node, rows differ in more than amounts; a plugin scores each row.
        if not (self._local_bytes or self._job or self._named or self._policy.version):
            columns = (*free.T, *table.total[:count].T, *table.load[:count].T, table.busy[:count])
            is_new = ~fits[:-1]
            for amounts in columns:
                is_new |= amounts[1:] != amounts[:-1]
            is_first[1:] &= is_new
        rows = np.flatnonzero(is_first)
        scores = self._policy.score(self._demand, self._view(rows, free[rows]))
        return np.where(fits, scores[np.cumsum(is_first) - 1], -np.inf)

    def _note_in_parts(self, rows: NDArray[np.intp] | slice, are_in_parts: BoolArray) -> None:
        """Keep the rows with enough in sum only. A slice is all rows."""
        if isinstance(rows, slice):
            self._in_parts = set(np.flatnonzero(are_in_parts).tolist())
        else:
            self._in_parts.difference_update(rows.tolist())
            self._in_parts.update(rows[are_in_parts].tolist())

    def _view(self, rows: NDArray[np.intp] | slice, free: IntArray) -> NodeScoringView:
        table, count = self._table, len(free)
        job = self._job_counts.get(self._job, {}) if self._job is not None else {}
        return NodeScoringView(
            resources=table.resources,
            total=table.total[rows] if isinstance(rows, slice) else table.total.take(rows, 0),
            free=free,
            busy=table.busy[rows],
            load=table.load[rows] if isinstance(rows, slice) else table.load.take(rows, 0),
            local_bytes=self._per_node(self._local_bytes, rows, count) if self._local_bytes else _zeros(count),
            of_job=self._per_node(job, rows, count) if job else _zeros(count),
            is_named=self._per_node({self._named: 1}, rows, count).astype(bool) if self._named is not None else _nowhere(count),
        )

    def _per_node(self, amounts: Mapping[NodeName, int], rows: NDArray[np.intp] | slice, count: int) -> IntArray:
        values = np.zeros(count, dtype=np.int64)
        places = {row: place for place, row in enumerate(range(count) if isinstance(rows, slice) else rows.tolist())}
        for node, amount in amounts.items():
            if node in self._table and (row := self._table.row(node)) in places:
                values[places[row]] = amount
        return values


def _zeros(count: int) -> IntArray:
    """Return a shared array of zeros, since most views know no such amounts."""
    return _ZEROS[:count] if count <= len(_ZEROS) else np.zeros(count, dtype=np.int64)


def _nowhere(count: int) -> BoolArray:
    return _NOWHERE[:count] if count <= len(_NOWHERE) else np.zeros(count, dtype=bool)
