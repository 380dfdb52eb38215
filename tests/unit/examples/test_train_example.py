"""The example of Ray Train in a gang: its graph as users see it, and its data."""

from __future__ import annotations

import numpy as np

from dag.client.compiling import compile_graph
from examples.train import train


def test_the_gang_has_a_bundle_for_each_worker():
    nodes = compile_graph(train.graph(workers=3, rows=10))["nodes"]
    assert nodes["fit"]["options"]["gang"] == {"size": 3, "strategy": "PACK"}
    assert nodes["fit"]["args"] == [10, 3]
    assert nodes["report"]["args"] == [{"$ref": "fit"}]


def test_the_data_lie_about_the_line():
    x, y = train.measure(1, 500)
    slope, height = np.polyfit(x, y, 1)
    model = {"slope": float(slope), "height": float(height), "workers": 4}
    assert train.report(model) == "y = 3.0 x -1.0, by 4 models"
