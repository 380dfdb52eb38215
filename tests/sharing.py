"""Expensive resources shared by several test files: started for the first, ended after the last of consecutive files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

#: Files that share a resource, and its fixture: one process runs them one after another, in the order of this table.
SHARED = {
    "tests/acceptance/test_workflow_replay.py": "federation",  # First: run times of other tests change what goes where.
    "tests/acceptance/test_two_clusters.py": "federation",
    "tests/acceptance/test_reparenting.py": "federation",
    "tests/acceptance/test_reclaim.py": "federation",
    "tests/acceptance/test_fairness.py": "federation",
    "tests/acceptance/test_transfers.py": "federation",
    "tests/acceptance/test_array_nodes.py": "federation",
    "tests/acceptance/test_control_flow.py": "federation",
    "tests/acceptance/test_graphs_as_written.py": "federation",
    "tests/acceptance/test_programs.py": "federation",
    "tests/acceptance/test_actor_nodes.py": "federation",
    "tests/acceptance/test_job_nodes.py": "federation",
    "tests/acceptance/test_actor_group_nodes.py": "federation",
    "tests/acceptance/test_schedules.py": "federation",
    "tests/acceptance/test_prometheus.py": "federation",
    "tests/acceptance/test_faults.py": "federation",  # Last: after its restart of Redis nothing is granted for a while.
    "tests/acceptance/test_traces_of_two_meshes.py": "federation",  # It starts another federation.
    "tests/integration/test_http_mesh.py": "http_federation",
    "tests/integration/test_waiting_for_capacity.py": "http_federation",
    "tests/acceptance/test_joined_mesh.py": "http_federation",
    "tests/acceptance/test_node_checkpoints.py": "http_federation",  # Last: it kills the cluster of `lab`.
    "tests/acceptance/test_gangs_on_nodes.py": "three_nodes",
    "tests/acceptance/test_mesh_faults.py": "three_nodes",
    "tests/acceptance/test_mesh_placing.py": "three_nodes",
    "tests/acceptance/test_mesh_preemption.py": "two_nodes",
    "tests/acceptance/test_mesh_start.py": "two_nodes",
    "tests/integration/test_example_rlhf.py": "two_nodes",
    "tests/integration/test_facade.py": "two_nodes",
    "tests/integration/test_jobs_on_ray.py": "two_nodes",
    "tests/integration/test_mesh_docs.py": "two_nodes",
    "tests/integration/test_mesh_observed.py": "two_nodes",
    "tests/integration/test_output_of_dead_workers.py": "two_nodes",
    "tests/integration/test_process_reuse.py": "two_nodes",
    "tests/integration/test_supervisor.py": "two_nodes",
    "tests/integration/test_supervisor_recovery.py": "two_nodes",
    "tests/integration/test_actor_group.py": "ray_cluster",
    "tests/integration/test_agent.py": "ray_cluster",
    "tests/integration/test_agent_client.py": "ray_cluster",
    "tests/integration/test_cluster.py": "ray_cluster",
    "tests/integration/test_detached_actors.py": "ray_cluster",
    "tests/integration/test_entering_clusters.py": "ray_cluster",
    "tests/integration/test_example_jobs.py": "ray_cluster",
    "tests/integration/test_failed_starts.py": "ray_cluster",
    "tests/integration/test_idle_runners.py": "ray_cluster",
    "tests/integration/test_kinds_of_functions.py": "ray_cluster",
    "tests/integration/test_node_output.py": "ray_cluster",
    "tests/integration/test_outside_groups.py": "ray_cluster",
    "tests/integration/test_placement.py": "ray_cluster",
    "tests/integration/test_programs_on_ray.py": "ray_cluster",
    "tests/integration/test_ray_thread.py": "ray_cluster",
    "tests/integration/test_root_serve.py": "ray_cluster",
    "tests/integration/test_runner.py": "ray_cluster",
    "tests/integration/test_runner_checkpoints.py": "ray_cluster",
    "tests/integration/test_serve_config.py": "ray_cluster",
    "tests/integration/test_slots_on_ray.py": "ray_cluster",
    "tests/integration/test_streams.py": "ray_cluster",
    "tests/integration/test_watchdog.py": "ray_cluster",
    "tests/integration/test_workers.py": "ray_cluster",
    "tests/browser/test_changes_and_usage.py": "chromium",
    "tests/browser/test_http_docs.py": "chromium",
    "tests/browser/test_operator_pages.py": "chromium",
    "tests/browser/test_reading_the_page.py": "chromium",
    "tests/browser/test_run_page.py": "chromium",
    "tests/browser/test_runs_page.py": "chromium",
    "tests/browser/test_signing_in.py": "chromium",
}


class Sharing:
    """Open resources, by the name of their fixture."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, Any, ExitStack]] = {}

    def get(self, fixture: str, kind: str, start: Callable[[], AbstractContextManager[T]]) -> T:
        """Return the fixture's open resource; start it, after ending one of another kind."""
        if fixture not in self._open or self._open[fixture][0] != kind:
            self.close(fixture)
            opened = ExitStack()
            self._open[fixture] = (kind, opened.enter_context(start()), opened)
        found: T = self._open[fixture][1]
        return found

    def close(self, fixture: str) -> None:
        """End the fixture's open resource."""
        if fixture in self._open:
            self._open.pop(fixture)[2].close()

    def close_unused(self, item: pytest.Item | None, next_item: pytest.Item | None) -> None:
        """End resources that the next test's file does not share: idling costs the other tests more than a start."""
        file, next_file = (each.nodeid.partition("::")[0] if each is not None else "" for each in (item, next_item))
        if next_file and next_file == file:
            return
        for fixture in [name for name in self._open if name != SHARED.get(next_file)]:
            self.close(fixture)


SHARING = Sharing()
