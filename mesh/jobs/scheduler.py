"""One round of the job scheduler: find places for unplaced members, on a snapshot of jobs and nodes.

The queue policy picks the next job; the job's basic policy picks its nodes. A job's first turn places its minimum, the leader and as many
workers as it needs, all or none. So no job holds capacity that does not suffice, and two jobs never wait for each other. Each further
turn places one more worker. A job that does not fit is skipped for the rest of the round, and the jobs behind it continue.

The round changes nothing: `JobController` applies its result, unless things have changed meanwhile.

Source:
    TY-Arranger's periodic scheduler, which is separate from the controller. `mesh.jobs.packing` describes what goes beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from mesh.core.counting import counted
from mesh.core.ids import JobId, NodeName, PoolName
from mesh.core.nodes import NodeTable, Units
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.jobs.members import THE_LEADER, Member, replica_of, selector_of
from mesh.jobs.ordering import Turn, TurnQueue
from mesh.jobs.packing import Demands, Part, Shortage, Steps, pack, shortage
from mesh.jobs.room import PoolRoom, Room
from mesh.jobs.snapshots import Allocation, JobSnapshot, MemberPlacement
from mesh.jobs.spec import LEADER, BasicPolicy, JobQueuePolicy
from mesh.jobs.states import ScheduleState
from mesh.policies.catalogue import node_policy
from mesh.policies.policy import BoolArray, Draw, NodeDemand, Policy

#: Node policy of each basic policy. The round itself makes gangs all-or-nothing; their members are packed.
POLICY_NAMES: Mapping[BasicPolicy, str] = {
    BasicPolicy.GANG: "binpack",
    BasicPolicy.BIN_PACK: "binpack",
    BasicPolicy.LEADER_FIRST: "leader_first",
    BasicPolicy.MIN_FRAGMENT: "min_fragment",
    BasicPolicy.JOB_AFFINITY: "job_affinity",
    BasicPolicy.JOB_ANTI_AFFINITY: "job_anti_affinity",
}
SEARCH_STEPS_MAX = 2_000  #: Budget of all searches of a round: about 50 ms on 1,000 nodes.

#: Units of one member, and the mask of nodes with matching labels.
_Shape = tuple[Units, BoolArray]


def allocate(
    jobs: Iterable[JobSnapshot],
    nodes: NodeTable,
    *,
    draw: Draw,
    policy_of: Callable[[str], Policy] = node_policy,
    pools: Mapping[PoolName, PoolRoom] | None = None,
    queue_policy: JobQueuePolicy | None = None,
    may_grow: bool = False,
    search_steps_max: int = SEARCH_STEPS_MAX,
) -> tuple[Allocation, ...]:
    """Run one round and return an answer for each job with unplaced members, in order of their first turns.

    Args:
        jobs: All jobs that are not over. Their places that no node counts yet are reserved.
        nodes: Read only.
        draw: Random source for policies that need it.
        policy_of: Returns a node policy by name.
        pools: Free capacity of each pool; None: unlimited.
        queue_policy: Order of the jobs; None: each job's own (see `TurnQueue`).
        may_grow: Nodes may be added, so no job is reported as unschedulable.
        search_steps_max: Budget of the search for arrangements after the policies have found none.
    """
    all_jobs = tuple(jobs)
    wanted = [replica_of(job.spec, role).resources for job in all_jobs for role in (LEADER, *(each.name for each in job.spec.worker_sets))]
    room = Room(nodes, wanted, pools)
    work = [_Work(job) for job in all_jobs]
    for each in work:
        each.charge(room)
    room.close_accounts()
    taken = _Round(room=room, policy_of=policy_of, draw=draw, steps=Steps(search_steps_max), may_grow=may_grow)
    return taken.run([each for each in work if each.job.unplaced], queue_policy)


class _Work:
    """A job in this round."""

    def __init__(self, job: JobSnapshot) -> None:
        self.job = job
        self.spec = job.spec
        self.held: ResourceSet = NOTHING
        self.new: dict[Member, NodeName] = {}
        self.reason: Reason | None = None
        self.detail = ""
        self.is_unsatisfiable = False
        self.waiting: dict[str, list[Member]] = {}  #: Workers by set, lowest rank last: the last one is placed next.
        for member in job.unplaced:
            if not member.is_leader:
                self.waiting.setdefault(member.role, []).insert(0, member)
        placed = sum(not member.is_leader for member in job.places)
        self.needed = max(job.spec.workers_needed - placed - job.done, 0)
        self.lacks_minimum = THE_LEADER in job.unplaced or self.needed > 0
        self.blocked: set[str] = set()  #: Sets whose next worker does not fit in this round.

    def charge(self, room: Room) -> None:
        """Count what the job holds, and reserve its places that no node counts yet."""
        for member, node in self.job.places.items():
            resources = replica_of(self.spec, member.role).resources
            self.held += resources
            row = room.rows.get(node)
            if row is None:
                continue
            if member in self.job.unseen:
                room.take(self.spec.job, self.spec.pool, row, room.vector(resources))
            else:
                room.occupy(self.spec.job, row)

    def turn(self) -> Turn:
        """Return the job's entry for the queue."""
        return Turn(job=self.spec.job, policy=self.spec.job_queue_policy, priority=self.spec.priority, arrival=self.job.arrival)

    def refuse(self, reason: Reason, detail: str) -> bool:
        """Record why the job gets no more places in this round, and return False."""
        self.reason, self.detail = reason, detail
        return False

    def answer(self) -> Allocation:
        """Return the result for the job."""
        left = sum(map(len, self.waiting.values()))
        if self.lacks_minimum:
            state = ScheduleState.SCHEDULED_FAILED if self.is_unsatisfiable else ScheduleState.UNSCHEDULED
        else:
            state = ScheduleState.SCHEDULED_PARTLY if left else ScheduleState.SCHEDULED_SUCCEED
        return Allocation(
            job=self.spec.job,
            incarnation=self.job.incarnation,
            schedule_state=state,
            places=tuple(MemberPlacement(member, node) for member, node in self.new.items()),
            reason=self.reason,
            detail=self.detail,
        )


