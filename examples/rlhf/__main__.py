"""Run it: `python -m examples.rlhf`, on a small Ray cluster of its own, or with `--address` on one that is there."""

from __future__ import annotations

import argparse
import os
import signal
import sys

import cloudpickle
import ray

from examples.ray_cluster import connected
from examples.rlhf import roles
from examples.rlhf.training import Round, Sizes, settings, train
from mesh import ScheduleMesh, running_mesh


def main() -> None:
    """Train, print what happened, and stop everything; on Ctrl-C and SIGTERM too."""
    parser = argparse.ArgumentParser(prog="python -m examples.rlhf", description="Training preempts rollouts, which continue afterwards.")
    parser.add_argument("--address", help="Ray cluster with 4 free CPUs (default: start a small one, and stop it at the end)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of training (%(default)s)")
    parser.add_argument("--rollout-steps", type=int, default=Sizes().rollout_steps, help="steps of a rollout (%(default)s), 20 ms each")
    options = parser.parse_args()
    sizes = Sizes(rollout_steps=options.rollout_steps)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Workers of a running cluster cannot import this folder, so its code is pickled.
    cloudpickle.register_pickle_by_value(roles)
    try:
        with connected(options.address, 2, 2) as folder, running_mesh(f"rlhf-{os.getpid()}", state_dir=folder, settings=settings()) as mesh:
            print(f"{'connected to' if options.address else 'started'} a Ray cluster with {ray.cluster_resources()['CPU']:.0f} CPUs")
            for number, result in enumerate(train(mesh, rounds=options.rounds, sizes=sizes)):
                print_round(number, result)
            print_totals(mesh)
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        raise


def print_round(number: int, result: Round) -> None:
    """Print the result of one round, and its preempted rollouts."""
    waited = f"after {result.train_waited_ms} ms of waiting"
    print(f"round {number}: trained on {result.samples} answers, {waited}; the policy is worth {result.worth:+.2f}")
    for name, (first, *later) in result.preempted.items():
        again = ", then ".join(f"continued at step {attempt.first_step}" for attempt in later)
        print(f"  {name} began at step {first.first_step}, was preempted, {again}")


def print_totals(mesh: ScheduleMesh) -> None:
    """Print the mesh's own count of preemptions, and its audit."""
    preempted = [status for status in mesh.list_tasks() if status.preemptions]
    preemptions = sum(status.preemptions for status in preempted)
    labels = ", ".join(sorted({str(status.label) for status in preempted}))
    audit = mesh.audit()
    print(f"{preemptions} rollouts were preempted (label {labels or 'none'}); {'the audit found nothing' if audit else audit.violations}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
