"""Laws of the lease accounting of a mesh: its indexes equal a scan of all accounts."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from federation.child.lease_accounting import LeaseAccounting, sum_of
from federation.leases import Lease, LedgerResponse
from mesh.core.resources import ResourceSet

KEYS = [("acme", "red"), ("acme", "blue"), ("beta", "red")]
NAMES = ["s", "t", "u"]


@dataclass(frozen=True)
class Step:
    verb: str
    key: tuple[str, str]
    stage: str
    cpus: int
    target: int


STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(["tell", "tell", "lose", "spend", "put back", "hold", "drop", "keep holds of", "offer"]),
        key=st.sampled_from(KEYS),
        stage=st.sampled_from(NAMES),
        cpus=st.integers(0, 4),
        target=st.integers(0, 4),
    ),
    max_size=30,
)


def cpu(count):
    return ResourceSet.of({"cpu": count})


def done(accounting, step, version):
    tenant, flavor = step.key
    if step.verb == "tell":
        lease = Lease(tenant=tenant, mesh="m", flavor=flavor, held=cpu(step.cpus), target=cpu(step.target), token=1, version=version)
        accounting.apply(LedgerResponse(leases=(lease,)), [step.key])
    elif step.verb == "lose":
        accounting.apply(LedgerResponse(), [step.key])
    elif (
        step.verb == "spend"
        and not any(step.stage in accounting.paid(key) for key in KEYS)
        and accounting.room(step.key, cpu(1), step.stage)
    ):
        accounting.spend(step.stage, step.key, cpu(1), version)
    elif step.verb == "put back":
        accounting.put_back(step.stage, version)
    elif step.verb == "hold":
        accounting.hold(step.stage, step.key, cpu(1))
    elif step.verb == "drop":
        accounting.drop_hold(step.stage)
    elif step.verb == "keep holds of":
        accounting.drop_holds({step.stage})
    elif step.verb == "offer":
        accounting.offer_idle(version, step.cpus)


@given(STEPS)
def test_the_indexes_equal_a_scan_of_every_lease(steps):
    accounting = LeaseAccounting()
    for version, step in enumerate(steps, start=1):
        done(accounting, step, version)
        assert accounting.check() == []
        for overdraft in accounting.overdrawn():
            assert not sum_of(overdraft.spent.values()) <= overdraft.limit
        assert accounting.check() == []