@dataclass(slots=True, kw_only=True)
class _Round:
    room: Room
    policy_of: Callable[[str], Policy]
    draw: Draw
    steps: Steps
    may_grow: bool
    shapes: dict[tuple[JobId, str], _Shape] = field(default_factory=dict)
    failed: dict[tuple[object, ...], tuple[Reason, str, bool]] = field(
        default_factory=dict
    )  #: Capacity only shrinks during a round, so equal jobs fail too.

    def run(self, work: list[_Work], queue_policy: JobQueuePolicy | None) -> tuple[Allocation, ...]:
        """Give turns until the queue is empty."""
        queue, by_job = TurnQueue(self.room.capacity, queue_policy), {each.spec.job: each for each in work}
        for each in work:
            queue.push(each.turn(), each.held)
        order: dict[JobId, _Work] = {}
        while (job := queue.pop()) is not None:
            now = order.setdefault(job, by_job[job])
            got = self._place_minimum(now) if now.lacks_minimum else self._place_one(now)
            if got and any(now.waiting.values()):
                queue.push(now.turn(), now.held)
        return tuple(each.answer() for each in order.values())

    # -- minimum of a job ----------------------------------------------------------------------------------------------

    def _place_minimum(self, work: _Work) -> bool:
        key = _alike(work)
        if key in self.failed:
            reason, detail, work.is_unsatisfiable = self.failed[key]
            return work.refuse(reason, detail)
        if not self.room.knows(work.spec.pool):
            return work.refuse(Reason.POOL_UNKNOWN, f"there is no pool {work.spec.pool}")
        demands, limit = self._demands(work), self.room.pool_free(work.spec.pool)
        short = shortage(demands, self._free_for(demands), limit, self.room.resources)
        if short is None and (self._follow_policy(work) or self._search(work, demands, limit)):
            work.lacks_minimum = False
            return True
        reason, detail, work.is_unsatisfiable = self._why_not(work, demands, short)
        self.failed[key] = (reason, detail, work.is_unsatisfiable)
        return work.refuse(reason, detail)

    def _follow_policy(self, work: _Work) -> bool:
        """Place members one by one as the policy chooses; undo all if they do not suffice."""
        taken: list[tuple[Member, int]] = []
        row = self._choose(work, LEADER)
        if row is not None:
            taken.append((THE_LEADER, row))
            self._take(work, THE_LEADER, row)
            for role, members in work.waiting.items():
                while members and len(taken) <= work.needed and (row := self._choose(work, role)) is not None:
                    taken.append((members[-1], row))
                    self._take(work, members[-1], row)
        if len(taken) == 1 + work.needed:
            return True
        for member, row in reversed(taken):
            self._give_back(work, member, row)
        return False

    def _search(self, work: _Work, demands: Demands, limit: Units | None) -> bool:
        """Search another arrangement than the policy's."""
        for role, row in pack(demands, self._free_for(demands), limit, self.steps).places or ():
            self._take(work, THE_LEADER if role == LEADER else work.waiting[role][-1], row)
        return THE_LEADER in work.new

    def _free_for(self, demands: Demands) -> Units:
        return self.room.free_for(demands.leader.wanted, *(part.wanted for part in demands.sets))

    def _why_not(self, work: _Work, demands: Demands, now: Shortage | None) -> tuple[Reason, str, bool]:
        """Return the reason, the message, and whether it is permanent.

        Args:
            now: Present shortage, if known.
        """
        room, capacity = self.room, self.room.pool_capacity(work.spec.pool)
        never = shortage(demands, room.total, capacity, room.resources)
        if never is None and not self._could_hold(demands, capacity):
            text = f"no arrangement of the leader and {counted(demands.needed, 'worker')} fits on the nodes"
            never = Shortage(is_of_pool=False, text=text)
        if never is not None:
            # A job that ran before fitted once: it waits, since the missing node may return.
            for_ever = len(room) > 0 and not self.may_grow and work.job.incarnation == 1
            return Reason.POOL_TOO_SMALL if never.is_of_pool else Reason.NO_NODE_FITS, f"even when empty: {never.text}", for_ever
        text = now.text if now else f"no arrangement of the leader and {counted(demands.needed, 'worker')} was found"
        return Reason.POOL_BUSY if now and now.is_of_pool else Reason.NODES_BUSY, f"now: {text}", False

    def _could_hold(self, demands: Demands, capacity: Units | None) -> bool:
        packing = pack(demands, self.room.total, capacity, self.steps)
        return packing.places is not None or not packing.is_sure

    def _demands(self, work: _Work) -> Demands:
        leader, leader_suits = self._shape(work, LEADER)
        sets = []
        for role, members in work.waiting.items():
            wanted, suits = self._shape(work, role)
            sets.append(Part(role=role, wanted=wanted, suits=suits, count=len(members)))
        return Demands(leader=Part(role=LEADER, wanted=leader, suits=leader_suits), sets=tuple(sets), needed=work.needed)

    # -- one more worker -----------------------------------------------------------------------------------------------

    def _place_one(self, work: _Work) -> bool:
        for role, members in work.waiting.items():
            row = self._choose(work, role) if members and role not in work.blocked else None
            if row is not None:
                self._take(work, members[-1], row)
                return True
            work.blocked.add(role)
        left = sum(map(len, work.waiting.values()))
        limit, wanted = (
            self.room.pool_free(work.spec.pool),
            [self._shape(work, role)[0] for role, members in work.waiting.items() if members],
        )
        is_of_pool = limit is not None and all((limit < each).any() for each in wanted)
        return work.refuse(
            Reason.POOL_BUSY if is_of_pool else Reason.NODES_BUSY, f"{counted(left, 'worker')} still without a place for lack of capacity"
        )

    def _choose(self, work: _Work, role: str) -> int | None:
        """Return the node that the job's policy prefers for a member of this role, among those that fit."""
        wanted, suits = self._shape(work, role)
        fits = self.room.fits(work.spec.pool, suits, wanted)
        if not fits.any():
            return None
        policy = self.policy_of(POLICY_NAMES[work.spec.basic_policy])
        demand = NodeDemand(wanted=wanted, role=role)
        scores = np.where(fits, policy.score(demand, self.room.view(work.spec.job)), -np.inf)
        return policy.pick(scores, demand, self.draw)

    def _shape(self, work: _Work, role: str) -> _Shape:
        key = (work.spec.job, role)
        if key not in self.shapes:
            suits = self.room.suits(work.spec.pool, selector_of(work.spec, role))
            self.shapes[key] = (self.room.vector(replica_of(work.spec, role).resources), suits)
        return self.shapes[key]

    def _take(self, work: _Work, member: Member, row: int) -> None:
        self.room.take(work.spec.job, work.spec.pool, row, self._shape(work, member.role)[0])
        work.new[member] = self.room.names[row]
        work.held += replica_of(work.spec, member.role).resources
        if not member.is_leader:
            work.waiting[member.role].pop()

    def _give_back(self, work: _Work, member: Member, row: int) -> None:
        self.room.give_back(work.spec.job, work.spec.pool, row, self._shape(work, member.role)[0])
        del work.new[member]
        work.held -= replica_of(work.spec, member.role).resources
        if not member.is_leader:
            work.waiting[member.role].append(member)


def _alike(work: _Work) -> tuple[object, ...]:
    """Return a key that is equal for jobs with equal demands: if one does not fit, none does."""
    spec = work.spec
    parts = tuple(
        (role, len(members), replica_of(spec, role).resources, _items(selector_of(spec, role))) for role, members in work.waiting.items()
    )
    return (spec.pool, spec.leader.resources, _items(selector_of(spec, LEADER)), parts, work.needed, work.job.incarnation > 1)


def _items(selector: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(selector.items()))
