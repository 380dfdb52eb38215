"""Progress of a run, from its record. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from dag.progress.groups import GROUPS_MAX, failed_first, groups_of
from dag.run.array_states import ArrayCounts
from dag.run.runs import RunRecord
from serve_apps.schemas.runs import GroupView
from serve_apps.views.run_graphs import names_of


def group_views(record: RunRecord, arrays: Sequence[ArrayCounts]) -> list[GroupView]:
    """Return the nodes that are named alike, and the arrays: those with failures first."""
    return [
        GroupView(
            name=group.name,
            is_array=group.is_array,
            total=group.total,
            counts={state.value: count for state, count in group.counts.items()},
            part=group.part,
        )
        for group in failed_first(groups_of(record.nodes, names_of(record), arrays), GROUPS_MAX)
    ]
