"""A small workflow in WfFormat."""

from __future__ import annotations

from typing import Any


def diamond() -> dict[str, Any]:
    edges = {"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}
    tasks = [
        {
            "id": node,
            "name": f"step_{node}",
            "children": readers,
            "parents": [other for other, its in edges.items() if node in its],
            "inputFiles": [f"{other}.out" for other, its in edges.items() if node in its],
            "outputFiles": [f"{node}.out"],
        }
        for node, readers in edges.items()
    ]
    files = [{"id": f"{node}.out", "sizeInBytes": 10} for node in edges]
    return {
        "name": "diamond",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": tasks, "files": files},
            "execution": {"tasks": [{"id": node, "runtimeInSeconds": 1.5} for node in edges]},
        },
    }


def tasks_of(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = workflow["workflow"]["specification"]["tasks"]
    return listed
