"""Laws of GPUs by instance, over the scheduler of tasks and the placement of slots: sums agree, and no run has one GPU in two parts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import hypothesis.strategies as st
from examples_of_laws import examples
from hypothesis import given, settings

from mesh.core.ids import NodeName, PoolName, StageId, TaskId
from mesh.core.json_codec import json_text
from mesh.core.node_instances import InstanceHolding
from mesh.core.pools import PoolLedger, PoolSpec
from mesh.core.resources import UNITS_PER_WHOLE, ResourceSet
from mesh.core.seen_nodes import NodeSeen
from mesh.core.task_spec import TaskRequest
from mesh.preemption.rules import PreemptionRules
from mesh.stages.slot_placement import SlotPlacement
from mesh.tasks import events
from mesh.tasks.decisions import StartTask, StopTask
from mesh.tasks.scheduler import MeshScheduler
from mesh.tasks.settings import SchedulerSettings

AMOUNTS = st.sampled_from(["0.25", "0.3", "0.5", "0.6", "0.7", "1", "2"])
EAGER = SchedulerSettings(rules=PreemptionRules(threshold=0.0, min_run_ms=0, kappa_per_s=0.0), reserve_after_ms=5)


def gpus(count: object) -> ResourceSet:
    return ResourceSet.of({"gpu": count})


def expect_undivided(holdings: tuple[InstanceHolding, ...], runs: Mapping[str, ResourceSet], total: int) -> None:
    """Check from outside that each run has whole instances or a part of one, and no instance is used beyond 1."""
    used: Counter[int] = Counter()
    for holding in holdings:
        for _, number, units in holding.parts:
            used[number] += units
        if holding.holder in runs:
            sizes = [units for _, _, units in holding.parts]
            assert sum(sizes) == runs[holding.holder]["gpu"]
            assert sizes == [UNITS_PER_WHOLE] * len(sizes) or len(sizes) == 1
    assert all(units <= UNITS_PER_WHOLE for units in used.values())
    assert len(used) <= total


@given(st.data())
@settings(max_examples=examples(80))
def test_s26_the_scheduler_glues_no_gpu_from_parts(data: st.DataObject):  # noqa: C901  a table of what can happen
    mesh, now_ms, running = MeshScheduler(EAGER, seed=data.draw(st.integers(0, 3))), 0, dict[str, StartTask]()
    totals = {f"n{number}": data.draw(st.integers(1, 2)) for number in range(2)}
    pool = PoolName("p")

    def report(*happened: events.Event) -> None:
        for decision in mesh.handle(*happened):
            if isinstance(decision, StartTask):
                running[decision.task] = decision
                report(events.TaskStarted(at_ms=now_ms, task=decision.task, attempt=decision.attempt, agent=decision.agent))
            elif isinstance(decision, StopTask) and running.pop(decision.task, None) is not None:
                report(events.TaskStopped(at_ms=now_ms, task=decision.task, attempt=decision.attempt))
        assert mesh.state.check() == []

    for name, count in totals.items():
        report(events.NodeJoined(at_ms=0, node=NodeName(name), total=gpus(count), labels={}))
    report(
        events.PoolConfigured(
            at_ms=0, spec=PoolSpec(pool=pool, capacity=gpus(10), policy=data.draw(st.sampled_from(["binpack", "spread"])))
        )
    )
    for number in range(data.draw(st.integers(8, 25))):
        now_ms += data.draw(st.integers(0, 4))
        step = data.draw(st.sampled_from(["submit", "submit", "submit", "submit", "end", "foreign", "restore"]))
        if step == "submit":
            amount, priority = data.draw(AMOUNTS), data.draw(st.sampled_from([0.0, 5.0]))
            request = TaskRequest(task=TaskId(f"t{number}"), pool=pool, resources=gpus(amount), priority=priority)
            report(events.TaskSubmitted(at_ms=now_ms, request=request))
        elif step == "end" and running:
            over = running.pop(data.draw(st.sampled_from(sorted(running))))
            report(events.TaskEnded(at_ms=now_ms, task=over.task, attempt=over.attempt))
        elif step == "foreign":
            node = NodeName(data.draw(st.sampled_from(sorted(totals))))
            report(events.NodeUseSeen(at_ms=now_ms, node=node, foreign=gpus(data.draw(st.sampled_from(["0", "0.5", "1.5"])))))
        elif step == "restore":
            written = json_text(mesh.to_snapshot())
            mesh = MeshScheduler.from_snapshot(json.loads(written))
            assert json_text(mesh.to_snapshot()) == written
        table = mesh.state.table
        for name, count in totals.items():
            here = {task: start.resources for task, start in running.items() if start.node == name}
            expect_undivided(table.holdings(table.row(NodeName(name))), here, count)


@given(st.data())
@settings(max_examples=examples(80))
def test_s26_slots_of_stages_share_no_gpu_in_parts(data: st.DataObject):
    counts = [data.draw(st.integers(1, 3)) for _ in range(2)]
    placement = SlotPlacement(PoolLedger((PoolSpec(pool="p", capacity=gpus(sum(counts)), policy="binpack"),)))
    placement.see([NodeSeen(node=f"n{number}", total=gpus(count), labels={}, available=gpus(count)) for number, count in enumerate(counts)])
    slots: dict[str, ResourceSet] = {}
    for number in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["place", "place", "keep", "withdraw", "release", "grow"]))
        if step == "place":
            stage, slot = StageId(f"s{number}"), gpus(data.draw(AMOUNTS))
            copies = placement.copies("p", slot)
            found = placement.place(stage, "p", slot, data.draw(st.integers(1, 4)))
            assert copies is not None
            assert found <= copies
            slots[stage] = slot
        elif slots:
            stage = StageId(data.draw(st.sampled_from(sorted(slots))))
            if step == "keep":
                placement.keep(stage, data.draw(st.integers(0, 2)))
            elif step == "withdraw":
                placement.withdraw(stage, placement.nodes_of(stage)[:1])
            elif step == "release":
                placement.release(stage)
                del slots[stage]
            elif step == "grow":
                placement.place(StageId(f"{stage}+"), "p", slots[stage], 1)
                placement.join(stage, StageId(f"{stage}+"))
        assert list(placement.check()) == []
    for number, count in enumerate(counts):  # Each slot alone is whole or on one GPU, so parts bound the number of slots.
        for slot in set(slots.values()):
            here = sum(placement.nodes_of(StageId(stage)).count(f"n{number}") for stage, each in slots.items() if each == slot)
            most = count * (UNITS_PER_WHOLE // slot["gpu"]) if slot["gpu"] < UNITS_PER_WHOLE else count // (slot["gpu"] // UNITS_PER_WHOLE)
            assert here <= most
