"""The seeds of worlds: the same ones each time, and a new one where new ones are asked for."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.seeds(n)`: the test runs for each `seed` below `n`; by `make fresh` also for the one that it tells."""
    marker = metafunc.definition.get_closest_marker("seeds")
    if marker is None:
        return
    (count,) = marker.args
    options = metafunc.config.option
    fresh = [int(options.hypothesis_seed)] if options.hypothesis_profile == "fresh" and options.hypothesis_seed else []
    metafunc.parametrize("seed", [*range(count), *fresh])
