"""Run it: `python -m examples.rlhf`, on a small Ray cluster of its own, or with `--address` on one that is there."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import ray

from examples.rlhf import roles
from examples.rlhf.training import Round, Sizes, settings, train
from mesh import ScheduleMesh, running_mesh
from mesh.ray.cluster.cluster_spec import ClusterNodeSpec, ClusterSpec
from mesh.ray.cluster.own_cluster import OwnCluster

NODES = (ClusterNodeSpec(cpu=2), ClusterNodeSpec(cpu=2))
STORE_BYTES = 80 * 2**20


def main() -> None:
    """Train, tell what happened, and leave nothing behind: on Ctrl-C and SIGTERM as well."""
    parser = argparse.ArgumentParser(prog="python -m examples.rlhf", description="Rollouts give way to training, and go on afterwards.")
    parser.add_argument("--address", help="of a Ray cluster with 4 free CPUs; left out, a small one is started, and stopped at the end")
    parser.add_argument("--rounds", type=int, default=3, help="of training (3)")
    parser.add_argument("--rollout-steps", type=int, default=Sizes().rollout_steps, help="of each rollout (%(default)s), 20 ms each")
    options = parser.parse_args()
    sizes = Sizes(rollout_steps=options.rollout_steps)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # The workers of a cluster that is there already cannot import this folder, so its code travels.
    cloudpickle.register_pickle_by_value(roles)
    try:
        with connected(options.address) as folder, running_mesh(f"rlhf-{os.getpid()}", state_dir=folder, settings=settings()) as mesh:
            for number, reported in enumerate(train(mesh, rounds=options.rounds, sizes=sizes)):
                show(number, reported)
            conclude(mesh)
    except KeyboardInterrupt:
        print("interrupted; all of it is stopped", file=sys.stderr)
        raise


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Path | None]:
    """Be a driver of that cluster, or of one for the length of the block; the folder is where its mesh may keep its state."""
    own = OwnCluster.start(ClusterSpec(nodes=NODES, object_store_bytes=STORE_BYTES)) if address is None else None
    try:
        if own is not None:
            own.connect()
        else:
            ray.init(address, log_to_driver=False, logging_level="ERROR")
        print(f"{'started' if own is not None else 'connected to'} a Ray cluster with {ray.cluster_resources()['CPU']:.0f} CPUs")
        yield own.folder / "mesh" if own is not None else None
    finally:
        ray.shutdown()
        if own is not None:
            own.stop()


def show(number: int, reported: Round) -> None:
    """One round, in words."""
    waited = f"after {reported.train_waited_ms} ms of waiting"
    print(f"round {number}: trained on {reported.samples} answers, {waited}; the policy is worth {reported.worth:+.2f}")
    for name, (first, *later) in reported.preempted.items():
        again = ", then ".join(f"resumed at step {attempt.first_step}" for attempt in later)
        print(f"  {name} began at step {first.first_step}, was preempted, {again}")


def conclude(mesh: ScheduleMesh) -> None:
    """What the mesh itself counts."""
    counts = mesh.metric_values().preemption_count
    preemptions = sum(status.preemptions for status in mesh.list_tasks())
    labels = ", ".join(label for label, count in counts.items() if count)
    audit = mesh.audit()
    print(f"{preemptions} rollouts were preempted (label {labels or 'none'}); {'every ledger agrees' if audit else audit.violations}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
