"""The graphs of `schedulemesh demo`."""

from __future__ import annotations

import pytest

from serve_apps.cli.commands.demo import EXAMPLES, MAIN, RIVAL
from serve_apps.cli.graph_file import load_graph


@pytest.mark.parametrize(("tenant", "target"), [pytest.param(*MAIN, id="main run"), pytest.param(*RIVAL, id="rival run")])
def test_the_demo_finds_its_graphs(tenant: str, target: str):
    assert tenant.startswith("acme/")
    assert load_graph(str(EXAMPLES / target)).outputs
