"""Dry run: where the stages of a run would go if it were submitted now, by the run machine and routing without a store.

Nothing is stored or sent. The result holds for the snapshot; later work may change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dag.planning import place
from dag.run.events import Blockage
from dag.run.machine import RunMachine
from dag.run.runs import RunRecord, StageRecord
from dag.run.stage_dispatch import spec_of
from dag.spec.plans import plans_of
from dag.spec.spec import load
from federation.estimates import CostRules
from federation.quota.policies import NO_SETTINGS, QueueSettings
from federation.snapshot import FederationSnapshot
from mesh.core.ids import NodeId
from mesh.stages.spec import StageSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Result of a dry run."""

    #: The stages that the run would have, each as its mesh would get it. Those in the state QUEUED would be sent at once.
    stages: tuple[tuple[StageRecord, StageSpec], ...] = ()
    blockages: Mapping[NodeId, Blockage] = field(default_factory=dict)


def dry_run(record: RunRecord, snapshot: FederationSnapshot, rules: CostRules, settings: QueueSettings = NO_SETTINGS) -> DryRun:
    """Place, split and send a run without a store; this changes `record`.

    Args:
        settings: Queue settings of the run's tenant, as for `place`.
    Raises:
        SpecError: The record contains no graph.
    """
    spec = load(record.spec)
    plans = plans_of(spec)
    machine = RunMachine(record, plans, runtime_env=spec.code.runtime_env, on_error=spec.on_error)
    placed = place(machine, record.tenant, snapshot, rules, settings, now_ms=snapshot.at_ms)
    machine.handle([placed], snapshot.at_ms)
    stages = tuple((stage, spec_of(record, stage, plans, spec.code.runtime_env)) for stage in record.stages.values())
    return DryRun(stages=stages, blockages=placed.blockages)
