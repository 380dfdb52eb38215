"""A sweep over learning rates with a conditional deployment, a human approval, and cleanup that always runs.

    schedulemesh submit examples/approval/sweep.py:graph --id sweep-1 --no-wait
    schedulemesh explain sweep-1                 # WAITING_FOR_SIGNAL: signal approve
    schedulemesh signal sweep-1 approve          # or: schedulemesh signal sweep-1 approve false
    schedulemesh result sweep-1

While the run waits for the signal, it holds no worker and no quota.
"""

from __future__ import annotations

import dag

RATES = (0.01, 0.1, 0.5, 2.0)
#: Score from which a model may be deployed.
GOOD = 0.8


def train(rate: float) -> dict[str, float]:
    """Return a model of this learning rate: the best rate is 0.5."""
    return {"rate": rate, "score": round(1 / (1 + abs(rate - 0.5)), 3)}


def best(models: list[dict[str, float]]) -> dict[str, float]:
    """Return the model with the highest score."""
    return max(models, key=lambda model: model["score"])


def is_good(model: dict[str, float], least: float) -> bool:
    """Return whether the model may be deployed."""
    return model["score"] >= least


def deploy(model: dict[str, float]) -> str:
    """Deploy the model."""
    return f"deployed the model of rate {model['rate']}"


def keep(model: dict[str, float], why: str) -> str:
    """Keep the model for a look at it."""
    return f"kept the model of rate {model['rate']}: {why}"


def remove_scratch() -> str:
    """Remove what the sweep left behind, however it ended."""
    return "scratch files removed"


def graph(least: float = GOOD, timeout: float = 86_400) -> dict[str, dag.Node]:
    """Return the workflow.

    Args:
        least: Score that a model needs, to be deployed.
        timeout: Seconds to wait for the approval; then the run fails.
    """
    models = [dag.bind(train, rate) for rate in RATES]
    chosen = dag.bind(best, models)
    approved = dag.task(deploy).bind(chosen)
    refused = dag.task(keep, name="refused").bind(chosen, "nobody approved")
    asked = dag.cond(dag.wait_signal("approve", timeout=timeout), approved, refused).options(name="asked")
    weak = dag.task(keep, name="weak").bind(chosen, "its score is too low")
    outcome = dag.cond(dag.bind(is_good, chosen, least), asked, weak).options(name="outcome")
    return {"outcome": outcome, "cleanup": dag.after(dag.bind(remove_scratch), outcome, when="always")}
