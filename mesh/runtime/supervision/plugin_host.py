"""The plugins of one mesh beside its scheduler: who scores, who orders, who says who gives way.

A budget is measured by the clock, so a replay of the journal could not know which call of a hook was the one too many. Hence, when a
hook is fenced off while the scheduler decides, a snapshot takes the place of the journal at once: what the plugin had a part in until
then is never decided again. While a journal is replayed no budget is measured, and the plugins are asked as they were then: a hook has
to answer the same to the same question, or the mesh that comes back after a crash may count a task on another node than the one it
runs on. What was fenced off stays so as long as the mesh keeps its folder.

`priority()` needs no such care: it is asked once, when a task is submitted, and its answer is part of the task from then on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mesh.plugins import CandidateFacts, Plugin, PluginFenced, Plugins, TaskFacts
from mesh.policies.catalogue import Catalogue
from mesh.runtime.plugin_loading import load_plugins
from mesh.scheduling.preemption import Candidate, PreemptionRules, remaining_ms, score
from mesh.scheduling.scheduler import MeshScheduler
from mesh.scheduling.settings import SchedulerSettings
from mesh.scheduling.tasks import TaskRequest

NO_SOURCES: Mapping[str, str] = {}
#: A plugin that says "not this one": no threshold is so low.
_NEVER = float("-inf")


class PluginHost:
    """See the module.

    Args:
        sources: As `load_plugins` takes them; those of installed packages come on top.
    Raises:
        PluginError: One of them cannot be loaded.
        UnknownPolicy: One is called like a built-in policy.
    """

    def __init__(self, sources: Mapping[str, str] = NO_SOURCES) -> None:
        loaded = load_plugins(sources)
        self.is_replaying = False
        self.plugins = Plugins(loaded, now_ms=self._now_ms)
        self.catalogue = Catalogue(self.plugins.policies)
        self._orders = any(plugin.priority is not None for plugin in loaded)
        self._scoring: dict[str, Any] = {"scorer": self._score} if _judges(loaded) else {}

    def scheduler(self, settings: SchedulerSettings, seed: int) -> MeshScheduler:
        """A new scheduler that asks these plugins."""
        return MeshScheduler(settings, seed=seed, catalogue=self.catalogue, **self._scoring)

    def scheduler_from(self, kept: object) -> MeshScheduler:
        """The scheduler of a snapshot, which asks these plugins. Raises `PlainValueError` when it is no such snapshot."""
        return MeshScheduler.from_snapshot(kept, self.catalogue, **self._scoring)

    def prioritised(self, request: TaskRequest) -> TaskRequest:
        """The request with the priority that the plugin gives it; as it came where none does."""
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
        """Is it the request that was submitted before? Its priority may have been replaced since."""
        return known == (replace(request, priority=known.priority) if self._orders else request)

    def begin_replay(self, fenced: Iterable[PluginFenced]) -> None:
        """Go back to the fences of a snapshot. No budget is measured until `end_replay`."""
        self.is_replaying = True
        self.plugins.set_fenced(fenced)

    def end_replay(self) -> None:
        """What comes now is new."""
        self.is_replaying = False

    def take_fenced(self) -> tuple[PluginFenced, ...]:
        """What has been fenced off since the last call."""
        return self.plugins.take_fenced()

    def _now_ms(self) -> float:
        return 0.0 if self.is_replaying else time.monotonic() * 1000

    def _score(self, candidate: Candidate, priority: float, rules: PreemptionRules, now_ms: int) -> float:
        usual = score(candidate, priority, rules, now_ms)
        if priority <= candidate.priority:
            return usual  # Out of reach whatever a plugin says, and it is promised that it never hears of such.
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
        told = self.plugins.preempt_score(facts, usual)
        return _NEVER if told is None else told


def _judges(plugins: tuple[Plugin, ...]) -> bool:
    return any(plugin.preemption_policy is not None for plugin in plugins)
