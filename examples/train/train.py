"""A Ray Train program in a gang: four workers fit a line to their shards of the data, and the node averages their models.

    schedulemesh submit examples/train/train.py:graph

The gang is admitted whole: its four bundles are the room of Ray Train's workers, under quota, priority and preemption of the tenant. Ray
Train asks for a placement group, and gets a part of the gang's. Needs `pip install 'schedulemesh[examples]'`, which has `ray[train]`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import dag

#: The line that the made-up data lie about: slope and height.
SLOPE, HEIGHT = 3.0, -1.0
STEPS = 200


def measure(shard: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a shard of the data: made up here, read from files elsewhere."""
    chosen = np.random.default_rng(shard)
    x = chosen.uniform(-1, 1, rows)
    return x, SLOPE * x + HEIGHT + chosen.normal(0, 0.1, rows)


def fit_shard(config: dict[str, Any]) -> None:
    """Fit a line to the worker's own shard by gradient descent; Ray Train runs this in each worker."""
    from ray import train  # noqa: PLC0415  the meshes have Ray Train; who submits the graph need not

    rank = train.get_context().get_world_rank()
    x, y = measure(rank, config["rows"])
    slope = height = 0.0
    for _ in range(STEPS):
        error = slope * x + height - y
        slope -= float((error * x).mean())
        height -= float(error.mean())
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder, f"line-{rank}.npy"), np.array([slope, height]))
        loss = float((error**2).mean())
        train.report({"loss": loss, "workers": train.get_context().get_world_size()}, checkpoint=train.Checkpoint.from_directory(folder))


def fit(rows: int, workers: int) -> dict[str, float]:
    """Fit a line by Ray Train, and average the lines of its workers. The files are shared by one node; give several an address."""
    from ray.train import RunConfig, ScalingConfig  # noqa: PLC0415  as above
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # noqa: PLC0415  as above

    with tempfile.TemporaryDirectory() as storage:
        trainer = DataParallelTrainer(
            fit_shard,
            train_loop_config={"rows": rows},
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(name="line", storage_path=storage),
        )
        result = trainer.fit()
        with result.checkpoint.as_directory() as folder:
            slope, height = np.mean([np.load(file) for file in sorted(Path(folder).glob("line-*.npy"))], axis=0)
    return {"slope": float(slope), "height": float(height), **result.metrics}


def report(model: dict[str, float]) -> str:
    """Return the model in words."""
    return f"y = {model['slope']:.1f} x {model['height']:+.1f}, by {model['workers']:.0f} models"


def graph(workers: int = 4, rows: int = 1_000) -> dag.Node:
    """Return the workflow.

    Args:
        workers: Workers of Ray Train: one in each bundle of the gang.
        rows: Rows of each worker's shard.
    """
    model = dag.gang(fit, size=workers, num_cpus=1).bind(rows, workers)
    return dag.bind(report, model)
