"""The plugins of one mesh: placement scores, task priorities, and preemption scores.

A hook's time budget is measured by the clock, so a replay of the journal cannot know which call exceeded it. When a hook is
disabled during a decision, a snapshot therefore replaces the journal at once: decisions that used the plugin are never made
again. Replay measures no budget and calls the plugins as before. A hook must give the same answer to the same question; else a
recovered mesh may count a task on another node than the one it runs on. A disabled hook stays disabled as long as the mesh
keeps its folder.

`priority()` needs no such care: it is called once, at submission, and its answer becomes part of the task.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mesh.core.task_spec import TaskRequest
from mesh.plugins import CandidateFacts, PluginFenced, Plugins, TaskFacts
from mesh.policies.catalogue import Catalogue
from mesh.preemption.rules import Candidate, PreemptionRules, remaining_ms, score
from mesh.ray.plugins.plugin_loading import load_plugins
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

NO_SOURCES: Mapping[str, str] = {}
#: Score of a candidate that a plugin vetoes, below every threshold.
_NEVER = float("-inf")


class PluginHost:
    """Loads the plugins of one mesh and passes them to its scheduler.

    Args:
        sources: Plugins, as `load_plugins` takes them; plugins of installed packages are added.
    Raises:
        PluginError: A plugin cannot be loaded.
        UnknownPolicy: A plugin has the name of a built-in policy.
    """

    def __init__(self, sources: Mapping[str, str] = NO_SOURCES) -> None:
        self.is_replaying = False
        self.plugins = Plugins(load_plugins(sources), now_ms=self._now_ms)
        self.catalogue = Catalogue(self.plugins.policies)
        hooks = {hook for some in self.plugins.hooks.values() for hook in some}
        self._orders = "priority" in hooks
        self._scoring: dict[str, Any] = {"scorer": self._score} if "preemption_policy" in hooks else {}

    def scheduler(self, settings: SchedulerSettings, seed: int) -> MeshScheduler:
        """Return a new scheduler with these plugins."""
        return MeshScheduler(settings, seed=seed, catalogue=self.catalogue, **self._scoring)

    def scheduler_from(self, kept: object) -> MeshScheduler:
        """Return the scheduler of a snapshot with these plugins. Raises `JsonCodecError` for an invalid snapshot."""
        return MeshScheduler.from_snapshot(kept, self.catalogue, **self._scoring)

    def prioritised(self, request: TaskRequest) -> TaskRequest:
        """Return the request with the plugin's priority; unchanged when no plugin sets priorities."""
        if not self._orders:
            return request
        facts = TaskFacts(
            task=request.task,
            pool=request.pool,
            label=request.label,
            tenant=request.tenant,
            priority=request.priority,
            resources=request.resources,
            workload_type=request.workload_type,
            role=request.role,
            estimated_ms=request.estimated_ms,
        )
        return replace(request, priority=self.plugins.priority(facts))

    def is_same(self, known: TaskRequest, request: TaskRequest) -> bool:
        """Return whether the request equals an earlier one, whose priority a plugin may have replaced."""
        return known == (replace(request, priority=known.priority) if self._orders else request)

    def begin_replay(self, fenced: Iterable[PluginFenced]) -> None:
        """Restore the disabled hooks of a snapshot. No budget is measured until `end_replay`."""
        self.is_replaying = True
        self.plugins.set_fenced(fenced)

    def end_replay(self) -> None:
        """End the replay; budgets are measured again."""
        self.is_replaying = False

    def take_fenced(self) -> tuple[PluginFenced, ...]:
        """Return the hooks that were disabled since the last call."""
        return self.plugins.take_fenced()

    def _now_ms(self) -> float:
        return 0.0 if self.is_replaying else time.monotonic() * 1000

    def _score(self, candidate: Candidate, priority: float, rules: PreemptionRules, now_ms: int) -> float:
        usual = score(candidate, priority, rules, now_ms)
        if priority <= candidate.priority:
            return usual  # Never a victim, whatever a plugin says; plugins are promised not to see such candidates.
        facts = CandidateFacts(
            task=candidate.task,
            pool=candidate.pool,
            label=candidate.label,
            tenant=candidate.tenant,
            priority=candidate.priority,
            priority_delta=priority - candidate.priority,
            resources=candidate.resources,
            ran_ms=max(0, now_ms - candidate.started_ms),
            lost_ms=max(0, now_ms - max(candidate.kept_ms, candidate.started_ms)),
            remaining_ms=remaining_ms(candidate, now_ms) if candidate.estimated_ms is not None else None,
        )
        own_score = self.plugins.preempt_score(facts, usual)
        return _NEVER if own_score is None else own_score
