"""Run it: `python -m examples.sharding`. Connects to the cluster of RAY_ADDRESS, or starts one for as long as it runs."""

from __future__ import annotations

import os
import sys

from examples.ray_cluster import connected
from examples.sharding.neighbours import SHAPE, Neighbours, load, recognise
from mesh import running_mesh

STARTS_S_MAX = 120.0


def main() -> None:
    """Start four agents, recognise digits with them, and print the accuracy."""
    known, asked = load()
    with connected(os.environ.get("RAY_ADDRESS"), 2) as folder, running_mesh(f"sharding-{os.getpid()}", state_dir=folder) as mesh:
        mesh.ensure_pool("readers", capacity={"cpu": 1})
        tasks = [mesh.submit_task(Neighbours, pool="readers", resources={"cpu": 0.25}) for _ in range(4)]
        for task in tasks:
            task.wait_started(STARTS_S_MAX)
        group = mesh.group(tasks=tasks, shape=SHAPE)
        numbers = recognise(group, known, asked.images)
        blocks = f"{len(asked.numbers)} x {len(known.numbers)} distances"
        print(f"{group} computed {blocks}: {(numbers == asked.numbers).mean():.1%} of the digits were recognised")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
