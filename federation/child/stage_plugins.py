"""Plugins of a federated mesh: node policies for slots, and scores of stages that may be preempted.

`score` places slots, by the policy of a pool. `preemption_policy` chooses among the less urgent stages of the preemptor's tenant; it
makes no stage a candidate, so rounds of preemption still end (`mesh.preemption.stage_preemption`). `priority` is not called: the root
orders queues, grants quota and explains waits by the tenants' priorities, and an order that only the mesh knows would contradict it.

A hook that is fenced off stays off until the process of the mesh starts again.

Source: ADR 0046.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import structlog

from federation.snapshot import PluginRecord
from mesh.core.ids import MeshId, TaskId
from mesh.core.printable import escaped
from mesh.plugins import CandidateFacts, Clock, Plugin, Plugins
from mesh.policies.catalogue import Catalogue
from mesh.preemption.rules import Preemptor
from mesh.preemption.stage_preemption import Occupant, VictimScorer

log = structlog.get_logger(__name__)

#: Length of the cause of a fence, as far as it is reported.
_WHY_MAX = 200


class StagePlugins:
    """Plugins of one mesh.

    Args:
        plugins: Loaded plugins; each hook gets a fence.
        now_ms: Clock of the hooks' time budget.

    Raises:
        PluginError: Two plugins have one name, or both have `preemption_policy`.
        UnknownPolicy: A plugin has the name of a built-in policy.
    """

    def __init__(self, plugins: Iterable[Plugin] = (), *, now_ms: Clock = lambda: 0.0) -> None:
        loaded = tuple(plugins)
        self._plugins = Plugins([replace(one, priority=None) for one in loaded], now_ms=now_ms)
        self.unused = tuple(
            f"priority() of plugin {one.name} is not called: in a federation, the tenants' priorities order the queues"
            for one in loaded
            if one.priority is not None
        )  #: A sentence for each hook that a federated mesh does not call.
        self.catalogue = Catalogue(self._plugins.policies)  #: Policies that pools may name.

    @property
    def victim_scorer(self) -> VictimScorer | None:
        """Return the scorer of preemption candidates; None: no plugin has one, or it is fenced off."""
        return self._victim_scores if any("preemption_policy" in one.hooks for one in self.records) else None

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """Return the plugins with the hooks in use and those that are fenced off, as the mesh reports them."""
        off = {(one.plugin, one.hook): " ".join(escaped(one.why).split())[:_WHY_MAX] for one in self._plugins.fenced}
        return tuple(
            PluginRecord(
                plugin=name,
                hooks=tuple(hook for hook in hooks if (name, hook) not in off),
                fenced={hook: off[name, hook] for hook in hooks if (name, hook) in off},
            )
            for name, hooks in self._plugins.hooks.items()
        )

    def log_fenced(self, mesh: MeshId) -> None:
        """Log each hook that was fenced off since the last call."""
        for one in self._plugins.take_fenced():
            log.warning("a plugin is disabled", mesh=mesh, plugin=one.plugin, hook=one.hook, why=one.why)

    def _victim_scores(self, preemptor: Preemptor, occupants: Sequence[Occupant], now_ms: int) -> Sequence[float | None] | None:
        scores = [self._plugins.preempt_score(_facts_of(one, preemptor, now_ms), 0.0) for one in occupants]
        is_off = any(one.hook == "preemption_policy" for one in self._plugins.fenced)
        return None if is_off else scores


def _facts_of(occupant: Occupant, preemptor: Preemptor, now_ms: int) -> CandidateFacts:
    kept_ms = occupant.started_ms if occupant.saved_ms is None else occupant.saved_ms
    return CandidateFacts(
        task=TaskId(occupant.stage),
        pool=occupant.pool,
        tenant=occupant.tenant,
        priority=occupant.priority,
        priority_delta=preemptor.priority - occupant.priority,
        resources=occupant.amounts,
        ran_ms=max(0, now_ms - occupant.started_ms),
        lost_ms=max(0, now_ms - kept_ms),
    )
